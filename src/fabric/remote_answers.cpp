// What peers ask of this side's memory. Everything they say is checked: the key, the bounds, the rights, the lengths.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <mutex>

#include "fabric/atomics.hpp"
#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace {

struct Done {
  int error = 0;
  std::vector<std::byte> bytes{};
};

Done read_or_write(const Region& region, const Ask& ask, std::span<const std::byte> bytes) {
  std::byte* const there = region.base + ask.offset;
  if (static_cast<RemoteKind>(ask.kind) == RemoteKind::read) {
    if (ask.length > kMostAsked) return {FI_EMSGSIZE};
    return {0, {there, there + ask.length}};
  }
  if (bytes.size() != ask.length) return {FI_EINVAL};
  std::copy(bytes.begin(), bytes.end(), there);
  return {};
}

Done do_atomic(const Region& region, const Ask& ask, std::span<const std::byte> bytes, std::mutex& atomics) {
  const auto kind = static_cast<RemoteKind>(ask.kind);
  const auto type = static_cast<fi_datatype>(ask.datatype);
  const auto op = static_cast<fi_op>(ask.op);
  const std::size_t operands = operands_of(op) * std::size_t{ask.length};
  if (!is_possible(type, op, kind) || ask.length % size_of(type) != 0 || bytes.size() != operands) return {FI_EINVAL};
  const std::lock_guard lock(atomics);
  std::byte* const there = region.base + ask.offset;
  Done done;
  if (kind != RemoteKind::atomic) done.bytes.assign(there, there + ask.length);
  const std::span<const std::byte> compare =
      operands_of(op) == 2 ? bytes.subspan(ask.length) : std::span<const std::byte>{};
  apply(type, op, there, bytes.data(), compare.data(), ask.length / size_of(type));
  return done;
}

std::uint64_t access_for(RemoteKind kind) {
  switch (kind) {
    case RemoteKind::read:
      return FI_REMOTE_READ;
    case RemoteKind::write:
    case RemoteKind::atomic:
      return FI_REMOTE_WRITE;
    default:
      return FI_REMOTE_READ | FI_REMOTE_WRITE;
  }
}

}  // namespace

void Endpoint::answer_key(mx::Partner* partner, std::span<const std::byte> bytes) {
  const auto wanted = take_head<KeyWanted>(bytes);
  if (!wanted) return;
  Key answer{.key = wanted->key, .address = 0, .length = 0, .exposed = 0, .unused = 0};
  domain_.regions.with(wanted->key, [&](Region& region) {
    const std::uint64_t rights = (region.allows(FI_REMOTE_WRITE) ? std::uint64_t{mx::kRemoteWrite} : 0) |
                                 (region.allows(FI_REMOTE_READ) ? std::uint64_t{mx::kRemoteRead} : 0);
    mx::Memory& memory = region.exposed[this];
    if (memory.key == 0) memory = below_->expose(region.base, region.length, rights);
    answer.exposed = memory.key;
    answer.address = reinterpret_cast<std::uint64_t>(region.base);
    answer.length = region.length;
  });
  say(partner, RemoteWord::key, with_head(answer));
}

void Endpoint::answer_ask(mx::Partner* partner, std::span<const std::byte> bytes) {
  const auto ask = take_head<Ask>(bytes);
  if (!ask) return;
  const auto kind = static_cast<RemoteKind>(ask->kind);
  if (kind < RemoteKind::read || kind > RemoteKind::compare) return;
  Done done{FI_EACCES};
  domain_.regions.with(ask->key, [&](Region& region) {
    if (!region.allows(access_for(kind))) return;
    if (!region.covers(ask->offset, ask->length)) {
      done.error = FI_EINVAL;
      return;
    }
    const bool plain = kind == RemoteKind::read || kind == RemoteKind::write;
    done = plain ? read_or_write(region, *ask, bytes) : do_atomic(region, *ask, bytes, domain_.atomics);
  });
  if (done.error == 0 && kind != RemoteKind::read) {
    count(kind == RemoteKind::fetch || kind == RemoteKind::compare ? kRemoteReads : kRemoteWrites, true);
  }
  const Answer answer{ask->number, static_cast<std::uint32_t>(done.error),
                      static_cast<std::uint32_t>(done.bytes.size())};
  say(partner, RemoteWord::answer, with_head(answer, done.bytes));
}

void Endpoint::hear_notice(std::span<const std::byte> bytes) {
  const auto notice = take_head<Notice>(bytes);
  if (!notice) return;
  count(kRemoteWrites, true);
  if (receive_queue_ == nullptr) return;
  receive_queue_->write(
      {.entry = {nullptr, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, notice->length, nullptr, notice->data, 0}});
}

}  // namespace viaduct::fabric
