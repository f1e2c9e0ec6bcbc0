// Every interleaving of the way sleepers are rung for (bell_protocol.hpp), with both kinds of bell, on a model of the
// machine; and proof that the model would notice if it were wrong.
#include "sockets/bell_protocol.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/interleaver.hpp"

namespace viaduct::sockets {
namespace {

using testing::Interleaver;
using Address = Interleaver::Address;

constexpr Address kPerConnection = 7;
enum Word : Address { kPublished, kTaken, kArmed, kSleepers, kBell, kSocket, kLock };  // of a connection
constexpr Address kWanted = 2 * kPerConnection, kLetter = kWanted + 1, kEnd = kWanted + 2, kEvent = kWanted + 2;

constexpr std::uint32_t kNamesBell = 0x80;

struct Wait {
  Address connection;
  Address at(Word word) const { return static_cast<Address>(connection * kPerConnection + word); }
};

// What is left out, to be found out.
enum class Flaw { none, no_fence, no_second_look, deaf_to_socket, name_for_all };

struct Machine {
  static inline Interleaver* machine = nullptr;
  static inline Flaw flaw = Flaw::none;
  using Wait = sockets::Wait;
  using Name = std::uint32_t;

  static void set_bell(Wait& wait, Name id) { machine->store(wait.at(kBell), id); }
  static Name bell(Wait& wait) { return machine->load(wait.at(kBell)); }
  static void set_armed(Wait& wait, Name name) {
    machine->exchange(wait.at(kArmed), flaw == Flaw::name_for_all && name == kRingForMe ? kNamesBell : name);
  }
  static Name take_armed(Wait& wait) { return machine->exchange(wait.at(kArmed), 0); }
  static std::uint32_t sleepers(Wait& wait) { return machine->load(wait.at(kSleepers)); }
  static std::uint32_t one_sleeper_less(Wait& wait) { return machine->fetch_add(wait.at(kSleepers), ~0U) - 1; }
  static bool names_bell(Name name) { return (name & kNamesBell) != 0; }
  static void fence() {
    if (flaw != Flaw::no_fence) machine->fence();
  }
};
using Protocol = BellProtocol<Machine>;

// ---- who waits

struct Sleeper {
  std::vector<Address> connections;  // that one sleep is for
  std::uint32_t bell;                // of its process; 0: it has none
  int wants;                         // messages: so many calls of recv()
  int gives_up = 0;                  // so many sleeps end before they began, as with a limit
};

// Where the first of them is that had one, or -1.
int take_one(Interleaver& machine, const std::vector<Wait>& waits) {
  return static_cast<int>(machine.at_once([&](auto word) {
    for (std::size_t i = 0; i < waits.size(); ++i) {
      std::uint32_t& taken = word(waits[i].at(kTaken));
      if (word(waits[i].at(kPublished)) != taken) return ++taken, static_cast<std::uint32_t>(i);
    }
    return ~0U;
  }));
}

bool any_data(Interleaver& machine, const std::vector<Wait>& waits) {
  for (const Wait wait : waits)
    if (machine.load(wait.at(kPublished)) != machine.load(wait.at(kTaken))) return true;
  return false;
}

// settle_doorbells(): of a ring that was found empty.
void take_doorbells_off(Interleaver& machine, Wait wait) {
  if (machine.load(wait.at(kSocket)) == 0) return;
  machine.lock(wait.at(kLock));
  bool left = false;
  if (machine.load(wait.at(kSocket)) != 0) {
    if (machine.load(wait.at(kSleepers)) != 0) {
      machine.exchange(wait.at(kArmed), kRingForMe);
      machine.fence();
      left = any_data(machine, {wait});
    }
    if (!left) machine.exchange(wait.at(kSocket), 0);
  }
  machine.unlock(wait.at(kLock));
}

struct Needs {
  bool ends = false;     // a waker may die
  bool letters = false;  // a bell may have to be passed
};

Interleaver::Body sleeper(const Sleeper& what, int number, Needs needs) {
  return [what, number, needs](Interleaver& machine) {
    Machine::machine = &machine;
    std::vector<Wait> waits;
    for (const Address each : what.connections) waits.push_back({each});
    const auto event = static_cast<Address>(kEvent + what.bell);
    const std::uint32_t sleeps = machine.kept() >> 8;
    auto got = static_cast<int>(machine.kept() & 0xff);
    const auto once_more = [&](std::uint32_t more_sleeps) {
      machine.go_on_from(1, (sleeps + more_sleeps) << 8 | static_cast<std::uint32_t>(got));
    };
    if (got < what.wants) {
      const bool looked_before = machine.stage() == 0;  // and found nothing
      if (!looked_before && take_one(machine, waits) >= 0) {
        ++got;
        once_more(0);
      }
      if (needs.ends && machine.load(kEnd) != 0 && !any_data(machine, waits)) return;
      for (const Wait wait : waits) take_doorbells_off(machine, wait);
      const std::uint32_t name = what.bell != 0
                                     ? kNamesBell | static_cast<std::uint32_t>(number + 1) << 4 | (sleeps + 1)
                                     : static_cast<std::uint32_t>(kRingForMe);
      for (Wait wait : waits) {
        machine.lock(wait.at(kLock));
        machine.fetch_add(wait.at(kSleepers), 1);
        Protocol::arm(wait, name, what.bell);
        machine.unlock(wait.at(kLock));
      }
      const bool looks = Machine::flaw != Flaw::no_second_look;
      if (static_cast<int>(sleeps) >= what.gives_up && (!looks || !any_data(machine, waits))) {
        const Address socket = waits[0].at(kSocket), other = waits.back().at(kSocket);
        if (Machine::flaw == Flaw::deaf_to_socket)
          machine.poll({event});
        else if (what.bell != 0)
          machine.poll({event, socket, other, kEnd});
        else
          machine.poll({socket, other, kEnd});
        if (what.bell != 0) machine.exchange(event, 0);
      }
      for (Wait wait : waits) {
        machine.lock(wait.at(kLock));
        Protocol::disarm(wait);
        machine.unlock(wait.at(kLock));
      }
      if (needs.letters && machine.exchange(kWanted, 0) != 0) machine.exchange(kLetter, what.bell);
      once_more(1);
    }
  };
}

// ---- who sends

constexpr std::uint32_t kAll = 0xff;

struct Waker {
  Address connection;
  int messages;
  std::uint32_t holds;        // the bell that it was passed already
  int dies_after = -1;        // so many steps; its kernel then closes the connection
  bool among_others = false;  // who send there too, one at a time
};

struct Died {};

class Ringing {
 public:
  Ringing(Interleaver& machine, const Waker& who) : machine_(machine), who_(who) {}
  void step() {
    if (who_.dies_after >= 0 && steps_++ == who_.dies_after) throw Died();
  }
  bool has_ended(std::uint32_t name) const { return ended_ == name; }
  bool by_bell(std::uint32_t id) {
    step();
    if (id == 0) return false;
    if (who_.holds == kAll) return machine_.post(static_cast<Address>(kEvent + id)), true;
    if (id != who_.holds && machine_.exchange(kLetter, 0) == id) who_.holds = id;
    if (id != who_.holds) return machine_.exchange(kWanted, 1), false;
    step();
    machine_.post(static_cast<Address>(kEvent + id));
    return true;
  }
  bool over_tcp() {
    step();
    machine_.post(Wait{who_.connection}.at(kSocket));
    return true;
  }
  void note_ended(std::uint32_t name) {
    step();
    ended_ = name;
  }
  void in_vain() {}

