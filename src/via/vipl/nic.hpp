// An open adapter: what belongs to one VipOpenNic, and who does its work.
//
// Progress (progress.cpp): there is no thread. One caller at a time leads: it looks at the ready queue of all
// attended VIs, and if it has to sleep it sleeps there. Others who wait sleep on a futex and are woken when something
// of theirs completes or when somebody has to lead (leader_protocol.hpp).
#pragma once

#include <viaduct/vipl.h>
#include <viaduct/via.hpp>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/waiter.hpp"
#include "via/port/leadership.hpp"
#include "via/port/port.hpp"
#include "via/vipl/cq.hpp"
#include "via/vipl/effects.hpp"
#include "via/vipl/handles.hpp"
#include "via/vipl/memory.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

class Notifier;
struct Request;

constexpr std::size_t kMostTransfer = std::size_t{16} << 20;
constexpr std::size_t kMostRegisteredBytes = std::size_t{1} << 46;
constexpr std::uint32_t kMostTags = 65536;

struct Ptag {
  Nic* nic;
  std::uint64_t number;
};

class Nic : public std::enable_shared_from_this<Nic> {
 public:
  static Result<std::shared_ptr<Nic>> open(std::string name);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  VIP_NIC_HANDLE handle = nullptr;
  void attributes(VIP_NIC_ATTRIBUTES& attributes) const;
  const std::shared_ptr<via::Port>& port() const { return port_; }
  Registrations& registrations() { return port_->registrations(); }
  const std::array<VIP_UINT8, 4>& host() const { return host_; }

  // ---- protection tags; NULL is none: a VI that has it may use memory of every tag
  VIP_PROTECTION_HANDLE create_tag();
  VIP_RETURN destroy_tag(VIP_PROTECTION_HANDLE tag);
  bool tag_number(VIP_PROTECTION_HANDLE tag, std::uint64_t& number) const;
  VIP_PROTECTION_HANDLE tag_handle(std::uint64_t number) const;

  // ---- VIs and completion queues of this adapter
  std::shared_ptr<Vi> create_vi(const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag);
  void destroy_vi(Vi& vi);
  std::vector<std::shared_ptr<Vi>> all_vis() const;
  std::atomic<int> cq_count{0};
  bool in_use() const;
  void close();  // gives back what is still held for this adapter: tags, listeners, requests nobody answered
  // Until nobody, no thread here and no peer, copies from or to memory under what was registered before.
  void wait_for_copies();

  // ---- progress
  bool poll(Effects& effects);  // false: somebody else leads
  via::Leadership& leadership() { return leadership_; }
  void stop_leading(const Effects& effects) { effects.of_a_wait ? leadership_.pause() : leadership_.stop(); }

  // By the leader:
  std::error_code attend(Vi& vi);
  void leave_alone(Vi& vi);

  void add_blocked(Vi& vi);
  void remove_blocked(Vi& vi);

  // Calls look() until it says true or the deadline has passed, spinning first and sleeping then. False: timed out.
  // Effects in look() are `of_a_wait`.
  template <class Look>
  bool wait(Deadline deadline, Look look);
  void light_fence() const { asymmetric_ ? fence::compiler_only() : fence::full(); }
  void deliver(Effects& effects) {
    if (effects.wake) [[unlikely]]
      leadership_.tell_waiters();
    if (!effects.errors.empty()) [[unlikely]] {
      leadership_.leave();  // the program's handler may take its time
      report(effects);
    }
  }

  // ---- errors and notify functions
  using ErrorHandler = void (*)(VIP_PVOID, VIP_ERROR_DESCRIPTOR*);
  void set_error_handler(VIP_PVOID context, ErrorHandler handler);
  Notifier& notifier() { return *notifier_; }

 private:
  class LeaderSleeper;

  explicit Nic(std::string name);
  Status start();
  static Waiter& waiter();
  void poll_as_leader(Effects& effects);
  void visit(std::span<const std::uint64_t> tags, Effects& effects);
  void press_on(Effects& effects);
  bool ask_for_room(Effects& effects);
  SleepResult sleep_as_leader(Deadline deadline, const Clock& clock);
  void report(Effects& effects);

  const std::string name_;
  std::array<VIP_UINT8, 4> host_{};
  std::shared_ptr<via::Port> port_;
  bool asymmetric_ = false;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, VIP_PROTECTION_HANDLE> tags_;
  std::uint64_t next_tag_ = 1;
  std::vector<std::shared_ptr<Vi>> vis_;  // by slot
  std::vector<std::uint32_t> free_slots_;

  via::Leadership leadership_;
  std::unique_ptr<via::ReadyQueue> ready_;  // goes before the channels in it
  std::vector<Vi*> leftovers_;              // attended VIs that have more than one visit took
  SpinLock blocked_lock_;
  std::vector<Vi*> blocked_;
  std::atomic<int> blocked_count_{0};

  std::mutex error_mutex_;
  VIP_PVOID error_context_ = nullptr;
  ErrorHandler error_handler_ = nullptr;
  std::unique_ptr<Notifier> notifier_;
};

// Where S4 of the wait protocol happens: in the ready queue for the leader, on the futex for everybody else.
class Nic::LeaderSleeper final : public Sleeper {
 public:
  explicit LeaderSleeper(Nic& nic) : nic_(nic) {}
  SleepResult sleep(WaitWord&, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    return nic_.leadership_.sleep(armed, deadline, clock, [&] { return nic_.sleep_as_leader(deadline, clock); });
  }

 private:
  Nic& nic_;
};

template <class Look>
bool Nic::wait(Deadline deadline, Look look) {
  LeaderSleeper sleeper(*this);
  for (;;) {
    const WaitResult result = waiter().wait(leadership_.word(), sleeper, deadline, look);
    if (result == WaitResult::interrupted) continue;
    leadership_.leave();
    return result == WaitResult::ready;
  }
}

bool ask_for_attention(Vi& vi);

using Nics = HandleTable<Nic, HandleKind::nic>;
using Vis = HandleTable<Vi, HandleKind::vi>;
using Cqs = HandleTable<Cq, HandleKind::cq>;
using Ptags = HandleTable<Ptag, HandleKind::ptag>;
using Requests = HandleTable<Request, HandleKind::connection>;

extern constinit Everlasting<Nics> nic_table;
extern constinit Everlasting<Vis> vi_table;
extern constinit Everlasting<Cqs> cq_table;
extern constinit Everlasting<Ptags> ptag_table;
extern constinit Everlasting<Requests> request_table;

inline Nics& nics() {
  return nic_table.table;
}
inline Vis& vis() {
  return vi_table.table;
}
inline Cqs& cqs() {
  return cq_table.table;
}
inline Ptags& ptags() {
  return ptag_table.table;
}
inline Requests& requests() {
  return request_table.table;
}

inline Deadline deadline_after(VIP_ULONG milliseconds) {
  if (milliseconds >= UINT64_MAX / 1'000'000) return Deadline::never();
  return Deadline::after_ns(Clock::steady(), milliseconds * 1'000'000);
}

}  // namespace viaduct::vipl
