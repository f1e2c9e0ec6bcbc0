#include "sockets/registry.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <viaduct/version.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sockets/cancellation.hpp"
#include "sockets/internal_fd.hpp"
#include "sockets/retired.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

constinit std::atomic<RegistryRecord*> registry_records{nullptr};

namespace {

// For `viaduct run`, which must know what it preloads.
[[gnu::section(".viaduct.version"), gnu::used]] const char version_of_library[] = VIADUCT_VERSION;

constexpr std::uint32_t kPerPage = 4096 / sizeof(RegistryRecord);
constexpr std::uint32_t kAttemptEvery = 256;  // sockets, where there was no memory or no descriptor for a registry

struct Board {
  BriefLock lock;
  std::atomic<int> fd{-1};
  std::uint32_t places = 1;     // given to connections so far, for good: 0 is the head
  std::uint32_t committed = 0;  // records that have memory
  std::uint32_t vain = 0;       // sockets since the last failure
};
constinit Board board;

bool commit(std::uint32_t records) {
  if (records <= board.committed) return true;
  const std::uint32_t want = std::min((records + kPerPage - 1) / kPerPage * kPerPage, kRegistryRecords);
  const auto offset = [](std::uint32_t at) {
    return static_cast<off_t>(kSegmentPayloadOffset + at * sizeof(RegistryRecord));
  };
  if (records > want || ::syscall(SYS_fallocate, board.fd.load(), 0, offset(board.committed),
                                  offset(want) - offset(board.committed)) != 0)
    return false;
  board.committed = want;
  return true;
}

void fill(RegistryRecord& record, const Connection& connection, int fd) {
  record.life.store(static_cast<std::uint32_t>(connection.life.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
  record.why.store(static_cast<std::uint32_t>(connection.why.load(std::memory_order_relaxed)),
                   std::memory_order_relaxed);
  const bool attached = connection.attached();
  record.memory.store(attached ? static_cast<std::uint32_t>(connection.memory.fd + 1) : 0, std::memory_order_relaxed);
  record.side.store(static_cast<std::uint32_t>(connection.side), std::memory_order_relaxed);
  record.descriptor.store(static_cast<std::uint32_t>(fd + 1), std::memory_order_release);  // R1
}

// Under the lock.
bool make_board() {
  if (board.vain != 0 && ++board.vain % kAttemptEvery != 0) return false;
  board.vain = 1;
  auto segment = Segment::create({.name = kRegistryName,
                                  .layout = kRegistryLayout,
                                  .payload_size = kRegistryBytes,
                                  .committed = sizeof(RegistryHead)});
  if (!segment) return false;
  Segment::Parts parts = std::move(*segment).release();
  std::byte* const memory = parts.payload.data();
  board.fd = make_internal(parts.fd.release());
  const std::uint32_t committed = std::exchange(board.committed, 0);
  if (board.fd < 0 || !commit(board.places)) {
    if (board.fd >= 0) close_internal(board.fd);
    board.fd = -1;
    board.committed = committed;
    ::munmap(memory - kSegmentPayloadOffset, kSegmentPayloadOffset + kRegistryBytes);
    return false;
  }
  auto* const records = reinterpret_cast<RegistryRecord*>(memory);
  auto* const head = reinterpret_cast<RegistryHead*>(memory);
  head->used.store(board.places, std::memory_order_relaxed);
  // What was there before: inherited by fork, or born while there was no memory.
  connections.each([records](int fd, Connection* connection) {
    RegistryRecord& record = records[connection->record];
    if (connection->record != 0 && record.descriptor.load(std::memory_order_relaxed) == 0)
      fill(record, *connection, fd);
  });
  head->pid.store(own_pid(), std::memory_order_release);
  RegistryRecord* const former = registry_records.exchange(records, std::memory_order_acq_rel);
  if (former != nullptr)
    retire_memory(reinterpret_cast<std::byte*>(former) - kSegmentPayloadOffset, kSegmentPayloadOffset + kRegistryBytes);
  board.vain = 0;
  return true;
}

// Under the lock.
std::uint32_t next_place() {
  if (board.places == kRegistryRecords || !commit(board.places + 1)) return 0;
  const std::uint32_t place = board.places++;
  auto* const head = reinterpret_cast<RegistryHead*>(registry_records.load(std::memory_order_relaxed));
  head->used.store(board.places, std::memory_order_release);
  return place;
}

}  // namespace

void registry_add(Connection& connection, int fd) {
  if (connection.record == 0 || board.fd.load(std::memory_order_relaxed) < 0) [[unlikely]] {
    const int kept = errno;
    const Uncancelled here(Uncancelled::Sleeps::too);
    const BriefLock::Hold hold(board.lock);
    const bool there = board.fd >= 0 || make_board() || registry_records.load(std::memory_order_relaxed) != nullptr;
    if (there && connection.record == 0) connection.record = next_place();
    errno = kept;
  }
  if (RegistryRecord* const record = registry_record(connection.record)) fill(*record, connection, fd);
}

void registry_remove(const Connection& connection) {
  if (RegistryRecord* const record = registry_record(connection.record))
    record->descriptor.store(0, std::memory_order_relaxed);
}

void registry_attached(const Connection& connection) {
  RegistryRecord* const record = registry_record(connection.record);
  if (record == nullptr) return;
  record->side.store(static_cast<std::uint32_t>(connection.side), std::memory_order_relaxed);
  record->memory.store(static_cast<std::uint32_t>(connection.memory.fd + 1), std::memory_order_relaxed);
}

void registry_descriptor_closed(const Connection& connection, int fd) {
  RegistryRecord* const record = registry_record(connection.record);
  if (record == nullptr || record->descriptor.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(fd + 1))
    return;
  connections.each([&](int other, const Connection* holder) {
    if (holder == &connection)
      record->descriptor.store(static_cast<std::uint32_t>(other + 1), std::memory_order_relaxed);
  });
}

bool registry_gives_descriptor() {
  const BriefLock::Hold hold(board.lock);
  const int fd = board.fd.exchange(-1);
  if (fd < 0) return false;
  board.vain = 1;
  close_internal(fd);
  return true;
}

void registry_moved(int from, int to) {
  const BriefLock::Hold hold(board.lock);
  if (board.fd == from) board.fd = to;
}

void registry_after_fork_in_child(bool now) {
  board.lock.reset();
  RegistryRecord* const parents = registry_records.exchange(nullptr);
  if (parents == nullptr) return;
  if (board.fd >= 0) close_internal(board.fd);
  ::munmap(reinterpret_cast<std::byte*>(parents) - kSegmentPayloadOffset, kSegmentPayloadOffset + kRegistryBytes);
  board.fd = -1;
  board.vain = 0;
  if (now) (void)make_board();
}

}  // namespace viaduct::sockets
