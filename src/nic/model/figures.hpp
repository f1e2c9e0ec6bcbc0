// Figures 6 to 13: every variant at every size, run once.
#pragma once

#include <array>
#include <span>

#include "viaduct/nic_model.hpp"

namespace viaduct::nic::model {

constexpr std::array<std::uint32_t, 10> kSizes = {18, 100, 200, 400, 600, 800, 1000, 1200, 1400, 1472};
enum class Test { send, receive, both, ping };
enum Who : unsigned { kRelease, kReleaseBoth, kParallel, kParallelCode, kParallelData, kParallelBoth, kVariants };

class Figures {
 public:
  Figures(const Card& card, std::uint64_t packets);

  double at(Test test, Who who, std::uint32_t size) const;  // Mb/s; microseconds
  double ratio(Test test, Who who, Who over, std::uint32_t size) const {
    return at(test, who, size) / at(test, over, size);
  }
  double most(Test test, Who who, Who over) const;  // of that ratio, over all sizes
  double least(Test test, Who who, Who over) const;
  double mean(Test test, Who who, Who over) const;
  double packets_per_s(Test test, Who who, std::uint32_t size) const { return at(test, who, size) * 1e6 / 8 / size; }
  bool on_limit(Test test, Who who, std::uint32_t size) const {
    return at(test, who, size) > 0.99 * ethernet_megabits(size);
  }

  std::vector<Point> points() const;

 private:
  std::array<std::array<std::array<double, kSizes.size()>, kVariants>, 4> value_{};
};

Variant variant_of(Who who);

}  // namespace viaduct::nic::model
