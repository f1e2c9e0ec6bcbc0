// What a reader makes of a registry: this process publishes one, honest or not, and looks at itself.
#include "sockets_view/view.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.hpp"
#include "sockets/registry_format.hpp"
#include "sockets/stream_format.hpp"
#include "sockets/why.hpp"

namespace viaduct::sockets_view {
namespace {

using sockets::Life;
using sockets::RegistryHead;
using sockets::RegistryRecord;
using sockets::StreamControl;
using sockets::Why;
using ::testing::HasSubstr;

class View : public ::testing::Test {
 protected:
  void publish(std::uint64_t layout = sockets::kRegistryLayout, std::size_t size = sockets::kRegistryBytes) {
    auto made = Segment::create({.name = sockets::kRegistryName, .layout = layout, .payload_size = size});
    ASSERT_TRUE(made) << made.error().message();
    registry_ = std::move(*made);
    head().pid.store(::getpid());
    head().used.store(1);
  }
  RegistryHead& head() { return *registry_.as<RegistryHead>(); }

  RegistryRecord& add(int fd, Life life, Why why) {
    RegistryRecord& record = registry_.as<RegistryRecord>()[head().used.fetch_add(1)];
    record.life.store(static_cast<std::uint32_t>(life));
    record.why.store(static_cast<std::uint32_t>(why));
    record.descriptor.store(static_cast<std::uint32_t>(fd + 1));
    return record;
  }

