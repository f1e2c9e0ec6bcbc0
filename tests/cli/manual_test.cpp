// The manual page and docs/command.md tell the truth about settings and paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/config.hpp"
#include "cli/probe.hpp"

namespace viaduct::cli {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(VIADUCT_SOURCE_DIR) + "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Manual, ListsEverySettingWithItsDefault) {
  const std::string page = text_of("man/viaduct.1");
  for (const Setting& setting : settings())
    EXPECT_THAT(page, HasSubstr("\n" + std::string(setting.name) + "|" + std::string(setting.fallback) + "|"));
}

TEST(Manual, DescribesEveryPath) {
  const std::string page = text_of("docs/command.md");
  for (const Finding& finding : probe_everything()) EXPECT_THAT(page, HasSubstr("`" + finding.name + "`"));
}

}  // namespace
}  // namespace viaduct::cli
