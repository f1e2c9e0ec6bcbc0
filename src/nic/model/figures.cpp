#include "nic/model/figures.hpp"

#include <algorithm>

namespace viaduct::nic::model {

Variant variant_of(Who who) {
  switch (who) {
    case kRelease:
      return release();
    case kReleaseBoth:
      return release_sram_both();
    case kParallel:
      return parallel();
    case kParallelCode:
      return parallel_sram_code();
    case kParallelData:
      return parallel_sram_data();
    default:
      return parallel_sram_both();
  }
}

namespace {

double measure(const Card& card, Test test, Who who, std::uint32_t size, std::uint64_t packets) {
  const Variant variant = variant_of(who);
  switch (test) {
    case Test::send:
      return megabits(run(card, variant, udp_send(size), packets), size);
    case Test::receive:
      return megabits(run(card, variant, udp_receive(size), packets), size);
    case Test::both:
      return megabits(run(card, variant, udp_both(size), packets), size);
    default:
      return run(card, variant, udp_ping(size), 40).ping_us;  // every round trip is like the next
  }
}

std::size_t index_of(std::uint32_t size) {
  return static_cast<std::size_t>(std::find(kSizes.begin(), kSizes.end(), size) - kSizes.begin());
}

}  // namespace

Figures::Figures(const Card& card, std::uint64_t packets) {
  for (unsigned test = 0; test < 4; ++test)
    for (unsigned who = 0; who < kVariants; ++who)
      for (std::size_t i = 0; i < kSizes.size(); ++i)
        value_[test][who][i] = measure(card, static_cast<Test>(test), static_cast<Who>(who), kSizes[i], packets);
}

double Figures::at(Test test, Who who, std::uint32_t size) const {
  return value_[static_cast<unsigned>(test)][who].at(index_of(size));
}

double Figures::most(Test test, Who who, Who over) const {
  double most = 0;
  for (const std::uint32_t size : kSizes) most = std::max(most, ratio(test, who, over, size));
  return most;
}

double Figures::least(Test test, Who who, Who over) const {
  double least = 1e9;
  for (const std::uint32_t size : kSizes) least = std::min(least, ratio(test, who, over, size));
  return least;
}

double Figures::mean(Test test, Who who, Who over) const {
  double sum = 0;
  for (const std::uint32_t size : kSizes) sum += ratio(test, who, over, size);
  return sum / kSizes.size();
}

std::vector<Point> Figures::points() const {
  std::vector<Point> points;
  for (unsigned test = 0; test < 4; ++test)
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      for (unsigned who = 0; who < kVariants; ++who)
        points.push_back(
            {6 + 2 * static_cast<int>(test), variant_of(static_cast<Who>(who)).name, kSizes[i], value_[test][who][i]});
  return points;
}

}  // namespace viaduct::nic::model
