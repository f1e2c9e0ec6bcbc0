// Streams and events of the fake driver: a stream is a thread that does what it is given, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace fake_cuda {

// Shared with the work that mentions it, so that it may be destroyed while that is queued.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;

  void reach(std::uint64_t which) {
    const std::lock_guard lock(mutex);
    if (which > reached) reached = which;
    changed.notify_all();
  }
  void wait_for(std::uint64_t which) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= which; });
  }
  std::uint64_t last_recorded() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
  bool complete() {
    const std::lock_guard lock(mutex);
    return reached >= recorded;
  }
};

struct Event {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return work_.empty();
  }
  void wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      std::function<void()>& work = work_.front();  // stays in the queue until it is done
      lock.unlock();
      work();
      lock.lock();
      work_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fake_cuda
