#include "base/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace viaduct {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    home_ = fs::path(::testing::TempDir()) / ("viaduct-config-" + std::to_string(::getpid()));
    fs::create_directories(home_ / ".config/viaduct");
    variables_["HOME"] = home_;
  }
  ~ConfigTest() override { fs::remove_all(home_); }

  std::string write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
    return path;
  }
  std::string write_home_file(const std::string& text) { return write(home_ / ".config/viaduct/config", text); }

  Config::Environment environment() {
    return [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
  }
  Result<Config> read() { return Config::read(environment()); }
  std::string complaint() {
    const auto config = read();
    return config ? "none" : config.error().message();
  }
  static std::string source_of(const Config& config, std::string_view name) {
    for (const auto& value : config.values())
      if (value.setting->name == name) return value.source;
    return "missing";
  }

  fs::path home_;
  std::map<std::string, std::string> variables_;
};

TEST_F(ConfigTest, EveryDefaultIsAcceptable) {
  const auto config = read();
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->values().size(), settings().size());
  for (const Setting& setting : settings()) {
    EXPECT_EQ(config->text(setting.name), setting.fallback);
    // Given explicitly the default passes the same check as any value.
    variables_[std::string(setting.name)] = setting.fallback;
    EXPECT_EQ(complaint(), "none") << setting.name;
  }
}

TEST_F(ConfigTest, EnvironmentOverFileOverDefault) {
  EXPECT_EQ(read()->number("VIADUCT_SPIN_US"), 50u);
  EXPECT_EQ(source_of(*read(), "VIADUCT_SPIN_US"), "default");
  const std::string path = write_home_file("# mine\n\n  spin_us = 7  # short\nlog=debug\r\n");
  EXPECT_EQ(read()->number("VIADUCT_SPIN_US"), 7u);
  EXPECT_EQ(source_of(*read(), "VIADUCT_SPIN_US"), path + ":3");
  EXPECT_EQ(read()->text("VIADUCT_LOG"), "debug");
  variables_["VIADUCT_SPIN_US"] = "9";
  EXPECT_EQ(read()->number("VIADUCT_SPIN_US"), 9u);
  EXPECT_EQ(source_of(*read(), "VIADUCT_SPIN_US"), "environment");
}

TEST_F(ConfigTest, TheNamedFileReplacesTheOneAtHome) {
  write_home_file("spin_us = 7\n");
  variables_["VIADUCT_CONFIG"] = write(home_ / "other", "spin_us = 8\n");
  EXPECT_EQ(read()->number("VIADUCT_SPIN_US"), 8u);
}

TEST_F(ConfigTest, ANamedFileThatCannotBeReadIsAnError) {
  variables_["VIADUCT_CONFIG"] = home_ / "missing";
  ASSERT_FALSE(read());
  EXPECT_EQ(read().error().code(), ENOENT);
  EXPECT_THAT(complaint(), HasSubstr((home_ / "missing").string()));
  variables_["VIADUCT_CONFIG"] = home_;
  EXPECT_THAT(complaint(), HasSubstr("cannot be read")) << "a folder";
}

TEST_F(ConfigTest, AnUnknownLineIsAnErrorThatSaysWhere) {
  const std::string path = write_home_file("spin_us = 7\nspinn_us = 8\n");
  EXPECT_THAT(complaint(), HasSubstr(path + ":2: 'spinn_us' is not a setting"));
  write_home_file("spin_us\n");
  EXPECT_THAT(complaint(), HasSubstr(path + ":1")) << "no value";
}

TEST_F(ConfigTest, BadValuesAreErrorsThatNameTheSettingAndTheRange) {
  for (const char* bad : {"", "x", "-1", "10001", "5K", "1.5", "99999999999999999999"}) {
    variables_["VIADUCT_SPIN_US"] = bad;
    EXPECT_THAT(complaint(), HasSubstr("VIADUCT_SPIN_US: '" + std::string(bad) + "' (environment)")) << bad;
    EXPECT_THAT(complaint(), HasSubstr("0..10000"));
  }
  variables_.erase("VIADUCT_SPIN_US");
  variables_["VIADUCT_LOG"] = "warn|error";
  EXPECT_THAT(complaint(), HasSubstr("VIADUCT_LOG"));
  variables_["VIADUCT_LOG"] = "off";
  variables_["VIADUCT_HUGE_PAGES"] = "maybe";
  EXPECT_THAT(complaint(), HasSubstr("VIADUCT_HUGE_PAGES"));
}

TEST_F(ConfigTest, TheEndsOfTheRangeBelongToIt) {
  for (const std::uint64_t value : {0, 10000}) {
    variables_["VIADUCT_SPIN_US"] = std::to_string(value);
    ASSERT_EQ(complaint(), "none");
    EXPECT_EQ(read()->number("VIADUCT_SPIN_US"), value);
  }
}

TEST_F(ConfigTest, FlagsHaveSeveralSpellings) {
  for (const char* yes : {"on", "1", "yes", "true"}) {
    variables_["VIADUCT_COUNTERS"] = yes;
    EXPECT_TRUE(read()->flag("VIADUCT_COUNTERS")) << yes;
  }
  for (const char* no : {"off", "0", "no", "false"}) {
    variables_["VIADUCT_COUNTERS"] = no;
    EXPECT_FALSE(read()->flag("VIADUCT_COUNTERS")) << no;
  }
}

TEST_F(ConfigTest, ReadLenientlyEveryFaultIsToldAndTheRestCounts) {
  write_home_file("nonsense = 1\nspin_us = many\nhuge_pages = off\n");
  variables_["VIADUCT_LOG"] = "loud";
  std::vector<Error> faults;
  const Config config = Config::read_leniently(environment(), faults);
  EXPECT_EQ(faults.size(), 3u);
  EXPECT_EQ(config.number("VIADUCT_SPIN_US"), 50u);
  EXPECT_EQ(config.text("VIADUCT_LOG"), "warn");
  EXPECT_FALSE(config.flag("VIADUCT_HUGE_PAGES"));
}

TEST(ParseBytes, KnowsUnits) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("2m"), 2u << 20);
  EXPECT_EQ(parse_bytes("3G"), std::uint64_t{3} << 30);
  EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
}

TEST(ParseBytes, RefusesWhatIsNotASize) {
  for (const char* text : {"", "K", "-1", "+1", "1KK", "1 K", " 1", "1.5M", "0x10", "1T", "18446744073709551616",
                           "17179869184G", "18014398509481984K"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

}  // namespace
}  // namespace viaduct
