#include "copy/link_regions.hpp"

#include "base/log.hpp"

namespace viaduct::copy {

GivenRegions::Place GivenRegions::place(const void* buffer, std::size_t length, ControlSocket& control) {
  if (RegionHeap::process().removals() != removals_seen_) forget_freed(control);
  if (entries_[latest_].holds(buffer, length)) return use(latest_, buffer);
  const std::shared_ptr<const Region> region = RegionHeap::process().find(buffer, length);
  if (region == nullptr) return {};
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].id == region->id) return use(i, buffer);

  for (std::size_t tries = 0; tries < entries_.size(); ++tries) {
    const std::size_t index = next_to_give_++ % entries_.size();
    if (entries_[index].uses != 0) continue;
    const ControlMessage message{ControlMessage::region, static_cast<std::uint32_t>(index), region->id};
    if (!control.send(message, region->segment.fd())) return {};
    entries_[index] = {region->id, region->base(), region->size(), 0};
    return use(index, buffer);
  }
  return {};
}

GivenRegions::Place GivenRegions::use(std::size_t index, const void* buffer) {
  Entry& entry = entries_[index];
  ++entry.uses;
  latest_ = index;
  return {static_cast<int>(index), entry.id,
          static_cast<std::uint64_t>(static_cast<const std::byte*>(buffer) - entry.base)};
}

void GivenRegions::release(int index) {
  if (index >= 0) --entries_[static_cast<std::size_t>(index)].uses;
}

// A message that finds no room is sent with a later post.
void GivenRegions::forget_freed(ControlSocket& control) {
  const std::uint64_t removals = RegionHeap::process().removals();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.id == 0 || RegionHeap::process().alive(entry.id)) continue;
    entry.base = nullptr;
    entry.size = 0;
    if (entry.uses != 0) return;
    if (!control.send({ControlMessage::forget, static_cast<std::uint32_t>(i), entry.id})) return;
    entry.id = 0;
  }
  removals_seen_ = removals;
}

bool PeerRegions::add(std::uint32_t index, std::uint64_t id, Fd fd, bool map) {
  if (index >= entries_.size() || id == 0) return false;
  Entry& entry = entries_[index];
  entry = {id, std::make_shared<const Segment>()};
  if (!map) return true;
  if (!fd) {
    log::fault(
        "take a region from a link's peer: its descriptor did not arrive; raise the open-file limit (ulimit -n)");
    return true;
  }
  auto segment = Segment::adopt(std::move(fd), kRegionLayout);
  if (segment)
    entry.segment = std::make_shared<const Segment>(std::move(*segment));
  else
    log::fault(segment.error().because("take a region from a link's peer").message());
  return segment.ok() || segment.error().code() != EPROTO;
}

bool PeerRegions::forget(std::uint32_t index, std::uint64_t id) {
  if (index >= entries_.size() || entries_[index].id != id) return false;
  entries_[index] = {};
  return true;
}

PeerRegions::Found PeerRegions::find(std::uint64_t id) {
  if (id == 0) return {};
  if (entries_[latest_].id == id) return {true, entries_[latest_].segment};
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].id == id) {
      latest_ = i;
      return {true, entries_[i].segment};
    }
  return {};
}

}  // namespace viaduct::copy
