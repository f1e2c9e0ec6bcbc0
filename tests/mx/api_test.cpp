// The functions of myriexpress.h one by one.
#include <unistd.h>

#include <thread>

#include "mx/api_pair.hpp"

namespace viaduct::mx::testing {
namespace {

using Api = Mx;

TEST(MxInit, ComesFirstAndOnce) {
  mx_set_error_handler(MX_ERRORS_RETURN);
  mx_endpoint_t endpoint = nullptr;
  EXPECT_EQ(mx_open_endpoint(0, 1, 0, nullptr, 0, &endpoint), MX_NOT_INITIALIZED);
  EXPECT_EQ(mx_finalize(), MX_NOT_INITIALIZED);
  EXPECT_EQ(mx__init_api(0x201), MX_BAD_LIB_VERSION);
  EXPECT_EQ(mx_init(), MX_SUCCESS);
  EXPECT_EQ(mx_init(), MX_ALREADY_INITIALIZED);
  EXPECT_EQ(mx_finalize(), MX_SUCCESS);
  EXPECT_EQ(mx_init(), MX_SUCCESS);
  EXPECT_EQ(mx_finalize(), MX_SUCCESS);
}

TEST_F(Api, AnEndpointsNumberIsItsAlone) {
  a = open_endpoint();
  mx_endpoint_t other = nullptr;
  EXPECT_EQ(mx_open_endpoint(loopback_board(), number_of(a), 0, nullptr, 0, &other), MX_BUSY);
  const std::uint32_t number = number_of(a);
  EXPECT_EQ(mx_close_endpoint(a), MX_SUCCESS);
  EXPECT_EQ(mx_close_endpoint(a), MX_BAD_ENDPOINT);
  other = open_endpoint(0, {}, number);
  EXPECT_EQ(number_of(other), number);
}

TEST_F(Api, WrongArgumentsAreRefused) {
  mx_endpoint_t endpoint = nullptr;
  EXPECT_EQ(mx_open_endpoint(1000, 1, 0, nullptr, 0, &endpoint), MX_BOARD_UNKNOWN);
  EXPECT_EQ(mx_open_endpoint(loopback_board(), 70000, 0, nullptr, 0, &endpoint), MX_BAD_ENDPOINT_ID);
  EXPECT_EQ(mx_open_endpoint(loopback_board(), 1, 0, nullptr, 1, &endpoint), MX_BAD_PARAM_LIST);
  mx_param_t parameter{};
  parameter.key = static_cast<mx_param_key_t>(9);
  EXPECT_EQ(mx_open_endpoint(loopback_board(), 1, 0, &parameter, 1, &endpoint), MX_BAD_PARAM_NAME);
  parameter.key = MX_PARAM_CONTEXT_ID;
  parameter.val.context_id = {17, 0};
  EXPECT_EQ(mx_open_endpoint(loopback_board(), 1, 0, &parameter, 1, &endpoint), MX_BAD_PARAM_VAL);
  parameter.val.context_id = {8, 60};
  EXPECT_EQ(mx_open_endpoint(loopback_board(), 1, 0, &parameter, 1, &endpoint), MX_BAD_PARAM_VAL);

  open_both();
  char byte = 0;
  mx_request_t request = nullptr;
  std::vector<mx_segment_t> many(257, {&byte, 1});
  mx_segment_t nowhere{nullptr, 1};
  EXPECT_EQ(mx_isend(a, many.data(), 257, to_b, 0, nullptr, &request), MX_BAD_SEG_CNT);
  EXPECT_EQ(mx_isend(a, nullptr, 1, to_b, 0, nullptr, &request), MX_BAD_SEG_LIST);
  EXPECT_EQ(mx_isend(a, &nowhere, 1, to_b, 0, nullptr, &request), MX_BAD_SEG_MEM);
  EXPECT_EQ(mx_isend(nullptr, many.data(), 1, to_b, 0, nullptr, &request), MX_BAD_ENDPOINT);
  EXPECT_EQ(mx_isend(a, many.data(), 1, {{1, 2}}, 0, nullptr, &request), MX_BAD_ENDPOINT);
  EXPECT_EQ(mx_isend(a, many.data(), 1, to_a, 0, nullptr, &request), MX_BAD_ENDPOINT) << "another endpoint's address";
  EXPECT_EQ(mx_irecv(a, many.data(), 1, 3, 1, nullptr, &request), MX_BAD_MATCH_MASK);
  mx_status_t status;
  std::uint32_t result = 0;
  EXPECT_EQ(mx_test_any(a, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
  request = nullptr;
  EXPECT_EQ(mx_test(a, &request, &status, &result), MX_BAD_REQUEST);
  EXPECT_EQ(mx_wait(a, nullptr, 1, &status, &result), MX_BAD_REQUEST);
  EXPECT_EQ(mx_iput(a, many.data(), 1, to_b, 0, nullptr, &request), MX_BAD_BAD_BAD);
}

TEST_F(Api, AStatusTellsEverythingOfAMessage) {
  open_both();
  int mine = 0, theirs = 0;
  Buffer out(100, 5), in(300);
  const mx_request_t receiving = receive(b, in, 0x1200, 0xff00, &theirs);
  const mx_request_t sending = send(a, to_b, out, 0x1234, &mine);
  const mx_status_t received = wait(b, receiving);
  EXPECT_EQ(received.code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(is_address(received.source, to_a));
  EXPECT_EQ(received.match_info, 0x1234u);
  EXPECT_EQ(received.msg_length, 100u);
  EXPECT_EQ(received.xfer_length, 100u);
  EXPECT_EQ(received.context, &theirs);
  const mx_status_t sent = wait(a, sending);
  EXPECT_EQ(sent.code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(is_address(sent.source, to_b));
  EXPECT_EQ(sent.match_info, 0x1234u);
  EXPECT_EQ(sent.xfer_length, 100u);
  EXPECT_EQ(sent.context, &mine);
  EXPECT_TRUE(in.holds(5, 100));
}

TEST_F(Api, SegmentsAreGatheredAndScattered) {
  open_both();
  for (const std::size_t piece : {3u, 200u, 5000u}) {  // tiny, in fragments, long
    Buffer out(256 * piece, 8), in(256 * piece);
    std::vector<mx_segment_t> from, to;
    for (std::size_t i = 0; i < 256; ++i)
      from.push_back({out.bytes.data() + i * piece, static_cast<std::uint32_t>(piece)});
    for (std::size_t i = 0; i < 128; ++i)
      to.push_back({in.bytes.data() + 2 * i * piece, static_cast<std::uint32_t>(2 * piece)});
    mx_request_t sending, receiving;
    ASSERT_EQ(mx_irecv(b, to.data(), 128, 1, MX_MATCH_MASK_NONE, nullptr, &receiving), MX_SUCCESS);
    ASSERT_EQ(mx_isend(a, from.data(), 256, to_b, 1, nullptr, &sending), MX_SUCCESS);
    EXPECT_EQ(wait(b, receiving).xfer_length, 256 * piece);
    EXPECT_EQ(wait(a, sending).code, MX_STATUS_SUCCESS);
    EXPECT_TRUE(in.holds(8, 256 * piece));
  }
}

TEST_F(Api, AReceiveIsCancelledUntilItIsMatched) {
  open_both();
  Buffer in(10), out(10, 1);
  mx_request_t receiving = receive(b, in, 1);
  std::uint32_t result = 0;
  EXPECT_EQ(mx_cancel(b, &receiving, &result), MX_SUCCESS);
  EXPECT_EQ(result, 1u);
  receiving = receive(b, in, 1);
  mx_request_t sending = send(a, to_b, out, 1);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_SUCCESS);
  std::uint32_t found = 0;
  mx_request_t done = nullptr;
  EXPECT_EQ(mx_peek(b, 20000, &done, &found), MX_SUCCESS);
  EXPECT_EQ(found, 1u);
  EXPECT_EQ(done, receiving);
  EXPECT_EQ(mx_cancel(b, &receiving, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u) << "it is too late";
  EXPECT_EQ(wait(b, receiving).code, MX_STATUS_SUCCESS);
  sending = send(a, to_b, out, 2);
  EXPECT_EQ(mx_cancel(a, &sending, &result), MX_CANCEL_NOT_SUPPORTED);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_SUCCESS);
}

TEST_F(Api, AProbeLeavesTheMessageWhereItIs) {
  open_both();
  mx_status_t status;
  std::uint32_t result = 1;
  EXPECT_EQ(mx_iprobe(b, 7, MX_MATCH_MASK_NONE, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  EXPECT_EQ(mx_probe(b, 20, 7, MX_MATCH_MASK_NONE, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  Buffer small(50, 1), large(200000, 2), in(200000);
  const mx_request_t first = send(a, to_b, small, 7), second = send(a, to_b, large, 8);
  EXPECT_EQ(probe(b, 7).msg_length, 50u);
  EXPECT_EQ(probe(b, 8).msg_length, 200000u);
  status = probe(b, 0, 0);
  EXPECT_EQ(status.match_info, 7u) << "in the order of arrival";
  EXPECT_TRUE(is_address(status.source, to_a));
  EXPECT_EQ(wait(b, receive(b, in, 8)).msg_length, 200000u);
  EXPECT_EQ(wait(b, receive(b, in, 7)).msg_length, 50u);
  EXPECT_EQ(wait(a, first).code, MX_STATUS_SUCCESS);
  EXPECT_EQ(wait(a, second).code, MX_STATUS_SUCCESS);
}

TEST_F(Api, AnyFinishedRequestIsTakenByItsMatch) {
  open_both();
  Buffer out(8, 1), in1(8), in2(8), in3(8);
  (void)receive(b, in1, 0x11), (void)receive(b, in2, 0x21), (void)receive(b, in3, 0x12);
  mx_status_t status;
  std::uint32_t result = 1;
  EXPECT_EQ(mx_test_any(b, 0, 0, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  EXPECT_EQ(mx_wait_any(b, 20, 0, 0, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  for (const std::uint64_t match : {0x12u, 0x21u, 0x11u}) wait(a, send(a, to_b, out, match));
  ASSERT_EQ(mx_wait_any(b, 20000, 0x10, 0xf0, &status, &result), MX_SUCCESS);
  ASSERT_EQ(result, 1u);
  EXPECT_EQ(status.match_info, 0x12u);
  ASSERT_EQ(mx_wait_any(b, 20000, 0x11, MX_MATCH_MASK_NONE, &status, &result), MX_SUCCESS);
  ASSERT_EQ(result, 1u);
  ASSERT_EQ(mx_wait_any(b, 20000, 0, 0, &status, &result), MX_SUCCESS);
  ASSERT_EQ(result, 1u);
  EXPECT_EQ(status.match_info, 0x21u);
  EXPECT_EQ(mx_test_any(b, 0, 0, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
}

TEST_F(Api, PeekShowsWhatIsFinished) {
  open_both();
  Buffer out(8, 1), in(8);
  int mark = 0;
  mx_request_t receiving = receive(b, in, 1, MX_MATCH_MASK_NONE, &mark), found = nullptr;
  std::uint32_t result = 1;
  EXPECT_EQ(mx_ipeek(b, &found, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  EXPECT_EQ(mx_peek(b, 20, &found, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  wait(a, send(a, to_b, out, 1));
  ASSERT_EQ(mx_peek(b, 20000, &found, &result), MX_SUCCESS);
  ASSERT_EQ(result, 1u);
  EXPECT_EQ(found, receiving);
  void* context = nullptr;
  EXPECT_EQ(mx_context(&found, &context), MX_SUCCESS);
  EXPECT_EQ(context, &mark);
  EXPECT_EQ(wait(b, receiving).code, MX_STATUS_SUCCESS);
}

TEST_F(Api, BufferedMeansThatTheBytesAreFree) {
  open_both();
  Buffer small(1000, 1), large(500000, 2), in(500000);
  mx_request_t first = send(a, to_b, small, 1), second = send(a, to_b, large, 2);
  std::uint32_t result = 0;
  EXPECT_EQ(mx_ibuffered(a, &first, &result), MX_SUCCESS);
  EXPECT_EQ(result, 1u);
  EXPECT_EQ(mx_ibuffered(a, &second, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  EXPECT_EQ(mx_buffered(a, &second, 20, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
  mx_request_t receiving = receive(b, in, 2);
  EXPECT_EQ(mx_ibuffered(b, &receiving, &result), MX_BAD_REQUEST);
  EXPECT_EQ(mx_buffered(a, &second, 20000, &result), MX_SUCCESS);
  EXPECT_EQ(result, 1u);
  EXPECT_EQ(wait(b, receiving).code, MX_STATUS_SUCCESS);
  EXPECT_EQ(wait(a, first).code, MX_STATUS_SUCCESS);
  EXPECT_EQ(wait(a, second).code, MX_STATUS_SUCCESS);
}

TEST_F(Api, AForgottenRequestFinishesByItself) {
  open_both();
  Buffer out(500000, 2), in(500000);
  mx_request_t sending = send(a, to_b, out, 2);
  EXPECT_EQ(mx_forget(a, &sending), MX_SUCCESS);
  EXPECT_EQ(wait(b, receive(b, in, 2)).code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(in.holds(2, 500000));
  mx_status_t status;
  std::uint32_t result = 1;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(mx_progress(a), MX_SUCCESS);
  EXPECT_EQ(mx_test_any(a, 0, 0, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);
}

TEST_F(Api, ContextIdsMustNotBeMaskedOut) {
  mx_param_t parameter{};
  parameter.key = MX_PARAM_CONTEXT_ID;
  parameter.val.context_id = {4, 8};
  open_both({parameter});
  mx_request_t request = nullptr;
  mx_status_t status;
  std::uint32_t result = 1;
  EXPECT_EQ(mx_irecv(b, nullptr, 0, 0, 0xff, nullptr, &request), MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
  EXPECT_EQ(mx_iprobe(b, 0, 0, &status, &result), MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
  EXPECT_EQ(mx_test_any(b, 0, 0, &status, &result), MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
  EXPECT_EQ(mx_ipeek(b, &request, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
  EXPECT_EQ(mx_peek(b, 1, &request, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
  Buffer one(1, 1), two(2, 1), in(8);
  wait(a, send(a, to_b, one, 0x101));
  wait(a, send(a, to_b, two, 0x201));
  EXPECT_EQ(wait(b, receive(b, in, 0x200, 0xf00)).msg_length, 2u);
  EXPECT_EQ(wait(b, receive(b, in, 0x100, 0xf00)).msg_length, 1u);
}

TEST_F(Api, AWaitEndsWhenItIsWoken) {
  open_both();
  Buffer in(8);
  mx_request_t receiving = receive(b, in, 1);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> waiting{false}, over{false};
    std::thread waker([&] {
      while (!waiting.load()) std::this_thread::yield();
      while (!over.load()) {  // it may not be asleep yet
        (void)mx_wakeup(b);
        ::usleep(1000);
      }
    });
    mx_status_t status;
    std::uint32_t result = 1;
    waiting = true;
    EXPECT_EQ(mx_wait(b, &receiving, MX_INFINITE, &status, &result), MX_SUCCESS);
    over = true;
    EXPECT_EQ(result, 0u);
    waker.join();
  }
}

TEST_F(Api, RequestsEndWhenTheirTimeIsOver) {
  open_both();
  Buffer in(8), large(100000, 1), small(8, 1);
  mx_request_t receiving = receive(b, in, 1);
  EXPECT_EQ(mx_set_request_timeout(b, receiving, 30), MX_SUCCESS);
  EXPECT_EQ(wait(b, receiving).code, MX_STATUS_TIMEOUT);
  mx_request_t sending = send(a, to_b, large, 5);
  EXPECT_EQ(mx_set_request_timeout(a, sending, 30), MX_SUCCESS);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_TIMEOUT);
  EXPECT_EQ(wait(b, receive(b, large, 5)).code, MX_STATUS_ABORTED) << "its sender has given it up";
  sending = send_until_matched(a, to_b, small, 6);
  EXPECT_EQ(mx_set_request_timeout(a, sending, 30), MX_SUCCESS);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_TIMEOUT);
  EXPECT_EQ(mx_set_request_timeout(b, nullptr, 30), MX_SUCCESS);
  EXPECT_EQ(wait(b, receive(b, in, 9)).code, MX_STATUS_TIMEOUT);
  EXPECT_EQ(mx_set_request_timeout(b, nullptr, MX_INFINITE), MX_SUCCESS);
  EXPECT_EQ(wait(b, receive(b, in, 6)).code, MX_STATUS_SUCCESS) << "it was sent before";
}

// ---- connecting

TEST_F(Api, ConnectingFailsForAReason) {
  a = open_endpoint();
  b = open_endpoint(77);
  mx_endpoint_addr_t address;
  EXPECT_EQ(mx_connect(a, loopback_nic(), number_of(b), 76, 10000, &address), MX_BAD_CONNECTION_KEY);
  EXPECT_EQ(mx_connect(a, loopback_nic(), number_of(b), 77, 10000, &address), MX_SUCCESS);
  EXPECT_EQ(mx_connect(a, 5, 1, 0, 100, &address), MX_NIC_NOT_FOUND);
  EXPECT_EQ(mx_connect(a, loopback_nic(), 70000, 0, 100, &address), MX_BAD_ENDPOINT_ID);
  EXPECT_EQ(mx_connect(a, loopback_nic(), 65000, 0, 50, &address), MX_TIMEOUT);
  EXPECT_EQ(mx_connect(a, loopback_nic(), number_of(a), 0, 100, &address), MX_SUCCESS) << "to itself";
}

TEST_F(Api, AConnectionIsARequestToo) {
  a = open_endpoint();
  b = open_endpoint(3);
  int mark = 0;
  mx_request_t request = nullptr;
  ASSERT_EQ(mx_iconnect(a, loopback_nic(), number_of(b), 3, 0xabc, &mark, &request), MX_SUCCESS);
  mx_status_t status{};
  std::uint32_t result = 0;
  ASSERT_EQ(mx_wait_any(a, 20000, 0xabc, MX_MATCH_MASK_NONE, &status, &result), MX_SUCCESS);
  ASSERT_EQ(result, 1u);
  EXPECT_EQ(status.code, MX_STATUS_SUCCESS);
  EXPECT_EQ(status.context, &mark);
  Buffer out(10, 1), in(10);
  wait(a, send(a, status.source, out, 1));
  const mx_status_t received = wait(b, receive(b, in, 1));
  wait(b, send(b, received.source, out, 2));
  EXPECT_EQ(wait(a, receive(a, in, 2)).code, MX_STATUS_SUCCESS);
  ASSERT_EQ(mx_iconnect(a, loopback_nic(), 65001, 0, 0, nullptr, &request), MX_SUCCESS);
  ASSERT_EQ(mx_set_request_timeout(a, request, 30), MX_SUCCESS);
  EXPECT_EQ(wait(a, request).code, MX_STATUS_TIMEOUT);
}

TEST_F(Api, AddressesHoldWhatTheyAreMadeOf) {
  open_both();
  std::uint64_t nic = 0;
  std::uint32_t number = 0, session = 0, own_session = 0;
  ASSERT_EQ(mx_decompose_endpoint_addr2(to_b, &nic, &number, &session), MX_SUCCESS);
  EXPECT_EQ(nic, loopback_nic());
  EXPECT_EQ(number, number_of(b));
  EXPECT_NE(session, 0u);
  mx_endpoint_addr_t own;
  ASSERT_EQ(mx_get_endpoint_addr(b, &own), MX_SUCCESS);
  ASSERT_EQ(mx_decompose_endpoint_addr2(own, nullptr, nullptr, &own_session), MX_SUCCESS);
  EXPECT_EQ(session, own_session);
  int mark = 0;
  void* context = &mark;
  EXPECT_EQ(mx_get_endpoint_addr_context(to_b, &context), MX_SUCCESS);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(mx_set_endpoint_addr_context(to_b, &mark), MX_SUCCESS);
  EXPECT_EQ(mx_get_endpoint_addr_context(to_b, &context), MX_SUCCESS);
  EXPECT_EQ(context, &mark);
  EXPECT_EQ(mx_get_endpoint_addr_context({{0, 0}}, &context), MX_BAD_ENDPOINT);
}

TEST_F(Api, DisconnectingEndsWhatIsUnderWay) {
  open_both();
  Buffer large(100000, 1), out(10, 3), in(10);
  const mx_request_t sending = send(a, to_b, large, 1);
  ASSERT_EQ(mx_disconnect(a, to_b), MX_SUCCESS);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_ENDPOINT_CLOSED);
  ASSERT_EQ(mx_connect(a, loopback_nic(), number_of(b), 0, 10000, &to_b), MX_SUCCESS);
  wait(a, send(a, to_b, out, 2));
  EXPECT_EQ(wait(b, receive(b, in, 2)).code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(in.holds(3, 10));
}

// ---- handlers

TEST_F(Api, TheHandlerSeesWhatNobodyWaitsFor) {
  open_both();
  struct Seen {
    mx_endpoint_t endpoint;
    int calls = 0;
    std::uint64_t match = 0;
    std::uint32_t length = 0;
    bool had_data = false;
    mx_return_t closing = MX_SUCCESS;
    Buffer* post_into = nullptr;
    mx_request_t posted = nullptr;
    mx_unexp_handler_action_t answer = MX_RECV_CONTINUE;
  } seen;
  seen.endpoint = b;
  const auto handler = [](void* context, mx_endpoint_addr_t, uint64_t match, uint32_t length, void* data) {
    auto& at = *static_cast<Seen*>(context);
    ++at.calls;
    at.match = match;
    at.length = length;
    at.had_data = data != nullptr;
    at.closing = mx_close_endpoint(at.endpoint);
    if (at.post_into != nullptr) at.posted = receive(at.endpoint, *at.post_into, match);
    return at.answer;
  };
  ASSERT_EQ(mx_register_unexp_handler(b, handler, &seen), MX_SUCCESS);
  Buffer out(100, 4), large(100000, 5), in(100000);

  wait(b, [&] {  // expected: it is not asked
    const mx_request_t receiving = receive(b, in, 1);
    wait(a, send(a, to_b, out, 1));
    return receiving;
  }());
  EXPECT_EQ(seen.calls, 0);

  wait(a, send(a, to_b, out, 2));  // left alone
  probe(b, 2);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.match, 2u);
  EXPECT_EQ(seen.length, 100u);
  EXPECT_TRUE(seen.had_data);
  EXPECT_EQ(seen.closing, MX_CLOSE_IN_HANDLER);

  seen.answer = MX_RECV_FINISHED;  // taken
  EXPECT_EQ(wait(a, send_until_matched(a, to_b, out, 3)).code, MX_STATUS_SUCCESS);
  mx_status_t status;
  std::uint32_t result = 1;
  EXPECT_EQ(mx_iprobe(b, 3, MX_MATCH_MASK_NONE, &status, &result), MX_SUCCESS);
  EXPECT_EQ(result, 0u);

  seen.answer = MX_RECV_CONTINUE;  // received by what the handler posts
  seen.post_into = &in;
  const mx_request_t sending = send(a, to_b, large, 4);
  while (seen.posted == nullptr) mx_progress(b), mx_progress(a);
  EXPECT_FALSE(seen.had_data);
  EXPECT_EQ(wait(b, seen.posted).xfer_length, 100000u);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(in.holds(5, 100000));
}

TEST_F(Api, ErrorHandlersAreCalled) {
  static int calls;
  calls = 0;
  mx_param_t parameter{};
  parameter.key = MX_PARAM_ERROR_HANDLER;
  parameter.val.error_handler = [](char* text, mx_return_t why) {
    EXPECT_STREQ(text, "mx_irecv");
    EXPECT_EQ(why, MX_BAD_MATCH_MASK);
    ++calls;
    return MX_FAILURE;
  };
  a = open_endpoint(0, {parameter});
  mx_request_t request;
  EXPECT_EQ(mx_irecv(a, nullptr, 0, 1, 0, nullptr, &request), MX_FAILURE);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(mx_set_error_handler(MX_ERRORS_ARE_FATAL), MX_ERRORS_RETURN);
  b = open_endpoint();
  EXPECT_EXIT(mx_irecv(b, nullptr, 0, 1, 0, nullptr, &request), ::testing::ExitedWithCode(1), "mx: mx_irecv: ");
  mx_set_error_handler(MX_ERRORS_RETURN);
}

// ---- what is known

TEST_F(Api, BoardsHaveNamesAndNumbers) {
  std::uint32_t count = 0, board = 0;
  ASSERT_EQ(mx_get_info(nullptr, MX_NIC_COUNT, nullptr, 0, &count, sizeof count), MX_SUCCESS);
  ASSERT_EQ(count, boards().size());
  std::vector<std::uint64_t> nics(count + 1, 7);
  ASSERT_EQ(mx_get_info(nullptr, MX_NIC_IDS, nullptr, 0, nics.data(), static_cast<std::uint32_t>(nics.size() * 8)),
            MX_SUCCESS);
  EXPECT_EQ(nics.back(), 0u);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t nic = 0;
    EXPECT_EQ(mx_board_number_to_nic_id(i, &nic), MX_SUCCESS);
    EXPECT_EQ(nic, nics[i]);
    EXPECT_EQ(mx_nic_id_to_board_number(nic, &board), MX_SUCCESS);
    EXPECT_EQ(board, i);
    char name[MX_MAX_HOSTNAME_LEN] = "";
    EXPECT_EQ(mx_nic_id_to_hostname(nic, name), MX_SUCCESS);
    EXPECT_EQ(own_host_name(), name);
    std::string numbered = std::string(name) + ":" + std::to_string(i);
    EXPECT_EQ(mx_hostname_to_nic_id(numbered.data(), &nic), MX_SUCCESS);
    EXPECT_EQ(nic, nics[i]);
    for (const mx_get_info_key_t key : {MX_PRODUCT_CODE, MX_PART_NUMBER, MX_SERIAL_NUMBER, MX_PORT_COUNT, MX_NUMA_NODE,
                                        MX_NET_TYPE, MX_LINE_SPEED, MX_COUNTERS_COUNT}) {
      char value[MX_MAX_STR_LEN];
      EXPECT_EQ(mx_get_info(nullptr, key, &i, sizeof i, value, sizeof value), MX_SUCCESS) << key;
      EXPECT_EQ(mx_get_info(nullptr, key, &i, sizeof i, value, 1), MX_BAD_INFO_LENGTH) << key;
    }
  }
  std::uint64_t nic = 0;
  char unknown[] = "no.such.host.invalid";
  EXPECT_EQ(mx_hostname_to_nic_id(unknown, &nic), MX_HOST_NOT_FOUND);
  EXPECT_EQ(mx_hostname_to_nic_id(nullptr, &nic), MX_BAD_HOSTNAME_ARGS);
  EXPECT_EQ(mx_board_number_to_nic_id(count, &nic), MX_BOARD_UNKNOWN);
  EXPECT_EQ(mx_nic_id_to_board_number(1, &board), MX_NIC_NOT_FOUND);
  EXPECT_EQ(mx_get_info(nullptr, static_cast<mx_get_info_key_t>(99), nullptr, 0, &nic, 8), MX_BAD_INFO_KEY);
  EXPECT_EQ(mx_get_info(nullptr, MX_PRODUCT_CODE, nullptr, 0, &nic, 8), MX_BAD_INFO_VAL);
}

TEST_F(Api, CountersHaveLabels) {
  std::uint32_t board = 0, count = 0;
  ASSERT_EQ(mx_get_info(nullptr, MX_COUNTERS_COUNT, &board, sizeof board, &count, sizeof count), MX_SUCCESS);
  ASSERT_GT(count, 0u);
  std::vector<char> labels(std::size_t{count} * MX_MAX_STR_LEN);
  std::vector<std::uint32_t> before(count), after(count);
  const auto size = static_cast<std::uint32_t>(count * sizeof(std::uint32_t));
  ASSERT_EQ(mx_get_info(nullptr, MX_COUNTERS_LABELS, &board, sizeof board, labels.data(),
                        static_cast<std::uint32_t>(labels.size())),
            MX_SUCCESS);
  EXPECT_STREQ(labels.data(), "mx.connections");
  ASSERT_EQ(mx_get_info(nullptr, MX_COUNTERS_VALUES, &board, sizeof board, before.data(), size), MX_SUCCESS);
  open_both();
  ASSERT_EQ(mx_get_info(nullptr, MX_COUNTERS_VALUES, &board, sizeof board, after.data(), size), MX_SUCCESS);
  EXPECT_GT(after[0], before[0]);
}

TEST_F(Api, EveryCodeHasWords) {
  for (int i = 0; i <= 43; ++i) EXPECT_STRNE(mx_strerror(static_cast<mx_return_t>(i)), "no code of MX") << i;
  for (int i = 0; i <= 16; ++i) EXPECT_STRNE(mx_strstatus(static_cast<mx_status_code_t>(i)), "no status of MX") << i;
  EXPECT_STREQ(mx_strerror(static_cast<mx_return_t>(44)), "no code of MX");
}

TEST_F(Api, ProgressionNeedsNoThread) {
  a = open_endpoint();
  EXPECT_EQ(mx_disable_progression(a), MX_SUCCESS);
  EXPECT_EQ(mx_reenable_progression(a), MX_SUCCESS);
}

}  // namespace
}  // namespace viaduct::mx::testing
