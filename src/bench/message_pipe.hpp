// One direction of something that carries messages between two processes, in all its kinds; and a Link of two of them
// with the partner process at the other end. Objects are made before the fork: each process then uses its own end.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_ring.hpp"
#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/copy_loop.hpp"
#include "base/slot_ring.hpp"
#include "base/waiter.hpp"
#include "bench/partner.hpp"

namespace viaduct::bench {

class Pipe {
 public:
  virtual ~Pipe() = default;
  virtual void send(std::span<const std::byte> message) = 0;
  virtual void receive(std::span<std::byte> message) = 0;
};

// The floor: a flag on one line, the payload beside it.
class CacheLine final : public Pipe {
 public:
  explicit CacheLine(std::byte* memory) : flag_(*reinterpret_cast<std::atomic<std::uint64_t>*>(memory)) {}
  void send(std::span<const std::byte>) override { flag_.store(++sent_, std::memory_order_release); }
  void receive(std::span<std::byte>) override {
    ++received_;
    while (flag_.load(std::memory_order_acquire) != received_) continue;
  }

 private:
  std::atomic<std::uint64_t>& flag_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

inline std::uint64_t spin_bound_ns() {
  return Config::process().number("VIADUCT_SPIN_US") * 1000;
}

class SlotPipe final : public Pipe {
 public:
  static constexpr SlotRingGeometry kGeometry{64, 256};

  // With a spin bound of 0 each wait sleeps at once.
  explicit SlotPipe(std::span<std::byte> memory, SlotRingGeometry geometry = kGeometry,
                    std::uint64_t spin_ns = spin_bound_ns())
      : producer_(*SlotProducer::attach(memory, geometry)),
        consumer_(*SlotConsumer::attach(memory, geometry)),
        waiter_(spin_ns) {}

  void send(std::span<const std::byte> message) override {
    while (producer_.try_push(0, message) != RingState::ok)
      waiter_.wait(producer_.shared().space, futex_, Deadline::never(), [&] { return producer_.has_space(); });
    producer_.shared().data.wake_if_armed();
  }
  void receive(std::span<std::byte> message) override {
    SlotConsumer::Message got;
    if (consumer_.try_peek(got) != RingState::ok) {
      consumer_.publish_head();
      waiter_.wait(consumer_.shared().data, futex_, Deadline::never(), [&] { return consumer_.has_data(); });
      (void)consumer_.try_peek(got);
    }
    std::memcpy(message.data(), got.payload.data(), std::min(message.size(), got.payload.size()));
    if (consumer_.release()) consumer_.shared().space.wake_if_armed();
  }

 private:
  SlotProducer producer_;
  SlotConsumer consumer_;
  FutexSleeper futex_;
  Waiter waiter_;
};

class BytePipe final : public Pipe {
 public:
  BytePipe(std::span<std::byte> memory, std::size_t capacity)
      : producer_(*ByteProducer::attach(memory, capacity)), consumer_(*ByteConsumer::attach(memory, capacity)) {}

  void send(std::span<const std::byte> message) override {
    for (;;) {
      message = message.subspan(producer_.write(message));
      producer_.shared().data.wake_if_armed();
      if (message.empty()) return;
      waiter_.wait(producer_.shared().space, futex_, Deadline::never(), [&] { return producer_.bytes_free() > 0; });
    }
  }
  void receive(std::span<std::byte> message) override {
    for (;;) {
      message = message.subspan(consumer_.read(message));
      consumer_.shared().space.wake_if_armed();
      if (message.empty()) return;
      waiter_.wait(consumer_.shared().data, futex_, Deadline::never(), [&] { return consumer_.bytes_ready() > 0; });
    }
  }

 private:
  ByteProducer producer_;
  ByteConsumer consumer_;
  FutexSleeper futex_;
  Waiter waiter_{spin_bound_ns()};
};

// The floor of a stream: two bare copies, into one of a few places and out of it, and a flag for each place. Nobody
// sleeps, nothing is checked.
class TwoCopies final : public Pipe {
 public:
  static constexpr std::size_t bytes() { return kPlaces * (kCacheLine + kPlace); }

