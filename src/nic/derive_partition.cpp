// Deriving a static partition, as section 4.2 of the paper does by hand.
//
// Handlers that use the same DMA channel stay together: parting them would take a lock at every packet. Update Send
// Consumer would tie both channels together; it does not, because the driver reads that index directly. That leaves
// three groups (partition.hpp), and few enough ways to spread them to look at all.
#include <fmt/format.h>
#include <viaduct/nic_partition.hpp>

#include <algorithm>
#include <numeric>

#include "nic/partition.hpp"

namespace viaduct::nic {

namespace {

// The data of table 2 that handlers share.
struct Shared {
  const char* name;
  Event writer, reader;
};
constexpr Shared kShared[] = {
    {"producer index of the driver's send ring", Event::mailbox, Event::send_descriptors_ready},
    {"producer index of the adapter's send ring", Event::dma_read_complete, Event::send_data_ready},
    {"consumer index of the adapter's send ring", Event::dma_read_complete, Event::update_send_consumer},
    {"producer index of the driver's receive ring", Event::mailbox, Event::receive_descriptors_ready},
    {"producer index of the adapter's receive ring", Event::dma_read_complete, Event::receive_complete},
    {"producer index of the receive-return ring", Event::receive_complete, Event::update_receive_return_producer},
};

constexpr Group kGroups[] = {Group::mailbox, Group::read, Group::write};
constexpr const char* kGroupNames[] = {"mailboxes", "the DMA read channel", "the DMA write channel"};
using Places = std::array<unsigned, 3>;  // of each group

struct Candidate {
  Places places;
  std::vector<double> load;
  unsigned shared = 0;
  double most() const { return *std::max_element(load.begin(), load.end()); }
};

double load_of(const Profile& profile, Group group) {
  double sum = 0;
  for (unsigned i = 0; i < kEvents; ++i)
    if (group_of(static_cast<Event>(i)) == group) sum += profile[i];
  return sum;
}

bool crosses(const Places& places, const Shared& shared) {
  return places[static_cast<unsigned>(group_of(shared.writer))] !=
         places[static_cast<unsigned>(group_of(shared.reader))];
}

// Every way, counting those that differ only in the processors' numbers once.
std::vector<Candidate> candidates(const Profile& profile, unsigned processors) {
  const double total = std::accumulate(profile.begin(), profile.end(), 0.0);
  std::vector<Candidate> all;
  for (const Places& places : {Places{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 1}, {0, 1, 2}}) {
    const unsigned used = *std::max_element(places.begin(), places.end()) + 1;
    if (used > processors) continue;
    Candidate candidate{places, std::vector<double>(used), 0};
    for (unsigned i = 0; i < 3; ++i) candidate.load[places[i]] += total > 0 ? load_of(profile, kGroups[i]) / total : 0;
    candidate.shared = static_cast<unsigned>(std::count_if(
        std::begin(kShared), std::end(kShared), [&](const Shared& shared) { return crosses(places, shared); }));
    all.push_back(std::move(candidate));
  }
  return all;
}

// The lighter load on the busiest processor wins; where two differ by less than 2 % of all work, fewer shared
// variables, then fewer processors.
bool better(const Candidate& a, const Candidate& b) {
  if (std::abs(a.most() - b.most()) > 0.02) return a.most() < b.most();
  if (a.shared != b.shared) return a.shared < b.shared;
  return a.load.size() < b.load.size();
}

std::string groups_on(const Places& places, unsigned processor) {
  std::string text;
  for (unsigned i = 0; i < 3; ++i)
    if (places[i] == processor) text += fmt::format("{}{}", text.empty() ? "" : " and ", kGroupNames[i]);
  return text;
}

std::string in_words(const Candidate& candidate) {
  std::string text;
  for (unsigned i = 0; i < candidate.load.size(); ++i)
    text +=
        fmt::format("{}{} ({:.0f} %)", i == 0 ? "" : " | ", groups_on(candidate.places, i), 100 * candidate.load[i]);
  return text;
}

std::string explain(const Profile& profile, const PartitionPlan& plan, const Candidate& chosen,
                    const std::vector<Candidate>& others, unsigned asked) {
  const double total = std::accumulate(profile.begin(), profile.end(), 0.0);
  std::string text;
  for (unsigned i = 0; i < plan.processors; ++i) {
    text += fmt::format("Processor {}: {:.0f} % of the work, the handlers of {}:\n", i, 100 * plan.load[i],
                        groups_on(chosen.places, i));
    for (unsigned event = 0; event < kEvents; ++event)
      if (plan.processor_of[event] == i)
        text += fmt::format("  {:<32} {:5.1f} %\n", name_of(static_cast<Event>(event)),
                            total > 0 ? 100 * profile[event] / total : 0);
  }
  text += plan.shared.empty()
              ? "No variable is shared between processors.\n"
              : fmt::format("{} variables are shared, each with one writer and no lock:\n", plan.shared.size());
  for (const SharedVariable& shared : plan.shared)
    text +=
        fmt::format("  {}: written by {}, read by {}\n", shared.name, name_of(shared.writer), name_of(shared.reader));
  if (plan.processors > 1)
    text += "Update Send Consumer leaves the DMA write channel: the driver reads the index from a register.\n";
  text += fmt::format("Expected: {:.2f} times one processor, while the handlers are the bound.\n", plan.speed_up);
  for (const Candidate& other : others)
    text += fmt::format("Not chosen: {}: {:.2f} times, {} shared variables.\n", in_words(other), 1 / other.most(),
                        other.shared);
  if (asked > plan.processors)
    text += fmt::format(
        "{} of {} processors would have nothing to do: no more groups can be parted without locks. To use "
        "them, assign events dynamically.\n",
        asked - plan.processors, asked);
  return text;
}

}  // namespace

Profile paper_profile() {
  Profile profile{};
  const auto share = [&](Event event) -> double& { return profile[static_cast<unsigned>(event)]; };
  share(Event::send_data_ready) = 30;
  share(Event::receive_complete) = 30;
  share(Event::dma_read_complete) = 14;
  share(Event::dma_write_complete) = 6;
  share(Event::update_send_consumer) = 0.6;
  // 4 to 6 % each; within that, so that the paper's 53 % and 47 % come out.
  share(Event::mailbox) = share(Event::update_receive_return_producer) = 5.5;
  share(Event::send_descriptors_ready) = share(Event::receive_descriptors_ready) = 4.2;
  return profile;
}

std::optional<Profile> profile_of(const Reading& reading) {
  Profile profile{};
  for (const ProcessorReading& processor : reading.processors)
    for (unsigned i = 0; i < kEvents; ++i) profile[i] += static_cast<double>(processor.handlers[i].ns);
  if (std::accumulate(profile.begin(), profile.end(), 0.0) == 0) return std::nullopt;
  return profile;
}

PartitionPlan derive_partition(const Profile& profile, unsigned processors) {
  std::vector<Candidate> all = candidates(profile, std::max(processors, 1u));
  const auto best = std::min_element(all.begin(), all.end(), better);
  const Candidate chosen = *best;
  all.erase(best);

  PartitionPlan plan;
  plan.processors = static_cast<unsigned>(chosen.load.size());
  plan.load = chosen.load;
  for (unsigned i = 0; i < kEvents; ++i)
    plan.processor_of[i] =
        static_cast<std::uint8_t>(chosen.places[static_cast<unsigned>(group_of(static_cast<Event>(i)))]);
  for (const Shared& shared : kShared)
    if (crosses(chosen.places, shared)) plan.shared.push_back({shared.name, shared.writer, shared.reader});
  plan.speed_up = chosen.most() > 0 ? 1 / chosen.most() : 1;
  plan.explanation = explain(profile, plan, chosen, all, processors);
  return plan;
}

}  // namespace viaduct::nic