 private:
  Interleaver& machine_;
  Waker who_;
  std::uint32_t ended_ = 0;
  int steps_ = 0;
};

Interleaver::Body waker(const Waker& who) {
  return [who](Interleaver& machine) {
    Machine::machine = &machine;
    Wait wait{who.connection};
    Ringing ring(machine, who);
    try {
      for (int i = 1; i <= who.messages; ++i) {
        ring.step();
        if (who.among_others)
          machine.fetch_add(wait.at(kPublished), 1);
        else
          machine.store(wait.at(kPublished), static_cast<std::uint32_t>(i));
        ring.step();
        Machine::fence();
        if (machine.load(wait.at(kArmed)) == 0) continue;
        ring.step();
        Protocol::wake(wait, ring);
      }
    } catch (const Died&) {
      machine.post(kEnd);
    }
  };
}

// ---- scenes

Interleaver::Outcome explore(const std::vector<Sleeper>& sleepers, const std::vector<Waker>& wakers,
                             Flaw flaw = Flaw::none) {
  Machine::flaw = flaw;
  std::vector<Interleaver::Body> bodies;
  Needs needs;
  for (const Waker& each : wakers) {
    bodies.push_back(waker(each));
    needs.ends |= each.dies_after >= 0;
    needs.letters |= each.holds != kAll;
  }
  for (std::size_t i = 0; i < sleepers.size(); ++i) bodies.push_back(sleeper(sleepers[i], static_cast<int>(i), needs));
  const auto outcome = Interleaver(std::move(bodies)).explore();
  ::testing::Test::RecordProperty("states", std::to_string(outcome.states));
  Machine::flaw = Flaw::none;
  return outcome;
}

void expect_nobody_sleeps_for_ever(const std::vector<Sleeper>& sleepers, const std::vector<Waker>& wakers) {
  const auto outcome = explore(sleepers, wakers);
  EXPECT_EQ(outcome.stuck_schedule, "");
  EXPECT_GT(outcome.sleeps, 0U) << "nobody ever slept: nothing was tested";
}

constexpr std::uint32_t kOne = 1, kTwo = 2;  // bells

TEST(BellProtocol, ADoorbellAlone) {
  expect_nobody_sleeps_for_ever({{.connections = {0}, .bell = 0, .wants = 2}}, {{0, 2, 0}});
}

TEST(BellProtocol, ABellThatIsHeld) {
  expect_nobody_sleeps_for_ever({{.connections = {0}, .bell = kOne, .wants = 2}}, {{0, 2, kOne}});
}

TEST(BellProtocol, ABellThatIsPassedMeanwhile) {
  expect_nobody_sleeps_for_ever({{.connections = {0}, .bell = kOne, .wants = 2}}, {{0, 2, 0}});
}

TEST(BellProtocol, OneSleepForTwoConnections) {
  expect_nobody_sleeps_for_ever({{.connections = {0, 1}, .bell = kOne, .wants = 2}}, {{0, 1, kOne}, {1, 1, kOne}});
}

TEST(BellProtocol, TwoSleepersOnOneConnection) {
  expect_nobody_sleeps_for_ever(
      {{.connections = {0}, .bell = kOne, .wants = 1}, {.connections = {0}, .bell = kTwo, .wants = 1}}, {{0, 2, kAll}});
}

// The sending end goes on in another process, which was passed nothing.
TEST(BellProtocol, HandedOverWhileAsleep) {
  expect_nobody_sleeps_for_ever({{.connections = {0}, .bell = kOne, .wants = 2}},
                                {{0, 1, kOne, -1, true}, {0, 1, 0, -1, true}});
}

TEST(BellProtocol, AWakerThatIsKilled) {
  for (int steps = 0; steps < 12; ++steps) {
    SCOPED_TRACE(steps);
    expect_nobody_sleeps_for_ever({{.connections = {0}, .bell = kOne, .wants = 2}}, {{0, 2, kOne, steps}});
  }
}

// It had armed, and left with its bell, which the next thread sleeps with: a ring that was meant for it is no loss.
TEST(BellProtocol, ABellOfAThreadThatIsGone) {
  expect_nobody_sleeps_for_ever({{.connections = {0, 1}, .bell = kOne, .wants = 1, .gives_up = 1}}, {{0, 1, kOne}});
}

// ---- what would be wrong is found out

TEST(BellProtocol, NoFenceIsFoundOut) {
  const std::vector<Sleeper> sleepers{{.connections = {0}, .bell = kOne, .wants = 1}};
  EXPECT_NE(explore(sleepers, {{0, 1, kOne}}, Flaw::no_fence).stuck_schedule, "");
}

TEST(BellProtocol, NotLookingAgainIsFoundOut) {
  const std::vector<Sleeper> sleepers{{.connections = {0}, .bell = kOne, .wants = 1}};
  EXPECT_NE(explore(sleepers, {{0, 1, kOne}}, Flaw::no_second_look).stuck_schedule, "");
}

TEST(BellProtocol, SleepingForTheBellAloneIsFoundOut) {
  const std::vector<Sleeper> sleepers{{.connections = {0}, .bell = kOne, .wants = 1}};
  EXPECT_NE(explore(sleepers, {{0, 1, 0}}, Flaw::deaf_to_socket).stuck_schedule, "") << "it was not passed";
  EXPECT_NE(explore(sleepers, {{0, 1, kOne, 3}}, Flaw::deaf_to_socket).stuck_schedule, "") << "its holder was killed";
}

TEST(BellProtocol, ANameOfOneWhereTwoSleepIsFoundOut) {
  EXPECT_NE(explore({{.connections = {0}, .bell = kOne, .wants = 1}, {.connections = {0}, .bell = kTwo, .wants = 1}},
                    {{0, 2, kAll}}, Flaw::name_for_all)
                .stuck_schedule,
            "");
}

}  // namespace
}  // namespace viaduct::sockets
