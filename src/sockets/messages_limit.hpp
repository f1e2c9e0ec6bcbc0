// The time limit of recvmmsg(): looked at after each message, and what is left of it is handed back.
#pragma once

#include <time.h>

#include "base/clock.hpp"

namespace viaduct::sockets {

class MessagesLimit {
 public:
  // Null: there is none.
  explicit MessagesLimit(timespec* time)
      : time_(time),
        end_(time == nullptr ? Deadline::never() : Deadline::after(Clock::steady(), time->tv_sec, time->tv_nsec)) {}

  bool is_over() {
    if (time_ == nullptr || end_.is_never()) return false;
    const std::uint64_t left = end_.left_ns(Clock::steady().now_ns());
    *time_ = to_timespec(left);
    return left == 0;
  }

 private:
  timespec* time_;
  Deadline end_;
};

}  // namespace viaduct::sockets
