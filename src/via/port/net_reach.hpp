// The reach of a connection to another host: gets and puts of the engine, a piece at a time.
//
// By the channel's sending thread.
#pragma once

#include <deque>
#include <unordered_map>

#include "via/port/net_channel.hpp"

namespace viaduct::via {

class NetReach final : public Reach {
 public:
  explicit NetReach(NetChannel& channel) : channel_(channel) {}

  Began get(std::span<const iovec> into, const RemoteBytes& from, std::uint64_t cookie) override {
    return begin(Way::get, into, from, cookie);
  }
  Began put(std::span<const iovec> from, const RemoteBytes& to, std::uint64_t cookie) override {
    return begin(Way::put, from, to, cookie);
  }
  bool take_end(End& end) override;
  void give_up() override;

  // For the channel's peer alone, whatever the memory's tag. Key 0: no place.
  MemoryKey lend(const void* address, std::size_t length) {
    return channel_.network().lend(channel_.user(), address, length);
  }
  void take_back(MemoryKey key, const void* address) { channel_.network().take_back(key, address); }

 private:
  enum class Way { get, put };
  struct Piece {
    Way way;
    std::byte* local;
    MemoryKey key;
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t operation;
  };
  struct Operation {
    std::uint64_t cookie = 0;
    std::size_t pieces = 0;  // that have not ended
    Began how = Began::done;
  };
  Began begin(Way way, std::span<const iovec> local, const RemoteBytes& there, std::uint64_t cookie);
  void send_waiting();
  void ended(std::uint64_t operation, Began how);
  void fail_all();

  NetChannel& channel_;
  std::unordered_map<std::uint64_t, Operation> operations_;
  std::uint64_t next_operation_ = 1;
  std::deque<Piece> waiting_;  // of the last operation: no room for them yet
  std::deque<End> ends_;
};

}  // namespace viaduct::via
