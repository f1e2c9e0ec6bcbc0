// A buffer gets its number and its half of a slot; its end is reported once.
#include <sys/eventfd.h>

#include "base/config.hpp"
#include "copy/link.hpp"
#include "copy/process_generation.hpp"

namespace viaduct::copy {

using namespace link_format;

namespace {

// {generation 21, direction 1, sequence 40}: never negative, never 0.
constexpr int kSequenceBits = 40;
constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << kSequenceBits) - 1;
constexpr std::uint64_t kGenerationMask = (1u << 21) - 1;

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> links{0};
  return links.fetch_add(1, std::memory_order_relaxed) % kGenerationMask + 1;
}

}  // namespace

Link::Options Link::Options::of_process() {
  Options options;
  options.cma = Config::process().flag("VIADUCT_COPY_CMA");
  return options;
}

Result<std::unique_ptr<Link>> Link::attach(Fd socket, Deadline deadline, const Options& options) {
  auto control = std::make_unique<ControlSocket>(std::move(socket));
  VIADUCT_TRY(auto agreement, shake_hands(control->fd(), deadline, {options.cma}));
  Fd local_wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!local_wake) return Error::from_errno("make an eventfd");
  return std::unique_ptr<Link>(new Link(std::move(control), std::move(agreement), options, std::move(local_wake)));
}

Link::Link(std::unique_ptr<ControlSocket> control, Agreement agreement, const Options& options, Fd local_wake)
    : options_(options),
      process_(process_generation()),
      generation_(next_generation()),
      control_(std::move(control)),
      segment_(std::move(agreement.table)),
      table_(segment_.as<LinkTable>()),
      side_(agreement.side),
      peer_(std::move(agreement.peer)),
      peer_reaches_(agreement.peer_reaches),
      local_wake_(std::move(local_wake)) {
  for (const Direction direction : {Direction::write, Direction::read}) {
    Lane& lane = lanes_[static_cast<std::size_t>(direction)];
    const int writer = direction == Direction::write ? side_ : 1 - side_;
    lane.direction = direction;
    lane.table = &table_->lanes[writer];
    lane.bounce = table_->bounce[writer];
  }
  own_side().wake.promise_heavy_fence();
}

Link::~Link() {
  close();
}

bool Link::of_this_process() const {
  return process_ == process_generation();
}

std::int64_t Link::cookie_of(const Lane& lane, std::uint64_t sequence) const {
  const auto direction = static_cast<std::uint64_t>(lane.direction);
  return static_cast<std::int64_t>((generation_ << 1 | direction) << kSequenceBits | sequence);
}

Transfer* Link::find(std::int64_t cookie, Lane*& lane) {
  const auto bits = static_cast<std::uint64_t>(cookie);
  if (cookie < 0 || bits >> (kSequenceBits + 1) != generation_) return nullptr;
  lane = &lanes_[bits >> kSequenceBits & 1];
  const std::uint64_t sequence = bits & kSequenceMask;
  if (sequence < lane->first || sequence >= lane->end()) return nullptr;
  Transfer& transfer = lane->at(sequence);
  return transfer.state == Transfer::State::reported ? nullptr : &transfer;
}

std::int64_t Link::post(Direction direction, void* buffer, std::size_t length, bool wait_follows) {
  if (buffer == nullptr && length != 0) return -EFAULT;
  if (length > kLongest) return -EINVAL;
  Lock lock(mutex_);
  const Call call(*this);
  if (error_ != 0) return -error_;
  Lane& lane = lanes_[static_cast<std::size_t>(direction)];
  Transfer& transfer = lane.transfers.emplace_back();
  transfer.sequence = lane.end() - 1;
  transfer.buffer = static_cast<std::byte*>(buffer);
  transfer.length = length;
  transfer.waits = wait_follows;
  const std::int64_t cookie = cookie_of(lane, transfer.sequence);
  while (progress(lock, wait_follows ? Effort::post_and_wait : Effort::post)) {
  }
  start_pumps(lock);
  return cookie;
}

// Gives slots to transfers that have none yet, in order. A slot is free for us when our transfer there has ended.
bool Link::admit(Lane& lane) {
  bool posted = false, changed = false;
  for (; lane.next_to_post < lane.end(); ++lane.next_to_post) {
    const std::uint64_t sequence = lane.next_to_post;
    if (sequence >= lane.first_unfinished + kSlots && !lane.at(sequence - kSlots).ended()) break;
    Transfer& transfer = lane.at(sequence);
    if (transfer.length != 0) transfer.place = given_.place(transfer.buffer, transfer.length, *control_);
    changed = true;
    if (do_at_once(lane, transfer)) continue;
    fill_half(lane, transfer);
    lane.ours(lane.slot(transfer)).stamp.exchange(stamp_of(sequence), std::memory_order_seq_cst);  // R1, P1
    if (transfer.state == Transfer::State::queued) transfer.state = Transfer::State::posted;
    posted = true;
  }
  if (posted) tell_peer();
  return changed;
}

// Everything but the stamp. Each a release: whoever sees a field of the new half sees that the old transfer has ended.
void Link::fill_half(Lane& lane, const Transfer& transfer) {
  PostedHalf& half = lane.ours(lane.slot(transfer));
  half.address.store(reinterpret_cast<std::uint64_t>(transfer.buffer), std::memory_order_release);
  half.length.store(transfer.length, std::memory_order_release);
  half.region.store(transfer.place.region, std::memory_order_release);
  half.offset.store(transfer.place.offset, std::memory_order_release);
  if (transfer.waits) half.waits.store(stamp_of(transfer.sequence), std::memory_order_relaxed);
}

std::optional<Link::Outcome> Link::check(std::int64_t cookie) {
  Lock lock(mutex_);
  const Call call(*this);
  Lane* lane = nullptr;
  Transfer* transfer = find(cookie, lane);
  std::optional<Outcome> outcome;
  if (transfer == nullptr) outcome = Outcome{EINVAL, 0};
  constexpr int kMostRounds = 3;
  for (int round = 0; transfer != nullptr && !transfer->ended() && round < kMostRounds; ++round) {
    if (!progress(lock, Effort::check)) break;
    transfer = find(cookie, lane);
  }
  // A program that only ever checks never sleeps on the socket: look at it now and then.
  constexpr std::uint32_t kChecksPerLook = 32;
  if (transfer != nullptr && !transfer->ended() && ++fruitless_ % kChecksPerLook == 0) look_for_peer();
  if (transfer != nullptr && transfer->ended()) {
    outcome = Outcome{transfer->error, transfer->moved};
    report(*lane, *transfer);
  }
  start_pumps(lock);
  return outcome;
}

void Link::report(Lane& lane, Transfer& transfer) {
  transfer.state = Transfer::State::reported;
  while (!lane.transfers.empty() && lane.transfers.front().state == Transfer::State::reported) {
    lane.transfers.pop_front();
    ++lane.first;
  }
}

const char* Link::path() const {
  switch (last_path_.load(std::memory_order_relaxed)) {
    case Path::mapped:
      return "mapped";
    case Path::cma:
      return "cma";
    case Path::bounce:
      return "bounce";
    case Path::none:
      break;
  }
  return peer_->reaches_by_cma() || peer_reaches_ ? "cma" : "bounce";
}

}  // namespace viaduct::copy
