// The ready queue: looks at its channels in shared memory and at whatever other sources they have brought along, and
// sleeps on all of them at once.
//
//   channels in shared memory   hints and a short list looked at directly (shm_ready.hpp); one socket each
//   other sources               each says by itself whose channels have news; one descriptor each
//
// All descriptors are in one epoll instance. The word that is armed before a sleep is that of the hints; other sources
// are prepared behind it, inside the sleep, and what they hear from then on makes their descriptor readable.
#pragma once

#include <viaduct/via.hpp>

#include <memory>
#include <vector>

#include "via/channel/ready_source.hpp"
#include "via/channel/shm_ready.hpp"

namespace viaduct::via {

class ReadyQueueOfSources final : public ReadyQueue, private ReadyEntrance {
 public:
  static Result<std::unique_ptr<ReadyQueueOfSources>> make(std::uint32_t most_channels);

  std::error_code add(Channel& channel, std::uint64_t tag) override { return channel.enter(*this, tag); }
  void remove(Channel& channel) override { channel.leave(*this); }
  std::error_code add(ReadySource& source) override;
  void remove(ReadySource& source) override;
  std::error_code watch(int descriptor, std::uint64_t tag) override;
  void unwatch(int descriptor) override;
  std::size_t take(std::span<std::uint64_t> tags) override;
  std::size_t wait(std::span<std::uint64_t> tags, int timeout_ms) override;
  int descriptor() const override { return epoll_.get(); }
  bool prepare_to_sleep() override;
  void woke() override;
  // Channels in shared memory; the others are armed.
  std::size_t looked_at_one_by_one() const { return shared_.looked_at_one_by_one(); }

 private:
  class EpollSleeper;

  struct Member {
    ReadySource* source;
    std::size_t channels;
  };
  struct Watched {
    int descriptor = -1;
    std::uint64_t tag = 0;
    bool readable = false;  // and not reported yet
  };

  ReadyQueueOfSources(Fd epoll, ShmReadySource shared);

  std::error_code add_shm(ShmChannel& channel, std::uint64_t tag) override { return shared_.add(channel, tag); }
  void remove_shm(ShmChannel& channel) override { shared_.remove(channel); }

  std::size_t look(std::span<std::uint64_t> tags);
  std::size_t report_watched(std::span<std::uint64_t> tags);
  std::size_t look_at_sources(std::span<std::uint64_t> tags);
  bool sockets_are_due();
  int look_at_descriptors(Deadline deadline, const Clock& clock);
  bool prepare_sources();
  void sources_woke(std::size_t count);

  Fd epoll_;
  ShmReadySource shared_;
  std::vector<Member> sources_;
  std::vector<Watched> watched_;
  std::size_t watched_readable_ = 0;  // of those
  bool shared_first_ = false;
  std::uint32_t looks_ = 0;
  std::uint64_t sockets_checked_ns_ = 0;
  Waiter waiter_;
};

}  // namespace viaduct::via
