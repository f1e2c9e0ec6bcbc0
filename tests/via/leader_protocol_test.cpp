// Interleavings of the leaders, followers and wakers of src/via/port/leader_protocol.hpp on a model of the machine; and
// proof that the model would notice if the protocol were wrong.
#include <gtest/gtest.h>

#include "base/child.hpp"
#include "base/interleaver.hpp"
#include "base/wait_word.hpp"
#include "via/port/leader_protocol.hpp"

namespace viaduct::vipl {
namespace {

using viaduct::testing::Interleaver;
using Address = Interleaver::Address;

constexpr Address kWord = 0;
constexpr Address kLock = 1;
constexpr Address kClaims = 2;
constexpr Address kFollowers = 3;
constexpr Address kLeaderSleeps = 4;
constexpr Address kReadyQueue = 5;  // kAlarm and kMessage
constexpr Address kDone = 6;        // by waiter: what it waits for is complete

enum Ready : std::uint32_t { kAlarm = 1, kMessage = 2 };  // the message completes what the first waiter waits for

enum class Fence { none, own, everybody };

// What the protocol runs on. Each thread body sets `machine` before it calls the protocol.
template <Fence kHeavy, Fence kLight>
struct Model {
  struct Desk {};
  using Word = const Address;
  static inline Interleaver* machine = nullptr;

  static bool try_lock(Desk&) { return machine->load(kLock) == 0 && machine->exchange(kLock, 1) == 0; }
  static void lock(Desk& desk) {
    while (!try_lock(desk)) machine->await(kLock, 0);
  }
  static void unlock(Desk&) { machine->store(kLock, 0); }
  static int claims(Desk&) { return static_cast<int>(machine->load(kClaims)); }
  static void count_claim(Desk&, int by) { machine->fetch_add(kClaims, static_cast<std::uint32_t>(by)); }
  static int followers(Desk&) { return static_cast<int>(machine->load(kFollowers)); }
  static void count_follower(Desk&, int by) { machine->fetch_add(kFollowers, static_cast<std::uint32_t>(by)); }
  static bool leader_sleeps(Desk&) { return machine->load(kLeaderSleeps) != 0; }
  static void leader_lies_down(Desk&) {
    machine->store(kLeaderSleeps, 1);
    machine->fence();
  }
  static void leader_is_awake(Desk&) { machine->store(kLeaderSleeps, 0); }
  static bool must_wake(Desk&);
  static bool still_armed(Desk&, std::uint32_t armed) { return machine->load(kWord) == armed; }
  static void wake_futex(Desk&) { machine->wake_all(kWord); }
  static void ring_alarm(Desk&) { arrive(kAlarm); }
  static void heavy_fence() { fence(kHeavy); }
  static void light_fence(Desk&) { fence(kLight); }

  // Of the WaitWord.
  static std::uint32_t fetch_or(Word& word, std::uint32_t bits) { return machine->fetch_or(word, bits); }
  static std::uint32_t load(Word& word) { return machine->load(word); }
  static bool compare_exchange(Word& word, std::uint32_t from, std::uint32_t to) {
    return machine->compare_exchange(word, from, to);
  }
  static void light_fence(Word&) { fence(kLight); }

  // What Progress does with the protocol.
  template <class Protocol>
  static void look_ends(Desk& desk) {
    Protocol::pause_leading(desk);
  }
  template <class Protocol>
  static void poll_ends(Desk& desk) {
    Protocol::stop_leading(desk);
  }
  template <class Protocol>
  static void wait_ends(Desk& desk) {
    Protocol::leave(desk);
  }

  // Something comes into the ready queue, whose own sleep loses nothing.
  static void arrive(Ready what) {
    machine->fetch_or(kReadyQueue, what);
    machine->wake_all(kReadyQueue);
  }
  static void fence(Fence kind) {
    if (kind == Fence::own) machine->fence();
    if (kind == Fence::everybody) machine->fence_all();
  }
};

template <Fence kHeavy, Fence kLight>
bool Model<kHeavy, kLight>::must_wake(Desk&) {
  return WakeProtocol<Model>::must_wake(kWord);
}

using Asymmetric = Model<Fence::everybody, Fence::none>;  // membarrier
using Symmetric = Model<Fence::own, Fence::own>;          // without it: each side pays

// Threads of the model. What the first waiter waits for is completed by one of: the poster, the claimer, and whoever
// leads when the peer's message has come. What the second waits for is completed by the poster.
enum class Post { nothing, one, message, message_then_one, one_then_message, both };
struct Cast {
  const char* name;
  int waiters = 1;            // Progress::wait
  Post post = Post::nothing;  // VipPostSend; here also the peer
  bool claimer = false;       // VipDisconnect
  bool poller = false;        // VipCQDone
  bool leaver = false;        // a wait whose time is over before it lies down
  bool large = false;         // minutes under a sanitizer
};

template <class Platform>
class Play {
 public:
  static Interleaver::Outcome explore(const Cast& cast) {
    std::vector<Interleaver::Body> bodies;
    for (int i = 0; i < cast.waiters; ++i) bodies.push_back(body([i] { wait(static_cast<Address>(kDone + i)); }));
    if (cast.post != Post::nothing) bodies.push_back(body([&cast] { post(cast); }));
    if (cast.poller)
      bodies.push_back(body([] {
        if (poll_as_leader()) Platform::template poll_ends<Protocol>(desk);
      }));
    if (cast.claimer) bodies.push_back(body([] { claim(); }));
    if (cast.leaver)
      bodies.push_back(body([] {
        (void)WakeProtocol<Platform>::arm(kWord);
        look();
        Platform::template wait_ends<Protocol>(desk);
      }));
    return Interleaver(std::move(bodies)).explore();
  }

