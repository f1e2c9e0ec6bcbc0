#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/fd.hpp"

namespace viaduct {
namespace {

using ::testing::HasSubstr;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { log::set_level("warn"); }

  // What `body` writes to descriptor 2.
  template <class Body>
  std::string written_by(Body body) {
    const Fd kept(::dup(2)), capture(::memfd_create("captured", 0));
    ::dup2(capture.get(), 2);
    body();
    ::dup2(kept.get(), 2);
    std::string text(static_cast<std::size_t>(::lseek(capture.get(), 0, SEEK_CUR)), 0);
    EXPECT_EQ(::pread(capture.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }
  static void speak() {
    log::fault("a fault");
    log::notice("a notice");
    log::detail("a detail");
  }
};

TEST_F(LogTest, AFaultIsOneLineWithTheProcess) {
  const std::string text = written_by([] { log::fault("segment 'x': no memory; free some"); });
  EXPECT_EQ(text, "viaduct[" + std::to_string(::getpid()) + "] error: segment 'x': no memory; free some\n");
}

TEST_F(LogTest, WordsAreNotTakenForAFormat) {
  EXPECT_THAT(written_by([] { log::fault("{} %s {0} %n"); }), HasSubstr("error: {} %s {0} %n\n"));
}

TEST_F(LogTest, TheLevelDecidesWhoSpeaks) {
  const auto lines_at = [&](const char* level) {
    log::set_level(level);
    const std::string text = written_by(speak);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines_at("off"), 0);
  EXPECT_EQ(lines_at("error"), 1);
  EXPECT_EQ(lines_at("warn"), 1);
  EXPECT_EQ(lines_at("info"), 2);
  EXPECT_EQ(lines_at("debug"), 3);
  EXPECT_EQ(lines_at("trace"), 3);
}

}  // namespace
}  // namespace viaduct
