// SOVIA in every configuration: each byte arrives, whatever the sizes and whoever sends.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "bench/sovia_pair.hpp"
#include "bench/sovia_table.hpp"

namespace viaduct::bench {
namespace {

using Data = SoviaOptions::Data;
using Handling = SoviaOptions::Handling;

constexpr std::size_t kLimit = 2048;

struct Named {
  std::string name;
  SoviaOptions options;
};

std::vector<Named> configurations() {
  std::vector<Named> all;
  for (const SoviaConfiguration& row : sovia_table(kLimit)) all.push_back({row.name, row.options});
  for (const auto& [who, handling] : {std::pair{"handler", Handling::handler}, std::pair{"notify", Handling::notify}})
    all.push_back({std::string(who) + " combining",
                   {.handling = handling, .data = Data::hybrid, .window = 32, .threshold = 16, .combine = true}});
  all.push_back({"odd threshold", {.data = Data::buffered, .window = 7, .threshold = 3}});
  all.push_back({"window of one, combining", {.data = Data::hybrid, .combine = true}});
  all.push_back({"hybrid, kept", {.data = Data::hybrid, .keep_registrations = true, .window = 4, .threshold = 4}});
  all.push_back(
      {"never copied", {.data = Data::hybrid, .window = 32, .threshold = 32, .combine = true, .copy_limit = 0}});
  all.push_back(
      {"three-way, buffered", {.synchronisation = SoviaOptions::Synchronisation::three_way, .data = Data::buffered}});
  return all;
}

// Around every limit there is, then whatever; the same on both sides.
std::vector<std::size_t> sizes(unsigned seed) {
  std::vector<std::size_t> all = {1,     4,     kLimit - 1, kLimit, kLimit + 1, 4,      32767,
                                  32768, 32769, 3,          65536,  100'000,    kLimit, 32768 + kLimit};
  std::mt19937 random(seed);
  for (int i = 0; i < testing::rounds(400); ++i) all.push_back(1 + random() % (i % 8 == 0 ? 40'000 : 600));
  return all;
}

class Sovia : public ::testing::TestWithParam<Named> {};
class SoviaTwoWay : public Sovia {};  // by three-way handshaking one end has to receive

TEST_P(Sovia, CarriesEveryByteOfAStream) {
  constexpr std::size_t kSteps[] = {7, 1000, 40'000};
  for (const std::size_t step : kSteps) {
    std::vector<std::size_t> messages = sizes(1);
    if (step == kSteps[0]) std::erase_if(messages, [](std::size_t size) { return size > 5000; });
    const std::size_t total = std::accumulate(messages.begin(), messages.end(), std::size_t{0});
    SoviaPair pair(GetParam().options, [&](SoviaEnd& end) {
      Reader reader(end, 1);
      CHILD_EXPECT(reader.read(total, step));
      CHILD_EXPECT(reader.at_end());
      return 0;
    });
    Writer writer(pair.here(), 1);
    for (const std::size_t size : messages) writer.write(size);
    EXPECT_EQ(pair.finish(), 0) << "read by " << step;
  }
}

TEST_P(Sovia, AnswersEachMessage) {
  SoviaPair pair(GetParam().options, [](SoviaEnd& end) {
    Reader reader(end, 1);
    Writer writer(end, 2);
    for (const std::size_t size : sizes(2)) {
      CHILD_EXPECT(reader.read(size, size));
      writer.write(size);
    }
    return 0;
  });
  Writer writer(pair.here(), 1);
  Reader reader(pair.here(), 2);
  for (const std::size_t size : sizes(2)) {
    writer.write(size);
    ASSERT_TRUE(reader.read(size, size)) << size;
  }
  EXPECT_EQ(pair.finish(), 0);
}

// Both fill the other's window, and more than a channel holds, before either reads.
TEST_P(SoviaTwoWay, CarriesBothDirectionsAtOnce) {
  constexpr std::size_t kSizes[] = {32768, 5, 3000};
  const std::uint32_t window = GetParam().options.window;
  const auto exchange = [&](SoviaEnd& end, int mine, int theirs) {
    Writer writer(end, mine);
    Reader reader(end, theirs);
    for (int round = 0; round < testing::rounds(20); ++round)
      for (const std::size_t size : kSizes) {
        for (std::uint32_t i = 0; i < window; ++i) writer.write(size);
        if (!reader.read(window * size, size)) return 1;
      }
    return 0;
  };
  SoviaPair pair(GetParam().options, [&](SoviaEnd& end) { return exchange(end, 2, 1); });
  EXPECT_EQ(exchange(pair.here(), 1, 2), 0);
  EXPECT_EQ(pair.finish(), 0);
}

TEST_P(Sovia, ClosesWhileTheOtherEndStillSends) {
  SoviaPair pair(GetParam().options, [](SoviaEnd& end) {
    Writer writer(end, 1);
    for (int i = 0; i < 200; ++i) writer.write(i % 5 == 0 ? 20'000 : 100);
    Reader reader(end, 2);
    CHILD_EXPECT(reader.at_end());
    return 0;
  });
  Reader reader(pair.here(), 1);
  EXPECT_TRUE(reader.read(10, 10));
  EXPECT_EQ(pair.finish(), 0);
}

std::vector<Named> two_way_configurations() {
  std::vector<Named> all = configurations();
  std::erase_if(
      all, [](const Named& each) { return each.options.synchronisation == SoviaOptions::Synchronisation::three_way; });
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Named>& tested) {
  std::string name;
  for (const char c : tested.param.name)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Sovia, ::testing::ValuesIn(configurations()), name_of);
INSTANTIATE_TEST_SUITE_P(All, SoviaTwoWay, ::testing::ValuesIn(two_way_configurations()), name_of);

}  // namespace
}  // namespace viaduct::bench