 private:
  using Protocol = via::LeaderProtocol<Platform>;
  static inline typename Platform::Desk desk;

  static Interleaver::Body body(std::function<void()> act) {
    return [act = std::move(act)](Interleaver& machine) {
      Platform::machine = &machine;
      act();
    };
  }

  static void complete(Address done) {
    Platform::machine->store(done, 1);  // T1
    Protocol::tell_waiters(desk);
  }

  // Progress::visit of what the ready queue had.
  static void visit() {
    if (Platform::machine->load(kReadyQueue) == 0) return;
    if ((Platform::machine->exchange(kReadyQueue, 0) & kMessage) != 0) complete(kDone);
  }
  static bool poll_as_leader() {
    if (!Platform::try_lock(desk)) return false;
    visit();
    return true;
  }
  static void look() {
    if (poll_as_leader()) Platform::template look_ends<Protocol>(desk);
  }

  // Progress::wait: Waiter::wait with Progress::LeaderSleeper.
  enum Stage : std::uint32_t { kArm, kLook, kChooseBed, kLead, kFollow, kLookAgain, kLeave };
  static void wait(Address done) {
    Interleaver& machine = *Platform::machine;
    const std::uint32_t armed = machine.kept();
    const auto ready = [&] {
      if (machine.load(done) != 0) return true;
      look();
      return machine.load(done) != 0;
    };
    switch (machine.stage()) {
      case kArm:
        machine.go_on_from(kLook, WakeProtocol<Platform>::arm(kWord));
      case kLook:
        machine.go_on_from(ready() ? kLeave : kChooseBed, armed);
      case kChooseBed:
        switch (Protocol::choose_bed(desk, armed)) {
          case Protocol::Bed::ready_queue:
            machine.go_on_from(kLead);
          case Protocol::Bed::futex:
            machine.go_on_from(kFollow, armed);
          default:
            machine.go_on_from(kLookAgain);
        }
      case kLead:
        machine.sleep(kReadyQueue, 0);
        Protocol::get_up(desk);
        visit();
        Protocol::pause_leading(desk);
        machine.go_on_from(kLookAgain);
      case kFollow:
        machine.sleep(kWord, armed);
        Protocol::followed(desk);
        machine.go_on_from(kLookAgain);
      case kLookAgain:
        machine.go_on_from(ready() ? kLeave : kArm);
      default:
        Platform::template wait_ends<Protocol>(desk);
    }
  }

  static void post(const Cast& cast) {
    Interleaver& machine = *Platform::machine;
    const auto last = static_cast<Address>(kDone + cast.waiters - 1);
    const bool ends = cast.post == Post::one || cast.post == Post::message || machine.stage() == 1;
    if (machine.stage() == 0)
      cast.post == Post::message || cast.post == Post::message_then_one ? Platform::arrive(kMessage) : complete(last);
    else
      cast.post == Post::one_then_message ? Platform::arrive(kMessage)
                                          : complete(cast.post == Post::both ? kDone : last);
    if (!ends) machine.go_on_from(1);
  }

