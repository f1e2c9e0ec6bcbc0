#include "bench/conduit_mx.hpp"

#include <adma.h>
#include <fmt/format.h>
#include <myriexpress.h>

#include <deque>

#include "bench/copy_buffers.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kPosted = 16;
constexpr std::uint64_t kMatch = 1;
constexpr std::uint64_t kOther = 1000;  // and on: of messages that only wait
constexpr std::uint64_t kReady = 2;

class MxConduit final : public Conduit {
 public:
  MxConduit(Meeting meeting, const MxOptions& options) : meeting_(std::move(meeting)), options_(options) {}

  void open(Side side) override {
    meeting_.choose(side);
    bytes_ = options_.engine_memory ? static_cast<std::byte*>(::adma_alloc(kMostBytes)) : ordinary_memory();
    if (bytes_ == nullptr) give_up("no memory");
    mx_set_error_handler(MX_ERRORS_RETURN);
    const mx_return_t began = mx_init();  // conduits of one process share it
    if (began != MX_SUCCESS && began != MX_ALREADY_INITIALIZED) check(began, "mx_init");
    uint32_t boards = 0;
    check(mx_get_info(nullptr, MX_NIC_COUNT, nullptr, 0, &boards, sizeof boards), "mx_get_info");
    check(mx_open_endpoint(boards - 1, MX_ANY_ENDPOINT, 0, nullptr, 0, &endpoint_), "mx_open_endpoint");
    meet();
    while (receives_.size() < kPosted) post_receive();
    for (std::uint32_t i = 0; i < options_.posted; ++i) post(kOther + i, &others_.emplace_back());
    for (std::uint32_t i = 0; i < options_.unexpected; ++i) {
      start_send(0, kOther + i);
      settle();
    }
    mx_request_t ready;  // what was sent before has come when this has
    post(kReady, &ready);
    start_send(0, kReady);
    settle();
    wait_for(ready);
  }
  void close() override {
    (void)mx_close_endpoint(endpoint_);
    if (options_.engine_memory) (void)::adma_free(bytes_);
  }

  void send(std::size_t size) override {
    while (!sends_.empty() && (sends_.size() == kWindow || is_done(sends_.front()))) {
      if (sends_.size() == kWindow) wait_for(sends_.front());
      sends_.pop_front();
    }
    start_send(size, kMatch);
  }
  void receive(std::size_t) override {
    wait_for(receives_.front());
    receives_.pop_front();
    post_receive();
  }
  void settle() override {
    for (; !sends_.empty(); sends_.pop_front()) wait_for(sends_.front());
  }

 private:
  std::byte* ordinary_memory() {
    auto made = Memory::make(kMostBytes);
    if (!made) return nullptr;
    memory_ = std::make_unique<Memory>(std::move(*made));
    return memory_->data();
  }
  static void check(mx_return_t code, const char* what) {
    if (code != MX_SUCCESS) give_up(fmt::format("{}: {}", what, mx_strerror(code)));
  }
  static void check(const mx_status_t& status) {
    if (status.code != MX_STATUS_SUCCESS) give_up(fmt::format("a message: {}", mx_strstatus(status.code)));
  }

  void meet() {
    mx_endpoint_addr_t own;
    struct {
      std::uint64_t nic;
      std::uint32_t number;
    } mine{}, theirs{};
    check(mx_get_endpoint_addr(endpoint_, &own), "mx_get_endpoint_addr");
    check(mx_decompose_endpoint_addr(own, &mine.nic, &mine.number), "mx_decompose_endpoint_addr");
    meeting_.tell(&mine, sizeof mine);
    meeting_.hear(&theirs, sizeof theirs);
    check(mx_connect(endpoint_, theirs.nic, theirs.number, 0, 10'000, &peer_), "mx_connect");
  }

  void post(std::uint64_t match, mx_request_t* request) {
    mx_segment_t segment{bytes_, kMostBytes};
    check(mx_irecv(endpoint_, &segment, 1, match, MX_MATCH_MASK_NONE, nullptr, request), "mx_irecv");
  }
  void post_receive() { post(kMatch, &receives_.emplace_back()); }
  void start_send(std::size_t size, std::uint64_t match) {
    mx_segment_t segment{bytes_, static_cast<std::uint32_t>(size)};
    check(mx_isend(endpoint_, &segment, 1, peer_, match, nullptr, &sends_.emplace_back()), "mx_isend");
  }
  bool is_done(mx_request_t& request) {
    mx_status_t status;
    std::uint32_t result = 0;
    check(mx_test(endpoint_, &request, &status, &result), "mx_test");
    if (result != 0) check(status);
    return result != 0;
  }
  void wait_for(mx_request_t& request) {
    if (!options_.waits) {
      while (!is_done(request)) continue;
      return;
    }
    mx_status_t status;
    std::uint32_t result = 0;
    while (result == 0) check(mx_wait(endpoint_, &request, MX_INFINITE, &status, &result), "mx_wait");
    check(status);
  }

  Meeting meeting_;
  const MxOptions options_;
  std::unique_ptr<Memory> memory_;
  std::byte* bytes_ = nullptr;
  mx_endpoint_t endpoint_ = nullptr;
  mx_endpoint_addr_t peer_{};
  std::deque<mx_request_t> sends_, receives_, others_;
};

}  // namespace

Result<std::unique_ptr<Conduit>> make_mx(const MxOptions& options) {
  Meeting meeting;
  VIADUCT_CHECK(meeting.prepare());
  return std::unique_ptr<Conduit>(std::make_unique<MxConduit>(std::move(meeting), options));
}

}  // namespace viaduct::bench
