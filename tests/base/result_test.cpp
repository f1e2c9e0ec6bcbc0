#include "base/result.hpp"

#include <gtest/gtest.h>

namespace viaduct {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error(EINVAL, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  VIADUCT_TRY(const int first, half(value).because("first half"));
  VIADUCT_TRY(const int second, half(first).because("second half"));
  return second;
}

TEST(Result, CarriesTheValue) {
  ASSERT_TRUE(quarter(8));
  EXPECT_EQ(*quarter(8), 2);
}

TEST(Result, TellsTheChainOutermostFirst) {
  const auto result = quarter(6).because("quarter of 6");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "quarter of 6: second half: odd");
  EXPECT_EQ(result.error().code(), EINVAL);
}

TEST(Result, StatusIsOkUnlessToldOtherwise) {
  EXPECT_TRUE(Status());
  const Status failed = Error::from_code(ENOENT, "open x");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "open x: No such file or directory");
}

}  // namespace
}  // namespace viaduct
