// Explores every interleaving of a few small threads on a machine with store buffers (TSO, what x86 promises).
//
// A model thread is an ordinary function whose only contact with the world are the operations below. It is
// deterministic, so its state is the list of answers it has got: to let it take one more step, the function is run
// again from its start, given the recorded answers, and stopped after the next operation. A state of the whole system
// is thus a value: memory, store buffers, answers. The search visits each reachable value once, which covers all
// schedules; how many schedules that are is counted on the way. A long function says by go_on_from() where what it was
// answered no longer matters: it is run from there then, and states that differ in nothing else are one. A function
// that may go round for ever has to.
//
// The machine:
//   store         goes to the thread's own buffer, a FIFO; moving its oldest entry to memory is a step of its own
//   load          from the own buffer where it holds the address, else from memory
//   rmw           drains the own buffer, then changes memory at once (a locked instruction; also when a CAS fails)
//   fence         drains the own buffer
//   fence_all     drains everybody's buffer: membarrier
//   sleep, wake   a futex: sleep falls asleep only while memory holds the expected value, and only a wake ends it.
//                 Both drain the own buffer, as the kernel's locks do
//   await         looks at memory until it holds a value: one step, taken when it does
//   post, poll    descriptors: poll sleeps while none of its words holds anything, post adds to one and wakes who does
//   lock, unlock  a word that one thread has at a time; who waits for it does not spin
//   at_once       any change of memory, as one locked instruction
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace viaduct::testing {

class Interleaver {
 public:
  using Body = std::function<void(Interleaver&)>;
  using Address = std::uint8_t;
  static constexpr std::size_t kAddresses = 20;

  struct Outcome {
    double schedules = 0;  // complete ones; there may be more than 2^64
    std::size_t states = 0;
    std::size_t sleeps = 0;      // states in which somebody sleeps: without any, nothing was tested
    std::string stuck_schedule;  // the first schedule at whose end somebody sleeps for ever; empty: there is none
  };

  explicit Interleaver(std::vector<Body> bodies) : bodies_(std::move(bodies)) {}

  // Until the first stuck schedule, if there is one; the numbers are complete only if there is none.
  Outcome explore() {
    State start;
    start.threads.resize(bodies_.size());
    outcome_ = {};
    known_.clear();
    outcome_.schedules = visit(start);
    outcome_.states = known_.size();
    return outcome_;
  }

  // The stage a body is at, 0 at first, and the value it has kept for it.
  std::uint32_t stage() const { return state_->threads[running_].stage; }
  std::uint32_t kept() const { return state_->threads[running_].kept; }
  // Ends this run of the body; the next one begins at that stage. At least one operation comes before.
  [[noreturn]] void go_on_from(std::uint32_t stage, std::uint32_t kept = 0) {
    Thread& self = state_->threads[running_];
    self.answers.clear();
    self.stage = stage;
    self.kept = kept;
    throw StepTaken{};
  }

  // What thread bodies call.
  void store(Address address, std::uint32_t value) {
    operation([&](State&, Thread& self) { return self.buffer.push_back({address, value}), 0u; });
  }
  std::uint32_t load(Address address) {
    return operation([&](State& state, Thread& self) {
      for (auto entry = self.buffer.rbegin(); entry != self.buffer.rend(); ++entry)
        if (entry->address == address) return entry->value;
      return state.memory[address];
    });
  }
  std::uint32_t fetch_or(Address address, std::uint32_t bits) {
    return operation([&](State& state, Thread& self) {
      drain(state, self);
      const std::uint32_t before = state.memory[address];
      state.memory[address] |= bits;
      return before;
    });
  }
  std::uint32_t fetch_add(Address address, std::uint32_t by) {
    return operation([&](State& state, Thread& self) {
      drain(state, self);
      const std::uint32_t before = state.memory[address];
      state.memory[address] += by;
      return before;
    });
  }
  std::uint32_t exchange(Address address, std::uint32_t value) {
    return operation([&](State& state, Thread& self) {
      drain(state, self);
      return std::exchange(state.memory[address], value);
    });
  }
  bool compare_exchange(Address address, std::uint32_t from, std::uint32_t to) {
    return operation([&](State& state, Thread& self) {
             drain(state, self);
             if (state.memory[address] != from) return 0u;
             state.memory[address] = to;
             return 1u;
           }) != 0;
  }
  void fence() {
    operation([](State& state, Thread& self) { return drain(state, self), 0u; });
  }
  void fence_all() {
    operation([](State& state, Thread&) {
      for (Thread& thread : state.threads) drain(state, thread);
      return 0u;
    });
  }
  void sleep(Address address, std::uint32_t expected) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      self.asleep = state.memory[address] == expected;
      self.bed = address;
      self.polled = 0;
      return 0u;
    });
  }
  void await(Address address, std::uint32_t value) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      self.awaits = self.asleep = state.memory[address] != value;
      self.bed = address;
      self.polled = 0;
      self.awaited = value;
      return 0u;
    });
  }
  void wake_all(Address address) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      for (Thread& thread : state.threads)
        if (thread.bed == address && !thread.awaits) thread.asleep = false;
      return 0u;
    });
  }
  void post(Address address) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      ++state.memory[address];
      wake_pollers(state, address);
      return 0u;
    });
  }
  void poll(std::initializer_list<Address> any) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      self.fall_asleep_polling();
      for (const Address address : any) {
        self.polled |= bit(address);
        if (state.memory[address] != 0) self.asleep = false;
      }
      return 0u;
    });
  }
  // A stretch under a lock of which nobody else sees the middle: `change(word)`, where word(address) is memory.
  template <class Change>
  std::uint32_t at_once(Change change) {
    return operation([&](State& state, Thread& self) {
      drain(state, self);
      return change([&](Address address) -> std::uint32_t& { return state.memory[address]; });
    });
  }
  void lock(Address address) {
    while (operation([&](State& state, Thread& self) {
             drain(state, self);
             if (std::exchange(state.memory[address], 1) == 0) return 1u;
             self.fall_asleep_polling();
             self.polled = bit(address);
             return 0u;
           }) == 0)
      continue;
  }
  void unlock(Address address) {
    operation([&](State& state, Thread& self) {
      drain(state, self);
      state.memory[address] = 0;
      wake_pollers(state, address);
      return 0u;
    });
  }

 private:
  struct Entry {
    Address address;
    std::uint32_t value;
  };
  struct Thread {
    std::vector<std::uint32_t> answers;
    std::vector<Entry> buffer;
    std::uint32_t stage = 0;
    std::uint32_t kept = 0;
    Address bed = 0;
    std::uint32_t awaited = 0;
    bool asleep = false;
    bool awaits = false;  // asleep until memory holds `awaited`
    bool done = false;
    std::uint32_t polled = 0;  // asleep until something is posted to one of these, a bit each
    void fall_asleep_polling() {
      asleep = true;
      bed = kAddresses;  // nowhere
      polled = 0;
    }
  };
  struct State {
    std::array<std::uint32_t, kAddresses> memory{};
    std::vector<Thread> threads;
  };
  struct StepTaken {};

  static std::uint32_t bit(Address address) { return std::uint32_t{1} << address; }
  static void wake_pollers(State& state, Address address) {
    for (Thread& thread : state.threads)
      if (!thread.awaits && (thread.polled & bit(address)) != 0) thread.asleep = false;
  }

  static void drain(State& state, Thread& thread) {
    for (const Entry& entry : thread.buffer) state.memory[entry.address] = entry.value;
    thread.buffer.clear();
  }

  // Replays recorded answers; takes one new step; stops the thread before the one after.
  template <class Effect>
  std::uint32_t operation(Effect effect) {
    Thread& self = state_->threads[running_];
    if (replayed_ < self.answers.size()) return self.answers[replayed_++];
    if (stepped_) throw StepTaken{};
    stepped_ = true;
    const std::uint32_t answer = effect(*state_, self);
    self.answers.push_back(answer);
    ++replayed_;
    if (self.asleep) throw StepTaken{};
    return answer;
  }

  void step(State& state, std::size_t thread) {
    state_ = &state;
    running_ = thread;
    replayed_ = 0;
    stepped_ = false;
    try {
      bodies_[thread](*this);
      state.threads[thread].done = true;
    } catch (const StepTaken&) {
    }
  }

  // The number of schedules from here to the end.
  double visit(const State& state) {
    const std::string key = key_of(state);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    double schedules = 0;
    bool finished = true, asleep = false;
    const auto follow = [&](std::size_t thread, char kind, const State& next) {
      finished = false;
      path_ += static_cast<char>('0' + thread);
      path_ += kind;
      schedules += visit(next);
      path_.resize(path_.size() - 2);
    };
    for (std::size_t i = 0; i < state.threads.size() && outcome_.stuck_schedule.empty(); ++i) {
      const Thread& thread = state.threads[i];
      asleep |= thread.asleep;
      if (!thread.buffer.empty()) {
        State next = state;
        Thread& flushed = next.threads[i];
        next.memory[flushed.buffer.front().address] = flushed.buffer.front().value;
        flushed.buffer.erase(flushed.buffer.begin());
        follow(i, 'f', next);
      }
      const bool comes = thread.awaits && state.memory[thread.bed] == thread.awaited;
      if ((thread.asleep && !comes) || thread.done) continue;
      State next = state;
      if (comes) next.threads[i].asleep = next.threads[i].awaits = false;
      step(next, i);
      follow(i, 's', next);
    }
    if (asleep) ++outcome_.sleeps;
    if (finished) {
      schedules = 1;
      if (asleep) outcome_.stuck_schedule = path_;
    }
    return known_[key] = schedules;
  }

  static std::string key_of(const State& state) {
    std::string key;
    const auto number = [&](std::uint32_t n) {  // nearly all are small
      key += static_cast<char>(std::min<std::uint32_t>(n, 255));
      if (n >= 255) key.append(reinterpret_cast<const char*>(&n), sizeof n);
    };
    for (const std::uint32_t value : state.memory) number(value);
    for (const Thread& thread : state.threads) {
      number(static_cast<std::uint32_t>(thread.answers.size()) << 2 | thread.asleep << 1 | thread.done);
      number(thread.stage), number(thread.kept);
      for (const std::uint32_t answer : thread.answers) number(answer);
      number(static_cast<std::uint32_t>(thread.buffer.size()));
      for (const Entry& entry : thread.buffer) number(entry.address), number(entry.value);
    }
    return key;
  }

  std::vector<Body> bodies_;
  std::unordered_map<std::string, double> known_;
  std::string path_;  // thread and 's'tep or 'f'lush, in turn
  Outcome outcome_;

  State* state_ = nullptr;
  std::size_t running_ = 0;
  std::size_t replayed_ = 0;
  bool stepped_ = false;
};

}  // namespace viaduct::testing
