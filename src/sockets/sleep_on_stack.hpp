// The sleeps that a thread is in, the innermost first: on its stack. What they have armed is disarmed at their end, and
// where a signal handler jumps (longjmp) out of them, which runs no destructor.
#pragma once

namespace viaduct::sockets {

class SleepOnStack {
 public:
  SleepOnStack() : outer_(innermost) { innermost = this; }
  SleepOnStack(const SleepOnStack&) = delete;
  SleepOnStack& operator=(const SleepOnStack&) = delete;

  // The thread jumps out of all that is on its stack before `target`.
  static void jump(const void* target) {
    while (innermost != nullptr && innermost < target) {
      SleepOnStack* const left = innermost;
      innermost = left->outer_;
      left->disarm();
    }
  }

 protected:
  ~SleepOnStack() { innermost = outer_; }

 private:
  virtual void disarm() = 0;
  SleepOnStack* outer_;
  static inline thread_local SleepOnStack* innermost [[gnu::tls_model("initial-exec")]] = nullptr;
};

}  // namespace viaduct::sockets
