// Event bells: passed between processes by letters, of which anybody may write one.
#include "sockets/event_bell.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/fd.hpp"
#include "sockets/internal_fd.hpp"

namespace viaduct::sockets {

// Of the table of sockets, which is not here.
bool in_borrowed_memory() {
  return false;
}

namespace {

long open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// As a process that was asked for a bell writes it, and as others may.
void write_letter(std::uint64_t mailbox, std::uint64_t id, const std::vector<int>& passed) {
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "viaduct-bells-1/%016" PRIx64, mailbox);
  iovec piece{&id, sizeof id};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  if (!passed.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(passed.size() * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(passed.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), passed.data(), passed.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(sizeof id));
}

bool has_rung(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

constexpr std::uint64_t kTheirs = 0x1234'5678'9abc'de01;

class EventBell : public ::testing::Test {
 protected:
  EventBell() {
    [[maybe_unused]] static const bool prepared = (prepare_bells(), true);
    mailbox_ = own_mailbox();
  }
  ~EventBell() override { give_up_bells(); }
  std::uint64_t mailbox_ = 0;
};

TEST_F(EventBell, OneThatCameInALetterIsRung) {
  ASSERT_NE(mailbox_, 0U);
  const Fd theirs(::eventfd(0, EFD_NONBLOCK));
  EXPECT_FALSE(ring_bell(kTheirs)) << "it was not passed yet";
  write_letter(mailbox_, kTheirs, {theirs.get()});
  EXPECT_TRUE(ring_bell(kTheirs));
  EXPECT_TRUE(has_rung(theirs.get()));
  EXPECT_FALSE(ring_bell(kTheirs + 1));
}

TEST_F(EventBell, ItsOwnIsRungAndPassed) {
  BellOfThread asleep;
  ASSERT_NE(asleep.id(), 0U);
  EXPECT_TRUE(ring_bell(asleep.id()));
  EXPECT_TRUE(has_rung(asleep.fd()));
  asleep.hear();
  EXPECT_FALSE(has_rung(asleep.fd()));
  const BellOfThread handler;
  EXPECT_EQ(handler.id(), 0U) << "a sleep inside a sleep";
}

TEST_F(EventBell, WhatStrangersWriteIsClosed) {
  ASSERT_NE(mailbox_, 0U);
  const Fd one(::eventfd(0, EFD_NONBLOCK)), other(::eventfd(0, EFD_NONBLOCK));
  const Fd no_bell(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const long before = open_descriptors();
  const auto opened = [] { (void)ring_bell(kTheirs + 2); };
  write_letter(mailbox_, kTheirs, {no_bell.get()});
  opened();
  EXPECT_EQ(open_descriptors(), before) << "no eventfd";
  EXPECT_FALSE(ring_bell(kTheirs));
  write_letter(mailbox_, 0, {one.get()});
  write_letter(mailbox_, kTheirs, {});
  opened();
  EXPECT_EQ(open_descriptors(), before) << "no number, no descriptor";
  for (int i = 0; i < 5; ++i) write_letter(mailbox_, 0, {one.get(), other.get(), no_bell.get()});
  opened();
  EXPECT_EQ(open_descriptors(), before) << "several descriptors";
}

TEST_F(EventBell, ThoseOfOthersHaveABound) {
  ASSERT_NE(mailbox_, 0U);
  const Fd theirs(::eventfd(0, EFD_NONBLOCK));
  const long before = open_descriptors();
  constexpr std::uint64_t kLetters = 2000, kMostHeld = 256;
  for (std::uint64_t i = 1; i <= kLetters; ++i) {
    write_letter(mailbox_, kTheirs + (i << 8), {theirs.get()});
    EXPECT_TRUE(ring_bell(kTheirs + (i << 8)));
  }
  EXPECT_LE(open_descriptors(), before + static_cast<long>(kMostHeld));
  give_up_bells();
  EXPECT_EQ(open_descriptors(), before - 1) << "the mailbox has gone too";
  EXPECT_NE(own_mailbox(), mailbox_);
  EXPECT_EQ(open_descriptors(), before);
}

// dup2() over a number of ours: the bell goes on with another, and what has the number now is left alone.
TEST_F(EventBell, MovesOutOfTheWay) {
  BellOfThread asleep;
  ASSERT_NE(asleep.id(), 0U);
  const int former = asleep.fd();
  const int moved = make_internal(::dup(former));
  ASSERT_GE(moved, 0);
  bell_moved(former, moved);
  forget_internal(former);
  const Fd other(::eventfd(0, EFD_NONBLOCK));
  ASSERT_EQ(::dup2(other.get(), former), former);
  EXPECT_TRUE(ring_bell(asleep.id()));
  EXPECT_TRUE(has_rung(moved));
  EXPECT_FALSE(has_rung(former));
  ::close(former);
}

// There was no other number: the next sleep has another bell, and the former place is not lost.
TEST_F(EventBell, OneThatLostItsDescriptorIsReplaced) {
  std::uint64_t first = 0;
  for (int i = 0; i < 600; ++i) {
    BellOfThread asleep;
    ASSERT_NE(asleep.id(), 0U) << "after " << i;
    ASSERT_NE(asleep.id(), first);
    first = asleep.id();
    const int fd = asleep.fd();
    bell_moved(fd, -1);
    close_internal(fd);
    EXPECT_FALSE(ring_bell(first)) << "there is nothing to write to";
  }
}

// Whoever is rung for was disarmed before: nothing may end a thread in between.
TEST_F(EventBell, ACancelledThreadRings) {
  BellOfThread asleep;
  ASSERT_NE(asleep.id(), 0U);
  struct Given {
    std::uint64_t id;
    bool rung;
  } given{asleep.id(), false};
  const auto cancelled = [](void* argument) -> void* {
    auto* const mine = static_cast<Given*>(argument);
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    ::pthread_cancel(::pthread_self());
    ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    mine->rung = ring_bell(mine->id);
    ::pthread_testcancel();
    return nullptr;
  };
  pthread_t thread{};
  void* result = nullptr;
  ASSERT_EQ(::pthread_create(&thread, nullptr, cancelled, &given), 0);
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(given.rung);
  EXPECT_TRUE(has_rung(asleep.fd()));
}

// Bells stay with the process: a thread that ends leaves its own to the next.
TEST_F(EventBell, AThreadLeavesItsBellToTheNext) {
  const auto in_thread = [] {
    std::uint64_t id = 0;
    pthread_t thread{};
    const auto body = [](void* argument) -> void* {
      *static_cast<std::uint64_t*>(argument) = BellOfThread().id();
      return nullptr;
    };
    EXPECT_EQ(::pthread_create(&thread, nullptr, body, &id), 0);
    EXPECT_EQ(::pthread_join(thread, nullptr), 0);
    return id;
  };
  const std::uint64_t first = in_thread();
  EXPECT_NE(first, 0U);
  EXPECT_EQ(in_thread(), first);
}

}  // namespace
}  // namespace viaduct::sockets
