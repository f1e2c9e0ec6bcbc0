#include "base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <initializer_list>

#include "base/child.hpp"

namespace viaduct {
namespace {

using testing::open_descriptors;

bool closes_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

TEST(Fd, ClosesWhatItOwnsOnce) {
  const int before = open_descriptors();
  {
    Fd first(::dup(0));
    Fd second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT: what is left is the question
    ASSERT_TRUE(second);
    second = Fd(::dup(0));
    EXPECT_EQ(open_descriptors(), before + 1);
    Fd& itself = second;
    second = std::move(itself);
    EXPECT_TRUE(second) << "assigning to itself keeps it";
    const int released = second.release();
    EXPECT_EQ(open_descriptors(), before + 1);
    ::close(released);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Fd, PairsAreNotInheritedByOtherPrograms) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  const auto sockets = make_socket_pair(SOCK_STREAM);
  ASSERT_TRUE(sockets);
  for (const Fd* fd : std::initializer_list<const Fd*>{&pipe->first, &pipe->second, &sockets->first, &sockets->second})
    EXPECT_TRUE(closes_on_exec(fd->get()));
  ASSERT_EQ(::write(pipe->second.get(), "x", 1), 1) << "second writes";
  char c = 0;
  ASSERT_EQ(::read(pipe->first.get(), &c, 1), 1) << "first reads";
}

}  // namespace
}  // namespace viaduct
