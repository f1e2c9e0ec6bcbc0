// The C functions of links: what a program sees.
#include <viaduct/adma.h>

#include "copy/link_pair.hpp"

namespace viaduct::copy::testing {
namespace {

std::string fresh_name(const char* what) {
  return std::string("api-") + what + "-" + std::to_string(::getpid());
}

TEST(LinkApi, ListenAcceptConnectTransferClose) {
  HangGuard guard;
  const std::string name = fresh_name("meet");
  Child peer([&] {
    adma_link* const link = adma_connect(name.c_str(), 20'000);  // before anybody listens
    CHILD_EXPECT(link != nullptr);
    auto* const memory = static_cast<char*>(adma_alloc(4096));
    CHILD_EXPECT(adma_read(link, memory, 4096) == 6);
    CHILD_EXPECT(std::strcmp(memory, "hello") == 0);
    std::strcpy(memory, "and back");
    const adma_cookie_t cookie = adma_iwrite(link, memory, 4096);
    CHILD_EXPECT(cookie >= 0);
    std::size_t moved = 0;
    CHILD_EXPECT(adma_wait(link, cookie, &moved) == 0 && moved == 100);
    CHILD_EXPECT(std::string_view(adma_link_path(link)) == "mapped");
    adma_close(link);
    adma_free(memory);
    return 0;
  });
  const int listener = adma_listen(name.c_str());
  ASSERT_GE(listener, 0);
  adma_link* const link = adma_accept(listener, 20'000);
  ASSERT_NE(link, nullptr);
  ::close(listener);
  EXPECT_EQ(adma_write(link, "hello", 6), 6);
  auto* const answer = static_cast<char*>(adma_alloc(100));
  const adma_cookie_t cookie = adma_iread(link, answer, 100);
  ASSERT_GE(cookie, 0);
  std::size_t moved = 1;
  int ended;
  while ((ended = adma_icheck(link, cookie, &moved)) == 0) EXPECT_EQ(moved, 0u);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(moved, 100u);
  EXPECT_STREQ(answer, "and back");
  EXPECT_EQ(peer.wait(), 0);
  errno = 0;
  EXPECT_EQ(adma_read(link, answer, 1), -1);
  EXPECT_EQ(errno, ECONNRESET);
  adma_close(link);
  adma_free(answer);
}

class LinkCookies : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    std::thread other([&] { second_ = adma_attach(pair.second.release(), 20'000); });
    first_ = adma_attach(pair.first.release(), 20'000);
    other.join();
    ASSERT_TRUE(first_ != nullptr && second_ != nullptr);
  }
  void TearDown() override {
    adma_close(first_);
    adma_close(second_);
  }
  int error_of(int result) { return result == -1 ? errno : 0; }

  HangGuard guard_;
  adma_link* first_ = nullptr;
  adma_link* second_ = nullptr;
};

TEST_F(LinkCookies, UnknownOldAndForeignOnesAreRefused) {
  for (const adma_cookie_t cookie : {adma_cookie_t{-1}, adma_cookie_t{0}, adma_cookie_t{1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(error_of(adma_icheck(first_, cookie, nullptr)), EINVAL);
    EXPECT_EQ(error_of(adma_wait(first_, cookie, nullptr)), EINVAL);
  }
  char byte = 0;
  const adma_cookie_t reading = adma_iread(first_, &byte, 1);
  EXPECT_EQ(error_of(adma_icheck(second_, reading, nullptr)), EINVAL) << "of another link";
  EXPECT_EQ(error_of(adma_icheck(first_, reading + 1, nullptr)), EINVAL) << "not posted yet";
  EXPECT_EQ(adma_icheck(first_, reading, nullptr), 0);
  EXPECT_EQ(adma_write(second_, "x", 1), 1);
  EXPECT_EQ(adma_wait(first_, reading, nullptr), 0);
  EXPECT_EQ(error_of(adma_wait(first_, reading, nullptr)), EINVAL) << "its end was reported";
  EXPECT_EQ(error_of(adma_icheck(first_, reading, nullptr)), EINVAL);
}

TEST_F(LinkCookies, BadArguments) {
  char byte = 0;
  EXPECT_EQ(error_of(static_cast<int>(adma_iread(first_, nullptr, 1))), EFAULT);
  EXPECT_EQ(error_of(static_cast<int>(adma_write(first_, nullptr, 1))), EFAULT);
  EXPECT_EQ(error_of(static_cast<int>(adma_read(nullptr, &byte, 1))), EINVAL);
  EXPECT_EQ(error_of(static_cast<int>(adma_iwrite(first_, &byte, SIZE_MAX))), EINVAL);
  EXPECT_EQ(error_of(adma_wait(nullptr, 1, nullptr)), EINVAL);
  EXPECT_EQ(error_of(adma_icheck(nullptr, 1, nullptr)), EINVAL);
  adma_close(nullptr);
  EXPECT_EQ(adma_attach(-1, 0), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(LinkCookies, UnmappedMemoryOfThePeerIsAnErrorForBoth) {
  char bytes[8] = {};
  const adma_cookie_t reading = adma_iread(first_, bytes, sizeof bytes);
  EXPECT_EQ(adma_write(second_, reinterpret_cast<const void*>(8), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(error_of(adma_wait(first_, reading, nullptr)), EFAULT);
}

TEST_F(LinkCookies, InAChildTheLinkIsUnknown) {
  char byte = 0;
  const adma_cookie_t reading = adma_iread(first_, &byte, 1);
  Child child([&] {
    CHILD_EXPECT(adma_icheck(first_, reading, nullptr) == -1 && errno == EINVAL);
    CHILD_EXPECT(adma_iread(first_, &byte, 1) == -1 && errno == EINVAL);
    adma_close(first_);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(adma_write(second_, "y", 1), 1);
  EXPECT_EQ(adma_wait(first_, reading, nullptr), 0);
  EXPECT_EQ(byte, 'y');
}

TEST(LinkApi, NothingIsLeftBehind) {
  const int before = viaduct::testing::open_descriptors();
  {
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    adma_link* second = nullptr;
    std::thread other([&] { second = adma_attach(pair.second.release(), 20'000); });
    adma_link* const first = adma_attach(pair.first.release(), 20'000);
    other.join();
    void* const memory = adma_alloc(2 << 20);
    (void)adma_iwrite(first, memory, 2 << 20);
    char byte;
    EXPECT_EQ(adma_read(second, &byte, 1), 1);
    adma_close(first);
    adma_close(second);
    adma_free(memory);
  }
  EXPECT_EQ(viaduct::testing::open_descriptors(), before);
}

}  // namespace
}  // namespace viaduct::copy::testing