  explicit TwoCopies(std::byte* memory) : flags_(memory), places_(memory + kPlaces * kCacheLine) {}

  void send(std::span<const std::byte> message) override {
    for (; !message.empty(); ++sent_) {
      const std::size_t size = std::min(message.size(), kPlace);
      auto& full = flag(sent_);
      while (full.load(std::memory_order_acquire) != 0) cpu_relax();
      copy_through_ring(place(sent_), message.data(), size);
      full.store(1, std::memory_order_release);
      message = message.subspan(size);
    }
  }
  void receive(std::span<std::byte> message) override {
    for (; !message.empty(); ++received_) {
      const std::size_t size = std::min(message.size(), kPlace);
      auto& full = flag(received_);
      while (full.load(std::memory_order_acquire) == 0) cpu_relax();
      copy_through_ring(message.data(), place(received_), size);
      full.store(0, std::memory_order_release);
      message = message.subspan(size);
    }
  }

 private:
  static constexpr std::size_t kPlaces = 8, kPlace = 64 << 10;

  std::atomic<std::uint32_t>& flag(std::uint64_t turn) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(flags_ + turn % kPlaces * kCacheLine);
  }
  std::byte* place(std::uint64_t turn) { return places_ + turn % kPlaces * kPlace; }

  std::byte* flags_;
  std::byte* places_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

// A kernel descriptor pair: a pipe, a UNIX socket; blocking as programs use it, or spinning on it.
class FdPipe final : public Pipe {
 public:
  explicit FdPipe(FdPair ends) : ends_(std::move(ends)) {}
  static FdPair spinning(FdPair ends) {
    for (const int fd : {ends.first.get(), ends.second.get()}) (void)::fcntl(fd, F_SETFL, O_NONBLOCK);
    return ends;
  }

  void send(std::span<const std::byte> message) override {
    while (!message.empty())
      if (const ssize_t n = ::write(ends_.second.get(), message.data(), message.size()); n > 0)
        message = message.subspan(static_cast<std::size_t>(n));
  }
  void receive(std::span<std::byte> message) override {
    while (!message.empty())
      if (const ssize_t n = ::read(ends_.first.get(), message.data(), message.size()); n > 0)
        message = message.subspan(static_cast<std::size_t>(n));
  }

 private:
  FdPair ends_;
};

// Two directions and the partner that answers on them.
class Link {
 public:
  Link(std::unique_ptr<Pipe> there, std::unique_ptr<Pipe> back, std::size_t size)
      : there_(std::move(there)), back_(std::move(back)), message_(size) {}

  Status connect(bool answers, int processor) {
    auto partner = Partner::fork(processor, [this, answers](std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) {
        there_->receive(message_);
        if (answers) back_->send(message_);
      }
      if (!answers) back_->send(std::span(message_).first(kAcknowledgement));
    });
    if (!partner) return partner.error();
    partner_ = std::make_unique<Partner>(std::move(*partner));
    return {};
  }

  // Half a round trip, in nanoseconds.
  double one_way_ns(std::uint64_t count) {
    return timed(count,
                 [&] {
                   for (std::uint64_t i = 0; i < count; ++i) {
                     there_->send(message_);
                     back_->receive(message_);
                   }
                 }) /
           2;
  }

  // A stream of messages, acknowledged once at the end: nanoseconds per message.
  double per_message_ns(std::uint64_t count) {
    return timed(count, [&] {
      for (std::uint64_t i = 0; i < count; ++i) there_->send(message_);
      back_->receive(std::span(message_).first(kAcknowledgement));
    });
  }

 private:
  static constexpr std::size_t kAcknowledgement = 8;

  template <class Work>
  double timed(std::uint64_t count, Work&& work) {
    partner_->start(count);
    const std::uint64_t start = Clock::steady().now_ns();
    work();
    const std::uint64_t end = Clock::steady().now_ns();
    partner_->finish();
    return static_cast<double>(end - start) / static_cast<double>(count);
  }

  std::unique_ptr<Pipe> there_;
  std::unique_ptr<Pipe> back_;
  std::vector<std::byte> message_;
  std::unique_ptr<Partner> partner_;
};

}  // namespace viaduct::bench
