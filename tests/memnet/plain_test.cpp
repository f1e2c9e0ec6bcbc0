// Plain sockets through a server: bytes go both ways, whatever their size, and ends are seen.
#include <thread>

#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

class Plain : public MemnetTest {};

TEST_F(Plain, SendsAndReceives) {
  Pair pair;
  ASSERT_EQ(memnet_send(pair.here, "over", 4, 0), 4);
  std::string got(4, 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(got, "over");
  ASSERT_TRUE(write_all(pair.there.get(), "and back"));
  char back[16];
  std::size_t have = 0;
  while (have < 8) {
    const ssize_t more = memnet_recv(pair.here, back + have, sizeof back - have, 0);
    ASSERT_GT(more, 0) << std::strerror(errno);
    have += static_cast<std::size_t>(more);
  }
  EXPECT_EQ(std::string(back, have), "and back");
}

TEST_F(Plain, CarriesEverySize) {
  Pair pair;
  for (const std::size_t length : {std::size_t{1}, std::size_t{52}, std::size_t{53}, std::size_t{4096},
                                   std::size_t{100'000}, std::size_t{5'000'000}}) {
    const std::string bytes = pattern(length);
    std::thread peer([&] {
      std::string got(length, 0);
      ASSERT_TRUE(read_all(pair.there.get(), got));
      EXPECT_EQ(got, bytes);
      EXPECT_TRUE(write_all(pair.there.get(), got));
    });
    ASSERT_EQ(memnet_send(pair.here, bytes.data(), length, 0), static_cast<ssize_t>(length));
    std::string back(length, 0);
    ASSERT_EQ(memnet_recv(pair.here, back.data(), length, MSG_WAITALL), static_cast<ssize_t>(length));
    EXPECT_EQ(back, bytes);
    peer.join();
  }
}

TEST_F(Plain, SeesTheEnd) {
  Pair pair;
  ASSERT_TRUE(write_all(pair.there.get(), "last"));
  ::shutdown(pair.there.get(), SHUT_WR);
  char bytes[8];
  ASSERT_EQ(memnet_recv(pair.here, bytes, sizeof bytes, MSG_WAITALL), 4);
  EXPECT_EQ(memnet_recv(pair.here, bytes, sizeof bytes, 0), 0);
  ASSERT_EQ(memnet_send(pair.here, "still", 5, 0), 5) << "the other half is open";
  ASSERT_EQ(memnet_shutdown(pair.here, SHUT_WR), 0);
  std::string got(5, 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(::read(pair.there.get(), bytes, 1), 0);
}

TEST_F(Plain, Accepts) {
  Listener listener;
  const Fd there = kernel_connect(listener.address);
  sockaddr_in from{};
  socklen_t length = sizeof from;
  const int here = memnet_accept(listener.socket, generic(from), &length);
  ASSERT_GE(here, 0) << std::strerror(errno);
  EXPECT_EQ(length, sizeof from);
  sockaddr_in own{};
  ASSERT_EQ(::getsockname(there.get(), generic(own), &length), 0);
  EXPECT_EQ(from.sin_port, own.sin_port);
  ASSERT_TRUE(write_all(there.get(), "hello"));
  char bytes[5];
  ASSERT_EQ(memnet_recv(here, bytes, 5, MSG_WAITALL), 5);
  ASSERT_EQ(memnet_send(here, bytes, 5, 0), 5);
  std::string got(5, 0);
  ASSERT_TRUE(read_all(there.get(), got));
  EXPECT_EQ(got, "hello");
  EXPECT_EQ(memnet_close(here), 0);
  EXPECT_EQ(::read(there.get(), bytes, 1), 0);
}

TEST_F(Plain, ClosesWithWhatWasSentStillArriving) {
  const std::string bytes = pattern(200'000);
  Pair pair;
  ASSERT_EQ(memnet_send(pair.here, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  ASSERT_EQ(memnet_close(pair.here), 0);
  pair.here = -1;
  std::string got(bytes.size(), 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(got, bytes);
  char more;
  EXPECT_EQ(::read(pair.there.get(), &more, 1), 0);
}

}  // namespace
}  // namespace viaduct::memnet::testing
