// Which message goes to which receive: against a matcher that walks lists.
#include <gtest/gtest.h>

#include <chrono>
#include <list>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "mx/matcher.hpp"

namespace viaduct::mx {
namespace {

struct Rec : Posted {
  int id = 0;
};
struct Msg : Arrived {
  int id = 0;
};

TEST(Matcher, AgreesWithListsThatAreWalked) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    Matcher matcher;
    std::list<Rec> receives;  // own the entries
    std::list<Msg> messages;
    std::list<Rec*> posted;
    std::list<Msg*> arrived;
    // Few masks in some rounds, more than there are classes in others.
    const std::uint64_t kinds = round % 2 == 0 ? 3 : 40;
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t bits = random.below(32);
      const auto space = static_cast<std::uint8_t>(random.below(2));
      auto* const from = reinterpret_cast<Partner*>(8 + 8 * random.below(3));
      if (random.below(2) == 0) {
        std::uint64_t mask = random.below(kinds) * 0x9e37 % 32;
        if (random.below(3) == 0) mask = ~std::uint64_t{0};
        Partner* const wanted = random.below(4) == 0 ? from : nullptr;
        Msg* expected = nullptr;
        for (Msg* one : arrived)
          if ((one->match & mask) == (bits & mask) && one->space == space &&
              (wanted == nullptr || one->from == wanted)) {
            expected = one;
            break;
          }
        auto* const found = static_cast<Msg*>(matcher.message_for(bits & mask, mask, space, wanted));
        ASSERT_EQ(found, expected);
        if (found != nullptr) {
          matcher.remove(*found);
          arrived.remove(found);
          continue;
        }
        Rec& fresh = receives.emplace_back();
        fresh.match = bits & mask;
        fresh.mask = mask;
        fresh.space = space;
        fresh.from = wanted;
        matcher.post(fresh);
        posted.push_back(&fresh);
        if (random.below(8) == 0) {
          matcher.withdraw(fresh);
          posted.remove(&fresh);
        }
      } else {
        Rec* expected = nullptr;
        for (Rec* one : posted)
          if ((bits & one->mask) == one->match && one->space == space && (one->from == nullptr || one->from == from)) {
            expected = one;
            break;
          }
        auto* const found = static_cast<Rec*>(matcher.receive_for(bits, space, from));
        ASSERT_EQ(found, expected);
        if (found != nullptr) {
          matcher.withdraw(*found);
          posted.remove(found);
          continue;
        }
        Msg& fresh = messages.emplace_back();
        fresh.match = bits;
        fresh.space = space;
        fresh.from = from;
        matcher.arrive(fresh);
        arrived.push_back(&fresh);
      }
    }
    EXPECT_EQ(matcher.posted().size(), posted.size());
    EXPECT_EQ(matcher.arrived().size(), arrived.size());
  }
}

// Looks that a walked list of this length would make a thousand times dearer.
TEST(Matcher, TheCostDoesNotGrowWithWhatWaits) {
  const auto cost = [](std::size_t count) {
    Matcher matcher;
    std::vector<std::unique_ptr<Rec>> receives;
    for (std::size_t i = 0; i < count; ++i) {
      receives.push_back(std::make_unique<Rec>());
      receives.back()->match = i;
      receives.back()->mask = ~std::uint64_t{0};
      matcher.post(*receives.back());
    }
    constexpr int kRounds = 20'000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) {
      auto* const found = static_cast<Rec*>(matcher.receive_for(count - 1, 0, nullptr));
      matcher.withdraw(*found);
      matcher.post(*found);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRounds;
  };
  const double few = cost(10), many = cost(10'000);
  EXPECT_LT(many, few * 20);
}

}  // namespace
}  // namespace viaduct::mx
