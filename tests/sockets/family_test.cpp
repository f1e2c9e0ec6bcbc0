#include "sockets/family.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/child.hpp"

namespace viaduct::sockets {
namespace {

TEST(Family, IsAloneUntilSomebodyJoins) {
  Family* const family = make_family(::getpid());
  ASSERT_NE(family, nullptr);
  EXPECT_TRUE(sole_member(*family, ::getpid()));
  join_family(*family, ::getpid());  // harmless
  EXPECT_TRUE(sole_member(*family, ::getpid()));
  join_family(*family, ::getppid());
  EXPECT_FALSE(sole_member(*family, ::getpid()));
  leave_family(*family, ::getppid());
  EXPECT_TRUE(sole_member(*family, ::getpid()));
}

TEST(Family, ForgetsTheDead) {
  Family* const family = make_family(::getpid());
  ASSERT_NE(family, nullptr);
  testing::Child child([] { return 0; });
  join_family(*family, child.pid());
  EXPECT_FALSE(sole_member(*family, ::getpid()));  // not waited for: its number is still taken
  child.wait();
  EXPECT_TRUE(sole_member(*family, ::getpid()));
}

TEST(Family, AChildSeesWhatItsParentSays) {
  Family* const family = make_family(::getpid());
  ASSERT_NE(family, nullptr);
  const pid_t parent = ::getpid();
  testing::Child child([family, parent] {
    join_family(*family, ::getpid());
    const bool both = !sole_member(*family, ::getpid());
    leave_family(*family, parent);
    return both && sole_member(*family, ::getpid()) ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Family, MoreThanItCanNameAreACrowd) {
  Family family{};
  for (int i = 0; i <= Family::kMost; ++i) join_family(family, 1000 + i);
  EXPECT_NE(family.crowd.load(), 0U);
  EXPECT_FALSE(sole_member(family, ::getpid()));
}

TEST(Family, NumbersFromSharedMemoryHurtNobody) {
  Family family{};
  family.members[0].store(-1);  // kill(-1) would be everybody
  family.members[1].store(INT32_MIN);
  family.members[2].store(INT32_MAX);
  EXPECT_TRUE(sole_member(family, ::getpid()));
}

TEST(Family, ManyAreMadeWithoutEnd) {
  for (int i = 0; i < 70'000; ++i) {
    Family* const family = make_family(::getpid());
    if (family != nullptr) leave_family(*family, ::getpid());
  }
  EXPECT_NE(make_family(::getpid()), nullptr);
}

}  // namespace
}  // namespace viaduct::sockets
