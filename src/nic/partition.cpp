#include "nic/partition.hpp"

#include <fmt/format.h>

namespace viaduct::nic {

std::string_view name_of(Event event) {
  static constexpr std::array<std::string_view, kEvents> kNames = {
      "Mailbox",
      "DMA Read Complete",
      "DMA Write Complete",
      "Receive Complete",
      "Send Buffer Descriptor Ready",
      "Send Data Ready",
      "Update Send Consumer",
      "Receive Buffer Descriptor Ready",
      "Update Receive Return Producer",
  };
  const auto index = static_cast<unsigned>(event);
  return index < kEvents ? kNames[index] : "?";
}

std::string_view name_of(Partition partition) {
  switch (partition) {
    case Partition::inlined:
      return "inline";
    case Partition::release:
      return "release";
    case Partition::parallel:
      return "parallel";
    case Partition::dynamic:
      return "dynamic";
    case Partition::custom:
      return "custom";
  }
  return "?";
}

Assignment parallel_assignment() {
  Assignment assignment{};
  for (unsigned i = 0; i < kEvents; ++i) assignment[i] = group_of(static_cast<Event>(i)) == Group::read ? 1 : 0;
  return assignment;
}

std::optional<std::string> fault_of(const Assignment& assignment, unsigned processors) {
  for (unsigned i = 0; i < kEvents; ++i) {
    const auto event = static_cast<Event>(i);
    if (assignment[i] >= processors)
      return fmt::format("{} is given to processor {}, and there are {}", name_of(event), assignment[i], processors);
    for (unsigned j = 0; j < i; ++j) {
      const auto other = static_cast<Event>(j);
      if (group_of(event) == group_of(other) && assignment[i] != assignment[j])
        return fmt::format("{} and {} share a DMA channel and must be on one processor", name_of(other),
                           name_of(event));
    }
  }
  return std::nullopt;
}

}  // namespace viaduct::nic
