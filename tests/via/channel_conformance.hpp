// What every transport of a channel must do, whatever carries it: the tests know the interface and a factory.
//
// Some hold both ends in one thread. The others give each end a role, which runs in a thread or in a process of its
// own; a role returns 0 or, by CHILD_EXPECT, says where it failed. Transports are in channel_conformance_test.cpp.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/child.hpp"
#include "via/messages.hpp"

namespace viaduct::via::testing {

using Role = std::function<int(Channel&)>;

struct Transport {
  const char* name;
  // Both ends here.
  std::function<ChannelPair(const ChannelOptions&)> pair;
  // One end for each role, each running by itself; each end is closed when its role returns.
  std::function<void(const ChannelOptions&, const Role& near, const Role& far)> run;
  bool shares_memory = false;
};

class ChannelConformance : public ::testing::TestWithParam<Transport> {
 protected:
  ChannelPair pair(const ChannelOptions& options = {}) const { return GetParam().pair(options); }
  bool shares_memory() const { return GetParam().shares_memory; }
  void run(const Role& near, const Role& far, const ChannelOptions& options = {}) const {
    GetParam().run(options, near, far);
  }
  const viaduct::testing::HangGuard guard_;
};

inline std::size_t send_until_full(Channel& channel, std::span<const std::byte> bytes) {
  std::size_t sent = 0;
  while (send_fragment(channel, bytes, 0) == Sent::taken) ++sent;
  return sent;
}

}  // namespace viaduct::via::testing