  // A listener and a connection to it.
  void SetUp() override {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    client_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), size), 0);
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
    ASSERT_EQ(::connect(client_.get(), reinterpret_cast<sockaddr*>(&name), size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }

  Segment make_stream() {
    auto made = Segment::create(
        {.name = sockets::kStreamName, .layout = sockets::kStreamLayout, .payload_size = sockets::kLeastStreamBytes});
    EXPECT_TRUE(made);
    return std::move(*made);
  }

  Fd listener_, client_;
  std::string address_;
  Segment registry_;
};

TEST_F(View, NothingPublishedIsNotThere) {
  const auto sockets = read_sockets(::getpid());
  ASSERT_FALSE(sockets);
  EXPECT_EQ(sockets.error().code(), ENOENT);
}

TEST_F(View, TellsAddressStateAndReason) {
  publish();
  add(listener_.get(), Life::plain, Why::not_connected);
  add(client_.get(), Life::plain, Why::other_user);
  const auto sockets = read_sockets(::getpid());
  ASSERT_TRUE(sockets) << sockets.error().message();
  ASSERT_EQ(sockets->size(), 2u);
  EXPECT_EQ((*sockets)[0].local, address_);
  EXPECT_EQ((*sockets)[0].state, "LISTEN");
  EXPECT_FALSE((*sockets)[0].connected());
  EXPECT_EQ((*sockets)[1].peer, address_);
  EXPECT_EQ((*sockets)[1].state, "ESTAB");
  EXPECT_EQ((*sockets)[1].why, words(Why::other_user));
  EXPECT_FALSE((*sockets)[1].attached);
}

TEST_F(View, LooksIntoTheStream) {
  publish();
  const Segment stream = make_stream();
  auto& control = *stream.as<StreamControl>();
  control.end[0].pid.store(4711);
  control.direction[1].path.mode.store(sockets::kRing);
  control.direction[1].tally.bytes.store(100);
  control.direction[1].tally.messages.store(10);
  control.direction[1].tally.wakes.store(1);
  RegistryRecord& record = add(client_.get(), Life::attached, Why::accelerated);
  record.side.store(1);
  record.memory.store(static_cast<std::uint32_t>(stream.fd() + 1));
  auto read = [&] { return std::move(read_sockets(::getpid()).value().at(0)); };
  Socket socket = read();
  EXPECT_TRUE(socket.attached);
  EXPECT_EQ(socket.peer_pid, 4711);
  EXPECT_EQ(socket.out.route, Route::ring);
  EXPECT_EQ(socket.out.bytes, 100u);
  EXPECT_EQ(socket.out.messages, 10u);
  EXPECT_EQ(socket.out.wakes, 1u);
  EXPECT_EQ(socket.in.route, Route::tcp);
  EXPECT_THAT(socket.why, HasSubstr("with the next calls"));
  control.direction[0].path.mode.store(sockets::kRing);
  EXPECT_EQ(read().why, "");
  control.direction[0].path.mode.store(sockets::kBack);
  EXPECT_EQ(read().why, words(Why::handed_back));
}

TEST_F(View, ADirectionThatNobodyUsesIsReadyForTheRing) {
  publish();
  const Segment stream = make_stream();
  auto& control = *stream.as<StreamControl>();
  RegistryRecord& record = add(client_.get(), Life::attached, Why::accelerated);
  record.side.store(1);
  record.memory.store(static_cast<std::uint32_t>(stream.fd() + 1));
  auto read = [&] { return std::move(read_sockets(::getpid()).value().at(0)); };
  control.end[1].attached.store(1);
  EXPECT_FALSE(read().attached) << "the other side has not come";
  EXPECT_THAT(read().why, HasSubstr("comes with its next call"));
  control.end[0].pid.store(4711);
  control.end[0].attached.store(1);
  control.direction[1].path.mode.store(sockets::kRing);
  EXPECT_TRUE(read().on_rings());
  EXPECT_EQ(read().why, "");
  control.end[0].raw_senders.store(1);  // it sends over TCP just now
  EXPECT_EQ(read().in.route, Route::tcp);
  EXPECT_NE(read().why, "");
}

TEST_F(View, AsksForTheReturnOfAStream) {
  publish();
  const Segment stream = make_stream();
  add(client_.get(), Life::attached, Why::accelerated).memory.store(static_cast<std::uint32_t>(stream.fd() + 1));
  auto live = LiveStream::open(::getpid(), client_.get());
  ASSERT_TRUE(live) << live.error().message();
  live->ask_back();
  auto& control = *stream.as<StreamControl>();
  for (const auto& end : control.end) EXPECT_EQ(end.request.load(), sockets::kHandBack);
  EXPECT_FALSE(live->returned());
  for (auto& direction : control.direction) direction.path.mode.store(sockets::kBack);
  EXPECT_TRUE(live->returned());
  EXPECT_EQ(LiveStream::open(::getpid(), listener_.get()).error().code(), ENOENT);
}

// ---- programs that lie, are of another version, or have just gone

TEST_F(View, ARecordOfAClosedSocketIsPassedOver) {
  publish();
  add(client_.get(), Life::plain, Why::remote);
  client_.reset();
  EXPECT_TRUE(read_sockets(::getpid()).value().empty());
}

TEST_F(View, GarbageIsBounded) {
  publish();
  head().used.store(0xffff'ffff);
  auto* const records = registry_.as<RegistryRecord>();
  for (std::uint32_t i = 1; i < sockets::kRegistryRecords; ++i) {
    records[i].descriptor.store(i % 3 == 0 ? 0xffff'ffff : static_cast<std::uint32_t>(client_.get() + 1));
    records[i].life.store(i);
    records[i].why.store(i * 7);
    records[i].memory.store(i % 2 == 0 ? 0xffff'fff0 : static_cast<std::uint32_t>(registry_.fd() + 1));
    records[i].side.store(i);
  }
  const auto sockets = read_sockets(::getpid());
  ASSERT_TRUE(sockets);
  for (const Socket& socket : *sockets) {
    EXPECT_EQ(socket.out.bytes, 0u);  // the memory is no stream
    EXPECT_EQ(socket.fd, client_.get());
  }
}

TEST_F(View, AnotherVersionIsSaid) {
  publish(sockets::kRegistryLayout + 1);
  const auto sockets = read_sockets(::getpid());
  ASSERT_FALSE(sockets);
  EXPECT_THAT(sockets.error().message(), HasSubstr("layout"));
}

TEST_F(View, ARegistryThatIsTooSmallIsRefused) {
  publish(sockets::kRegistryLayout, 64);
  const auto sockets = read_sockets(::getpid());
  ASSERT_FALSE(sockets);
  EXPECT_EQ(sockets.error().code(), EPROTO);
}

TEST_F(View, AForkedChildHasNotItsParentsSockets) {
  publish();
  add(client_.get(), Life::plain, Why::remote);
  viaduct::testing::Child child([&] {
    const auto sockets = read_sockets(::getpid());
    CHILD_EXPECT(!sockets && sockets.error().code() == ENOENT);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(View, AllProcessesIncludeThisOne) {
  publish();
  add(client_.get(), Life::plain, Why::remote);
  int mine = 0;
  for (const Socket& socket : read_all_sockets()) mine += socket.pid == ::getpid() ? 1 : 0;
  EXPECT_EQ(mine, 1);
}

TEST(ViewErrors, AProcessThatHasGone) {
  viaduct::testing::Child child([] { return 0; });
  const int pid = child.pid();
  (void)child.wait();
  EXPECT_EQ(read_sockets(pid).error().code(), ESRCH);
}

}  // namespace
}  // namespace viaduct::sockets_view
