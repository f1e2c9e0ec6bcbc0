#include "via/port/shm_reach.hpp"

#include <poll.h>

namespace viaduct::via {

namespace {

// S1 of memory_table.hpp: whoever deregisters waits for us, or we see that it has.
class Activity {
 public:
  explicit Activity(ConnectionWords& words) : word_(words.activity) {
    word_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Activity() { word_.fetch_add(1, std::memory_order_release); }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
};

}  // namespace

Reach::Began ShmReach::move(RemotePort::Direction direction, std::uint64_t right, std::span<const iovec> pieces,
                            const RemoteBytes& there) {
  const Activity activity(own_.words(slot_));
  Registration registration;
  const bool allowed = remote_->table().find(there.key, registration) && tags_agree(peer_.tag, registration.tag) &&
                       (registration.enables & right) != 0 && registration.covers(there.address, there.length);
  if (!allowed) return Began::refused;
  switch (remote_->move(direction, registration, there.address, pieces, there.length, socket_)) {
    case Moved::all:
      return Began::done;
    case Moved::no_way:
      return Began::no_way;
    case Moved::fault:
      return Began::failed;
    case Moved::gone:
      break;
  }
  return Began::gone;
}

std::byte* ShmReach::map(const RemoteBytes& bytes, std::uint64_t rights, std::shared_ptr<const Segment>& held) {
  Registration registration;
  const bool allowed = remote_->table().find(bytes.key, registration) && tags_agree(peer_.tag, registration.tag) &&
                       (registration.enables & rights) == rights && registration.covers(bytes.address, bytes.length);
  if (!allowed) return nullptr;
  held = remote_->map(registration);
  if (held == nullptr) return nullptr;
  const std::uint64_t offset = registration.region_offset + (bytes.address - registration.base);
  const std::span<std::byte> payload = held->payload();
  if (offset > payload.size() || bytes.length > payload.size() - offset) return nullptr;
  return payload.data() + offset;
}

// A peer that dies while it copies leaves its word odd: its socket tells.
bool ShmReach::peer_copies(Looks& looks) const {
  const std::uint32_t now = words().activity.load(std::memory_order_seq_cst);
  if (looks.count++ == 0) looks.first = now;
  if (now % 2 == 0 || now != looks.first) return false;
  pollfd entry{socket_, POLLRDHUP, 0};
  return looks.count % 1024 != 0 || ::poll(&entry, 1, 0) <= 0;
}

// What is shown of a receive, if a message of that length may be put there. Stays as it is within an Activity, until
// our message has been received or its owner has waited for us.
bool ShmReach::find_posted(std::uint64_t number, std::uint32_t length, Posted& posted) const {
  const TableView& table = remote_->table();
  if (words().shows_posted.load(std::memory_order_acquire) == 0) return false;
  const PostedReceive& shown = table.posted(peer_.slot, number);
  const std::uint64_t expected = posted_stamp(peer_.connection, number);
  if (shown.stamp.load(std::memory_order_acquire) != expected) return false;  // A2, pairs with R2
  posted.address = shown.address.load(std::memory_order_relaxed);
  return length <= shown.length.load(std::memory_order_relaxed) &&
         table.find(shown.key.load(std::memory_order_relaxed), posted.memory) &&
         tags_agree(peer_.tag, posted.memory.tag) && posted.memory.covers(posted.address, length);
}

bool ShmReach::finds_posted(std::uint64_t number, std::uint32_t length, bool& mapped) const {
  Posted posted;
  const bool there = find_posted(number, length, posted);
  mapped = there && remote_->maps(posted.memory);
  return there;
}

ShmReach::Moved ShmReach::put_into_posted(std::uint64_t number, std::uint32_t whole, std::uint32_t offset,
                                          std::span<const iovec> pieces, std::size_t length) {
  const Activity activity(own_.words(slot_));
  Posted posted;
  if (!peer_is_there()) return Moved::gone;
  if (!find_posted(number, whole, posted)) return Moved::no_way;
  // Comes from the other processor as we copy.
  __builtin_prefetch(&remote_->table().posted(peer_.slot, number + 1));
  return remote_->move(RemotePort::Direction::write, posted.memory, posted.address + offset, pieces, length, socket_);
}

ShmReach::Moved ShmReach::fetch(const RemoteBytes& message, std::uint64_t offset, std::span<const iovec> pieces,
                                std::size_t length) {
  const Activity activity(own_.words(slot_));
  Registration there;
  if (!peer_is_there()) return Moved::gone;
  if (!remote_->table().find(message.key, there) || !tags_agree(peer_.tag, there.tag) ||
      !there.covers(message.address, message.length))
    return Moved::no_way;
  return remote_->move(RemotePort::Direction::read, there, message.address + offset, pieces, length, socket_);
}

}  // namespace viaduct::via
