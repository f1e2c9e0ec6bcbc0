// Memory of peers: reading, writing, atomics; what is refused.
#include <complex>

#include "fabric/side.hpp"

namespace viaduct::fabric::testing {
namespace {

constexpr std::uint64_t kAll = FI_REMOTE_READ | FI_REMOTE_WRITE;

class FabricMemory : public ::testing::Test {
 protected:
  int error_of_read(std::uint64_t key, std::uint64_t address, std::size_t length) {
    std::vector<char> got(length);
    FI_OK(fi_read(left_.ep, got.data(), length, nullptr, to_right_, address, key, nullptr));
    return left_.next_error(&right_).err;
  }
  HangGuard guard_;
  Side left_, right_;
  fi_addr_t to_right_ = left_.know(right_);
};

TEST_F(FabricMemory, IsWrittenAndRead) {
  std::vector<char> memory(2 << 20);
  right_.open_memory(memory.data(), memory.size(), 42, kAll);
  int context = 0;
  for (const std::size_t size : {1, 100, 5000, 100'000, 1 << 20}) {
    const std::vector<char> bytes = pattern(size, 4);
    FI_OK(fi_write(left_.ep, bytes.data(), size, nullptr, to_right_, 777, 42, &context));
    fi_cq_tagged_entry entry = left_.next(&right_);
    EXPECT_EQ(entry.op_context, &context);
    EXPECT_EQ(entry.flags, std::uint64_t{FI_RMA | FI_WRITE});
    EXPECT_EQ(std::memcmp(memory.data() + 777, bytes.data(), size), 0) << size;
    std::vector<char> got(size);
    FI_OK(fi_read(left_.ep, got.data(), size, nullptr, to_right_, 777, 42, &context));
    entry = left_.next(&right_);
    EXPECT_EQ(entry.flags, std::uint64_t{FI_RMA | FI_READ});
    EXPECT_EQ(got, bytes);
  }
}

TEST_F(FabricMemory, AWriteWithDataIsTold) {
  std::vector<char> memory(100);
  right_.open_memory(memory.data(), memory.size(), 1, kAll);
  FI_OK(fi_writedata(left_.ep, "told", 5, nullptr, 99, to_right_, 10, 1, nullptr));
  (void)left_.next(&right_);
  const fi_cq_tagged_entry entry = right_.next(&left_);
  EXPECT_EQ(entry.data, 99u);
  EXPECT_EQ(entry.flags, std::uint64_t{FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA});
  EXPECT_STREQ(memory.data() + 10, "told");
}

TEST_F(FabricMemory, WhatIsNotOpenedIsNotReached) {
  std::vector<char> memory(4096);
  right_.open_memory(memory.data(), memory.size(), 1, FI_REMOTE_READ);
  EXPECT_EQ(error_of_read(2, 0, 8), FI_EACCES) << "no such key";
  EXPECT_EQ(error_of_read(1, 4090, 8), FI_EINVAL) << "past its end";
  FI_OK(fi_write(left_.ep, "x", 2, nullptr, to_right_, 0, 1, nullptr));
  EXPECT_EQ(left_.next_error(&right_).err, FI_EACCES) << "it may only be read";
  EXPECT_EQ(memory[0], 0);
  fid_mr* again = nullptr;
  EXPECT_EQ(fi_mr_reg(right_.domain, memory.data(), 8, kAll, 0, 1, 0, &again, nullptr), -FI_ENOKEY);
}

TEST_F(FabricMemory, AKeyThatIsUsedAgainMeansTheNewMemory) {
  std::vector<char> first(64, 'a'), second(64, 'b');
  fid_mr* const region = right_.open_memory(first.data(), first.size(), 7, kAll);
  char got[4] = {};
  FI_OK(fi_read(left_.ep, got, 4, nullptr, to_right_, 0, 7, nullptr));
  (void)left_.next(&right_);
  EXPECT_EQ(got[0], 'a');
  right_.close_memory(region);
  EXPECT_EQ(error_of_read(7, 0, 4), FI_EACCES);
  right_.open_memory(second.data(), second.size(), 7, kAll);
  FI_OK(fi_read(left_.ep, got, 4, nullptr, to_right_, 0, 7, nullptr));
  (void)left_.next(&right_);
  EXPECT_EQ(got[0], 'b');
}

TEST_F(FabricMemory, AtomicsDoWhatTheySay) {
  std::int64_t values[4] = {10, 20, 30, 40};
  right_.open_memory(values, sizeof values, 5, kAll);
  const std::int64_t by[4] = {1, 2, 3, 4};
  FI_OK(fi_atomic(left_.ep, by, 4, nullptr, to_right_, 0, 5, FI_INT64, FI_SUM, nullptr));
  EXPECT_EQ(left_.next(&right_).flags, std::uint64_t{FI_ATOMIC | FI_WRITE});
  EXPECT_EQ(values[0], 11);
  EXPECT_EQ(values[3], 44);
  std::int64_t before = 0;
  const std::int64_t least = 5;
  FI_OK(fi_fetch_atomic(left_.ep, &least, 1, nullptr, &before, nullptr, to_right_, 8, 5, FI_INT64, FI_MIN, nullptr));
  EXPECT_EQ(left_.next(&right_).flags, std::uint64_t{FI_ATOMIC | FI_READ});
  EXPECT_EQ(before, 22);
  EXPECT_EQ(values[1], 5);
  const std::int64_t compare = 33, swap = -1;
  FI_OK(fi_compare_atomic(left_.ep, &swap, 1, nullptr, &compare, nullptr, &before, nullptr, to_right_, 16, 5, FI_INT64,
                          FI_CSWAP, nullptr));
  (void)left_.next(&right_);
  EXPECT_EQ(before, 33);
  EXPECT_EQ(values[2], -1);
  FI_OK(fi_compare_atomic(left_.ep, &swap, 1, nullptr, &compare, nullptr, &before, nullptr, to_right_, 24, 5, FI_INT64,
                          FI_CSWAP, nullptr));
  (void)left_.next(&right_);
  EXPECT_EQ(values[3], 44) << "it was something else";
  std::int64_t read[2] = {};
  FI_OK(fi_fetch_atomic(left_.ep, nullptr, 2, nullptr, read, nullptr, to_right_, 0, 5, FI_INT64, FI_ATOMIC_READ,
                        nullptr));
  (void)left_.next(&right_);
  EXPECT_EQ(read[0], 11);
  EXPECT_EQ(read[1], 5);
  fi_atomic_attr attributes{};
  FI_OK(fi_query_atomic(left_.domain, FI_DOUBLE, FI_SUM, &attributes, 0));
  EXPECT_EQ(attributes.size, sizeof(double));
  EXPECT_GE(attributes.count, 64u);
  EXPECT_EQ(fi_query_atomic(left_.domain, FI_DOUBLE, FI_BOR, &attributes, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_atomic(left_.ep, by, 4000, nullptr, to_right_, 0, 5, FI_INT64, FI_SUM, nullptr), -FI_EINVAL);
}

TEST_F(FabricMemory, OfOnesOwn) {
  const fi_addr_t self = left_.know(left_);
  char memory[16] = {};
  left_.open_memory(memory, sizeof memory, 3, kAll);
  FI_OK(fi_write(left_.ep, "own", 4, nullptr, self, 0, 3, nullptr));
  (void)left_.next();
  EXPECT_STREQ(memory, "own");
  std::uint32_t count = 5;
  left_.open_memory(&count, sizeof count, 4, kAll);
  const std::uint32_t more = 2;
  FI_OK(fi_atomic(left_.ep, &more, 1, nullptr, self, 0, 4, FI_UINT32, FI_PROD, nullptr));
  (void)left_.next();
  EXPECT_EQ(count, 10u);
}

TEST(FabricMemoryOfAProcess, IsReachedWithoutItsProgram) {
  HangGuard guard;
  Side left;
  const auto names = make_pipe();
  Child owner([&] {
    Side mine;
    std::vector<char> memory = pattern(1 << 20, 8);
    mine.open_memory(memory.data(), memory.size(), 1, kAll);
    const std::vector<char> name = mine.name();
    CHILD_EXPECT(::write(names->second.get(), name.data(), name.size()) == static_cast<ssize_t>(name.size()));
    char end[4];
    CHILD_EXPECT(fi_recv(mine.ep, end, 4, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    (void)mine.next();
    return memory[5] == 'w' ? 0 : 1;
  });
  std::vector<char> name(sizeof(sockaddr_in));
  ASSERT_EQ(::read(names->first.get(), name.data(), name.size()), static_cast<ssize_t>(name.size()));
  const fi_addr_t to = left.know(name);
  std::vector<char> got(1 << 20);
  FI_OK(fi_read(left.ep, got.data(), got.size(), nullptr, to, 0, 1, nullptr));
  (void)left.next();
  EXPECT_EQ(got, pattern(1 << 20, 8));
  FI_OK(fi_write(left.ep, "w", 1, nullptr, to, 5, 1, nullptr));
  (void)left.next();
  FI_OK(fi_send(left.ep, "e", 2, nullptr, to, nullptr));
  EXPECT_EQ(owner.wait(), 0);
}

}  // namespace
}  // namespace viaduct::fabric::testing
