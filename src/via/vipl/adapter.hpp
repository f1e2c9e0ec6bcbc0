// An adapter, as those who belong to it know it: virtual interfaces, completion queues, the notify thread. It has what
// all of them share: the port with its registrations, leadership, the list of VIs that wait for room, and where errors
// go. What an adapter offers to programs is in nic.hpp, and who does its work in progress.hpp.
//
// Thread safety: everything may be called from any thread. `blocked_` has a lock of its own, below that of a VI; so has
// the error handler, below nothing.
#pragma once

#include <viaduct/vipl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fence.hpp"
#include "base/spin_lock.hpp"
#include "via/port/leadership.hpp"
#include "via/port/port.hpp"
#include "via/vipl/effects.hpp"
#include "via/vipl/memory.hpp"

namespace viaduct::vipl {

class Vi;

class Adapter : public std::enable_shared_from_this<Adapter> {
 public:
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  VIP_NIC_HANDLE handle = nullptr;
  const std::string& name() const { return name_; }
  const std::shared_ptr<via::Port>& port() const { return port_; }
  Registrations& registrations() { return port_->registrations(); }

  via::Leadership& leadership() { return leadership_; }
  void stop_leading(const Effects& effects) { effects.of_a_wait ? leadership_.pause() : leadership_.stop(); }
  void light_fence() const { asymmetric_ ? fence::compiler_only() : fence::full(); }

  // VIs that wait for room. Under leadership one that is in the list cannot be disconnected.
  void add_blocked(Vi& vi);
  void remove_blocked(Vi& vi);
  bool has_blocked() const { return blocked_count_.load(std::memory_order_relaxed) != 0; }
  std::vector<Vi*> blocked();

  // What is told once no lock is held.
  void deliver(Effects& effects) {
    if (effects.wake) [[unlikely]]
      leadership_.tell_waiters();
    if (!effects.errors.empty()) [[unlikely]] {
      leadership_.leave();  // the program's handler may take its time
      report(effects);
    }
  }
  using ErrorHandler = void (*)(VIP_PVOID, VIP_ERROR_DESCRIPTOR*);
  void set_error_handler(VIP_PVOID context, ErrorHandler handler);

 protected:
  explicit Adapter(std::string name) : name_(std::move(name)) {}
  ~Adapter() = default;
  Status start();

 private:
  void report(Effects& effects);

  const std::string name_;
  std::shared_ptr<via::Port> port_;
  bool asymmetric_ = false;
  via::Leadership leadership_;

  SpinLock blocked_lock_;
  std::vector<Vi*> blocked_;
  std::atomic<int> blocked_count_{0};

  std::mutex error_mutex_;
  VIP_PVOID error_context_ = nullptr;
  ErrorHandler error_handler_ = nullptr;
};

}  // namespace viaduct::vipl
