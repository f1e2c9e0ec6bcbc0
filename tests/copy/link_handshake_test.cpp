// Finding each other and agreeing: names, users, versions, garbage, silence.
#include <sys/prctl.h>
#include <sys/un.h>

#include "copy/link_pair.hpp"
#include "copy/link_rendezvous.hpp"

namespace viaduct::copy::testing {
namespace {

using handshake_format::Hello;

std::string fresh_name(const char* what) {
  return std::string(what) + "-" + std::to_string(::getpid());
}

Deadline in_ms(std::uint64_t ms) {
  return Deadline::after_ns(Clock::steady(), ms * 1'000'000);
}

// What attach() says about a peer that sends these bytes and then stays.
Result<std::unique_ptr<Link>> attach_to(std::span<const std::byte> bytes, std::uint64_t timeout_ms = 20'000) {
  auto pair = std::move(*make_socket_pair(SOCK_STREAM));
  EXPECT_EQ(::write(pair.second.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return Link::attach(std::move(pair.first), in_ms(timeout_ms), {});
}

TEST(LinkHandshake, OtherVersionIsRefused) {
  HangGuard guard;
  Hello hello{handshake_format::kMagic, link_format::kVersion + 1, 0, 1, 0, {}};
  const auto link = attach_to(std::as_bytes(std::span(&hello, 1)));
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code(), EPROTO);
  EXPECT_NE(link.error().message().find("version 2"), std::string::npos) << link.error().message();
}

TEST(LinkHandshake, GarbageIsRefused) {
  HangGuard guard;
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(64 + random.below(200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (round % 2 == 0) {  // plausible at first
      Hello hello{handshake_format::kMagic, link_format::kVersion, 0, random(), random(), {}};
      std::memcpy(bytes.data(), &hello, sizeof hello);
      bytes.resize(std::max<std::size_t>(bytes.size(), 96));
    }
    const auto link = attach_to(bytes);
    ASSERT_FALSE(link.ok());
    EXPECT_EQ(link.error().code(), round % 2 == 0 ? EACCES : EPROTO) << link.error().message();
  }
}

// With credentials, as a real peer sends them: the next message is garbage, or brings no memory.
TEST(LinkHandshake, GarbageAfterHelloIsRefused) {
  HangGuard guard;
  for (const std::uint64_t token : {std::uint64_t{0}, UINT64_MAX}) {
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    const int on = 1;
    ASSERT_EQ(::setsockopt(pair.first.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    Hello hello{handshake_format::kMagic, link_format::kVersion, 0, token, 0, {}};
    ASSERT_EQ(::write(pair.second.get(), &hello, sizeof hello), 64);
    const handshake_format::Verdict verdict{token == 0 ? handshake_format::kMagic : 1, 0, 0};
    ASSERT_EQ(::write(pair.second.get(), &verdict, sizeof verdict), 16);
    const auto link = Link::attach(std::move(pair.first), soon(), {});
    ASSERT_FALSE(link.ok());
    EXPECT_EQ(link.error().code(), EPROTO) << link.error().message();
  }
}

TEST(LinkHandshake, SilenceEndsByTheDeadline) {
  HangGuard guard;
  const auto link = attach_to({}, 30);
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code(), ETIMEDOUT);
  const std::byte one{1};
  EXPECT_EQ(attach_to({&one, 1}, 30).error().code(), ETIMEDOUT) << "part of a message";
}

TEST(LinkHandshake, PeerThatLeavesIsReset) {
  HangGuard guard;
  auto pair = std::move(*make_socket_pair(SOCK_STREAM));
  pair.second.reset();
  const auto link = Link::attach(std::move(pair.first), soon(), {});
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code(), ECONNRESET) << link.error().message();
}

TEST(LinkNames, BadNamesAndNobodyThere) {
  EXPECT_EQ(listen_on("").error().code(), EINVAL);
  EXPECT_EQ(listen_on(std::string(200, 'n')).error().code(), ENAMETOOLONG);
  EXPECT_EQ(connect_to(fresh_name("nobody"), in_ms(5)).error().code(), ETIMEDOUT);
  const auto first = listen_on(fresh_name("twice"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(listen_on(fresh_name("twice")).error().code(), EADDRINUSE);
  EXPECT_EQ(accept_from(first->get(), in_ms(5)).error().code(), ETIMEDOUT);
}

// A stranger reaches the socket by its full name and is turned away.
TEST(LinkNames, AnotherUserIsRefused) {
  HangGuard guard;
  if (::geteuid() != 0) GTEST_SKIP() << "NOT TESTED: needs root to become another user";
  const std::string name = fresh_name("users");
  auto listener = listen_on(name);
  ASSERT_TRUE(listener.ok());
  Baton done;
  Child stranger([&] {
    if (::setuid(65534) != 0) return 77;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "viaduct/adma/0/" + name;
    path.copy(address.sun_path + 1, path.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    CHILD_EXPECT(::connect(socket, reinterpret_cast<sockaddr*>(&address), length) == 0);
    const auto link = Link::attach(Fd(socket), soon(), {});
    CHILD_EXPECT(!link.ok());
    return 0;
  });
  const auto accepted = accept_from(listener->get(), soon());
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.error().code(), EACCES) << accepted.error().message();
  EXPECT_EQ(stranger.wait(), 0);
}

// An inherited pair has no user of its own: there the sender of the first message counts.
TEST(LinkNames, AnotherUserOnAnInheritedPairIsRefused) {
  HangGuard guard;
  if (::geteuid() != 0) GTEST_SKIP() << "NOT TESTED: needs root to become another user";
  auto pair = std::move(*make_socket_pair(SOCK_STREAM));
  Child stranger([&] {
    pair.first.reset();
    if (::setuid(65534) != 0) return 77;
    const auto link = Link::attach(std::move(pair.second), soon(), {});
    CHILD_EXPECT(!link.ok());
    return link.error().code() == EACCES ? 0 : link.error().code();
  });
  pair.second.reset();
  const auto link = Link::attach(std::move(pair.first), soon(), {});
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code(), EACCES) << link.error().message();
  EXPECT_EQ(stranger.wait(), 0);
}

// A process that may not be looked into: both sides find out, and the bytes bounce.
TEST(LinkCma, RefusedByTheKernelFallsToBounce) {
  HangGuard guard;
  if (::geteuid() != 0) GTEST_SKIP() << "NOT TESTED: needs root to become a user without privileges";
  Child both([&] {
    if (::setuid(65534) != 0) return 77;
    CHILD_EXPECT(::prctl(PR_SET_DUMPABLE, 0) == 0);
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    const pid_t writer = ::fork();
    if (writer == 0) {
      auto link = Link::attach(std::move(pair.second), soon(), {});
      std::vector<std::byte> out(300'000, std::byte{9});
      ::_exit(link.ok() && write(**link, out.data(), out.size()).moved == out.size() ? 0 : 1);
    }
    auto link = Link::attach(std::move(pair.first), soon(), {});
    CHILD_EXPECT(link.ok());
    CHILD_EXPECT(std::string_view((*link)->path()) == "bounce");
    std::vector<std::byte> in(300'000);
    CHILD_EXPECT(read(**link, in.data(), in.size()).moved == in.size());
    CHILD_EXPECT(std::count(in.begin(), in.end(), std::byte{9}) == 300'000);
    int status = 0;
    CHILD_EXPECT(::waitpid(writer, &status, 0) == writer && status == 0);
    return 0;
  });
  EXPECT_EQ(both.wait(), 0);
}

TEST(LinkCma, OffOnOneSideIsOffOnBoth) {
  HangGuard guard;
  LinkedChild peer(
      [](Link& link) {
        std::byte byte{1};
        CHILD_EXPECT(std::string_view(link.path()) == "bounce");
        return write(link, &byte, 1).error;
      },
      {.cma = false}, {.cma = true});
  std::byte byte{};
  EXPECT_STREQ(peer.link().path(), "bounce");
  EXPECT_EQ(read(peer.link(), &byte, 1).moved, 1u);
  EXPECT_EQ(peer.child().wait(), 0);
}

}  // namespace
}  // namespace viaduct::copy::testing
