// Sleep of idle processors. Each has a word and an eventfd: whoever has something for it wakes it through them. The
// processor that receives also wakes when its MAC's descriptor becomes readable.
//
// A sleep is cut into naps: the first is a millisecond, for the second look that base/waiter.hpp explains, later ones
// are longer as long as nothing comes. A MAC without a descriptor is looked at every millisecond.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "base/wait_word.hpp"
#include "nic/processor.hpp"

namespace viaduct::nic {

class Doze {
 public:
  static Result<std::unique_ptr<Doze>> create(unsigned processors);

  void wake(unsigned processor);

  // Sleeps unless `busy()` finds something after the word is armed. `watched` wake it too; `must_look`: there is
  // something that cannot.
  template <class Busy>
  void nap(unsigned processor, std::span<const pollfd> watched, bool must_look, std::uint64_t most_ns, Busy&& busy) {
    Place& place = places_[processor];
    (void)place.word.arm();
    if (busy()) {
      place.nap_ns = kFirstNapNs;
      return;
    }
    if (must_look || most_ns < place.nap_ns) place.nap_ns = std::min(most_ns, kFirstNapNs);
    if (sleep(place.wakeup.get(), watched, place.nap_ns))
      place.nap_ns = kFirstNapNs;
    else
      place.nap_ns = std::min(2 * place.nap_ns, kLongestNapNs);
  }

  // On an eventfd, which it drains, and a few further descriptors; those of -1 are passed over. False: the time is
  // over.
  static constexpr std::size_t kMostWatched = 3;
  static bool sleep(int wakeup, std::span<const pollfd> watched, std::uint64_t most_ns);

 private:
  static constexpr std::uint64_t kFirstNapNs = 1'000'000;
  static constexpr std::uint64_t kLongestNapNs = 64'000'000;
  struct Place {
    WaitWord word;
    Fd wakeup;
    std::uint64_t nap_ns = kFirstNapNs;
  };
  std::array<Place, kMostProcessors> places_;
};

}  // namespace viaduct::nic
