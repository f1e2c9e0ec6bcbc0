// Who does an adapter's work, and how those who wait sleep.
//
// There is no thread. One caller at a time leads: it looks at the ready queue of all attended VIs, and if it has to
// sleep it sleeps there. Others who wait sleep on a futex and are woken when something of theirs completes or when
// somebody has to lead (leader_protocol.hpp).
//
// Thread safety: what is here belongs to whoever has leadership; poll(), wait() and ask_for_attention() take it, or
// try.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/waiter.hpp"
#include "via/vipl/adapter.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

class Progress {
 public:
  explicit Progress(Adapter& adapter) : adapter_(adapter) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Status start();  // of an adapter that has started

  Adapter& adapter() { return adapter_; }
  bool poll(Effects& effects);  // false: somebody else leads

  // A thread that sleeps is woken through the ready queue. False: the VI could not be put there.
  bool ask_for_attention(Vi& vi);
  // By the leader:
  std::error_code attend(Vi& vi);
  void leave_alone(Vi& vi);

  // Calls look() until it says true or the deadline has passed, spinning first and sleeping then. False: timed out.
  // Effects in look() are `of_a_wait`.
  template <class Look>
  bool wait(Deadline deadline, Look look);

 private:
  class LeaderSleeper;

  static Waiter& waiter();
  void poll_as_leader(Effects& effects);
  void visit(std::span<const std::uint64_t> tags, Effects& effects);
  void press_on(Effects& effects);
  bool ask_for_room(Effects& effects);
  SleepResult sleep_as_leader(Deadline deadline, const Clock& clock);

  Adapter& adapter_;
  std::unique_ptr<via::ReadyQueue> ready_;  // goes before the channels in it
  std::vector<Vi*> leftovers_;              // attended VIs that have more than one visit took
};

// Where S4 of the wait protocol happens: in the ready queue for the leader, on the futex for everybody else.
class Progress::LeaderSleeper final : public Sleeper {
 public:
  explicit LeaderSleeper(Progress& progress) : progress_(progress) {}
  SleepResult sleep(WaitWord&, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    return progress_.adapter_.leadership().sleep(armed, deadline, clock,
                                                 [&] { return progress_.sleep_as_leader(deadline, clock); });
  }

 private:
  Progress& progress_;
};

template <class Look>
bool Progress::wait(Deadline deadline, Look look) {
  LeaderSleeper sleeper(*this);
  for (;;) {
    const WaitResult result = waiter().wait(adapter_.leadership().word(), sleeper, deadline, look);
    if (result == WaitResult::interrupted) continue;
    adapter_.leadership().leave();
    return result == WaitResult::ready;
  }
}

}  // namespace viaduct::vipl
