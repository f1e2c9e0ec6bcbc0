// What a process tells those who look on about its TCP sockets (docs/formats/sockets-registry.md): a segment whose
// memfd is called viaduct-sockets, with one record for each socket. Addresses are not in it: the reader asks the kernel
// for them.
//
// Written by the owner alone, with plain stores; readers map it read-only and believe nothing.
//   R1  owner's release store of `descriptor` publishes the record; pairs with A1 in sockets_view.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/segment.hpp"

namespace viaduct::sockets {

enum class Life : std::uint32_t { young, offering, attached, plain };

constexpr char kRegistryName[] = "viaduct-sockets";
constexpr char kStreamName[] = "viaduct-stream";
constexpr char kVersionSection[] = ".viaduct.version";  // of libviaduct-sockets.so: the version it was built as

struct RegistryHead {  // in the place of record 0
  std::atomic<std::int32_t>
      pid;  // the owner, as it calls itself: a forked child inherits the descriptor, not the records
  std::atomic<std::uint32_t> used;  // records that were ever in use are below this one
  std::uint32_t unused[6];
};

struct RegistryRecord {
  std::atomic<std::uint32_t> descriptor;  // plus one; 0: free
  std::atomic<std::uint32_t> life;
  std::atomic<std::uint32_t> why;
  std::atomic<std::uint32_t> memory;  // attached: the descriptor of the stream's memfd, plus one; 0: it has none
  std::atomic<std::uint32_t> side;
  std::uint32_t unused[3];
};
static_assert(sizeof(RegistryHead) == 32 && sizeof(RegistryRecord) == 32);
static_assert(offsetof(RegistryRecord, side) == 16);

constexpr std::uint32_t kRegistryRecords = 1 << 16;  // sockets beyond are not shown
constexpr std::size_t kRegistryBytes = kRegistryRecords * sizeof(RegistryRecord);

constexpr std::uint64_t kRegistryLayout = layout_hash(
    "sockets-registry 1: head{pid i32,used u32}, 65535 x record{descriptor,life,why,memory,side u32,-} of 32 bytes");

}  // namespace viaduct::sockets