  static void claim() {
    Interleaver& machine = *Platform::machine;
    switch (machine.stage()) {
      case 0:
        Protocol::lead(desk);
        machine.go_on_from(1);
      case 1:
        Protocol::stop_leading(desk);
        machine.go_on_from(2);
      default:
        complete(kDone);
    }
  }
};

void expect_no_lost_wake_up(const Interleaver::Outcome& outcome) {
  EXPECT_EQ(outcome.stuck_schedule, "");
  EXPECT_GT(outcome.sleeps, 0u) << "nobody ever slept: nothing was tested";
  EXPECT_GT(outcome.schedules, 100);
  ::testing::Test::RecordProperty("states", std::to_string(outcome.states));
}

class LeaderProtocolWith : public ::testing::TestWithParam<Cast> {
 protected:
  void SetUp() override {
    if (viaduct::testing::kSanitized && GetParam().large) GTEST_SKIP() << "a model gains nothing from a sanitizer";
  }
};

TEST_P(LeaderProtocolWith, MembarrierLosesNoWakeUp) {
  expect_no_lost_wake_up(Play<Asymmetric>::explore(GetParam()));
}

TEST_P(LeaderProtocolWith, FencesOnBothSidesLoseNoWakeUp) {
  expect_no_lost_wake_up(Play<Symmetric>::explore(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    All, LeaderProtocolWith,
    ::testing::Values(Cast{.name = "ASend", .post = Post::one},
                      Cast{.name = "ASendBesideAPoller", .post = Post::one, .poller = true},
                      Cast{.name = "AMessage", .post = Post::message},
                      Cast{.name = "AMessageBesideAPoller", .post = Post::message, .poller = true},
                      Cast{.name = "AMessageBesideALeaver", .post = Post::message, .leaver = true},
                      Cast{.name = "AClaim", .claimer = true},
                      Cast{.name = "AClaimBesideAPoller", .claimer = true, .poller = true, .large = true},
                      Cast{.name = "SendsForTwo", .waiters = 2, .post = Post::both, .large = true},
                      Cast{.name = "AMessageThenASend", .waiters = 2, .post = Post::message_then_one, .large = true},
                      Cast{.name = "ASendThenAMessage", .waiters = 2, .post = Post::one_then_message, .large = true}),
    [](const auto& test) { return test.param.name; });

// Wrong protocols: each must be found out by the same search.

template <class Platform>
void expect_found_out(const Cast& cast) {
  EXPECT_NE(Play<Platform>::explore(cast).stuck_schedule, "");
}

constexpr Cast kSend{.name = "", .post = Post::one};
constexpr Cast kMessageBesideAPoller{.name = "", .post = Post::message, .poller = true};

// A waiter whose own look ends as a poll does, and clears the bit it has set; and which does not see that.
struct TheLookDisarms : Asymmetric {
  static bool still_armed(Desk&, std::uint32_t) { return true; }
  template <class Protocol>
  static void look_ends(Desk& desk) {
    unlock(desk);
    if (must_wake(desk)) wake_futex(desk);
  }
};

TEST(LeaderProtocol, ALookThatDisarmsIsFoundOut) {
  expect_found_out<TheLookDisarms>(kSend);
}

struct NobodyChecksTheWord : Asymmetric {
  static bool still_armed(Desk&, std::uint32_t) { return true; }
};

TEST(LeaderProtocol, LyingDownUnarmedIsFoundOut) {
  expect_found_out<NobodyChecksTheWord>(kSend);
}

struct NoAlarm : Asymmetric {
  static bool leader_sleeps(Desk&) { return false; }
};

TEST(LeaderProtocol, ALeaderThatNobodyWakesIsFoundOut) {
  expect_found_out<NoAlarm>(kSend);
}

// The alarm of a claim may be read by another leader: who lies down looks at the claims once more.
struct ClaimsAreSeenTooEarly : Asymmetric {
  static int claims(Desk& desk) { return machine->load(kLock) == 0 ? Asymmetric::claims(desk) : 0; }
};

TEST(LeaderProtocol, OverlookingAClaimIsFoundOut) {
  expect_found_out<ClaimsAreSeenTooEarly>({.name = "", .claimer = true, .poller = true, .large = true});
}

struct APollHandsNothingOn : Asymmetric {
  template <class Protocol>
  static void poll_ends(Desk& desk) {
    Protocol::pause_leading(desk);
  }
};

TEST(LeaderProtocol, APollThatHandsNothingOnIsFoundOut) {
  expect_found_out<APollHandsNothingOn>(kMessageBesideAPoller);
}

struct AWaitHandsNothingOn : Asymmetric {
  template <class Protocol>
  static void wait_ends(Desk&) {}
};

TEST(LeaderProtocol, AWaitThatHandsNothingOnIsFoundOut) {
  expect_found_out<AWaitHandsNothingOn>({.name = "", .post = Post::message, .leaver = true});
}

TEST(LeaderProtocol, AHeavyFenceForOneselfOnlyIsFoundOut) {
  expect_found_out<Model<Fence::own, Fence::none>>(kSend);
  expect_found_out<Model<Fence::own, Fence::none>>(kMessageBesideAPoller);
}

}  // namespace
}  // namespace viaduct::vipl
