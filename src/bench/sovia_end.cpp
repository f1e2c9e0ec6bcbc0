#include "bench/sovia_end.hpp"

#include <sched.h>

#include "base/topology.hpp"

namespace viaduct::bench {

namespace {

using Handling = SoviaOptions::Handling;

constexpr std::uint32_t kControlReceives = 2;   // FIN and FINACK
constexpr std::uint32_t kThreeWayReceives = 3;  // a control packet, data, and one more control packet at the end
constexpr std::uint32_t kControlSends = 4;      // whatever is not data or an acknowledgement
constexpr std::uint32_t kMostWindow = 1024;
static_assert(kMostWindow <= SoviaPacket::kMostAcks && kSoviaChunk <= SoviaPacket::kMostAmount);

bool is_three_way(const SoviaOptions& options) {
  return options.synchronisation == SoviaOptions::Synchronisation::three_way;
}

std::uint32_t receives_of(const SoviaOptions& options) {
  if (options.threshold < 1 || options.threshold > options.window || options.window > kMostWindow)
    give_up("SOVIA: a window w of 1 to 1024, and a threshold t of 1 to w");
  if (is_three_way(options) && (options.handling != Handling::application || options.combine))
    give_up("SOVIA: three-way handshaking goes with the application's thread and without combining");
  if (is_three_way(options)) return kThreeWayReceives;
  return options.window + options.window / options.threshold + kControlReceives;
}

}  // namespace

SoviaEnd::SoviaEnd(const SoviaOptions& options)
    : options_(options),
      locking_(options.handling != Handling::application || options.combine),
      registrations_(adapter_, options.keep_registrations),
      receives_(receives_of(options)),
      queued_(2 * options.window),
      sends_(options.window + options.window / options.threshold + kControlSends),
      sources_(sends_),
      window_(options.window) {}

SoviaEnd::~SoviaEnd() {
  if (vi_ != nullptr) close();
}

// ---- beginning

void SoviaEnd::connect(Conduit::Side side, const std::string& name) {
  adapter_.open();
  const std::uint32_t buffers = receives_ + options_.window;
  memory_.emplace(adapter_, buffers + sends_, buffers, options_.window + 1);
  if (options_.handling == Handling::handler) must(VipCreateCQ(adapter_.nic(), 2 * buffers, &cq_), "VipCreateCQ");
  vi_ = adapter_.create_vi(VIP_SERVICE_RELIABLE_DELIVERY, kSoviaChunk, cq_);
  post_first_receives();
  adapter_.connect(vi_, side, name);
  start_handling(side);
}

void SoviaEnd::post_first_receives() {
  if (!two_way()) return post_receive(memory_->descriptor(0));
  for (std::uint32_t i = 0; i < receives_ + options_.window; ++i) {
    VIP_DESCRIPTOR* const descriptor = memory_->descriptor(i);
    descriptor->CS.SegCount = 1;
    descriptor->CS.Length = kSoviaChunk;
    descriptor->DS[0].Local = {{.Address = memory_->buffer(i)}, memory_->handle(), kSoviaChunk};
    if (i < receives_)
      post_receive(descriptor);
    else
      spares_.push_back(descriptor);
  }
}

void SoviaEnd::start_handling(Conduit::Side side) {
  if (options_.handling == Handling::notify) ask_for_notice();
  if (options_.handling == Handling::handler) {
    const std::vector<int>& all = Topology::machine().processors();
    const int apart = all[(side == Conduit::Side::here ? 1 : 2 * all.size() - 2) % all.size()];
    handler_ = std::thread([this, processor = options_.handler_apart ? apart : -1] { run_handler(processor); });
  }
  if (options_.combine) timer_ = std::thread([this] { run_timer(); });
}

// ---- who takes packets in

void SoviaEnd::run_handler(int processor) {
  if (processor >= 0) (void)pin_this_thread(processor);
  for (bool last = false; !last;) {
    VIP_VI_HANDLE vi = nullptr;
    VIP_BOOLEAN receive = VIP_FALSE;
    must(VipCQWait(cq_, VIP_INFINITE, &vi, &receive), "VipCQWait");
    const Lock lock(mutex_);
    VIP_DESCRIPTOR* descriptor = nullptr;
    must(VipRecvDone(vi, &descriptor), "VipRecvDone");
    handle(descriptor);
    last = finished();
    changed_.notify_one();
  }
}

void SoviaEnd::ask_for_notice() {
  must(VipRecvNotify(vi_, this, on_notice), "VipRecvNotify");
}

void SoviaEnd::on_notice(VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR* descriptor) {
  SoviaEnd& end = *static_cast<SoviaEnd*>(self);
  if ((descriptor->CS.Status & VIP_STATUS_ERROR_MASK) != 0) give_up("SOVIA: a receive failed");
  const Lock lock(end.mutex_);
  end.handle(descriptor);
  if (!end.finished()) end.ask_for_notice();
  end.changed_.notify_one();
}

// One packet; where others take them in, whatever they have done.
void SoviaEnd::take_packet(Lock& lock) {
  if (options_.handling != Handling::application) return changed_.wait(lock);
  VIP_DESCRIPTOR* descriptor = nullptr;
  const VIP_RETURN result = options_.waiting == SoviaOptions::Waiting::blocking
                                ? VipRecvWait(vi_, VIP_INFINITE, &descriptor)
                                : VipRecvDone(vi_, &descriptor);
  if (result == VIP_NOT_DONE) return polled_in_vain();
  must(result, "VipRecvDone");
  handle(descriptor);
}

// Longer than anything takes between processors of their own: the other end may be waiting for this one.
void SoviaEnd::polled_in_vain() {
  constexpr std::uint32_t kPatience = 2000;
  if (++vain_polls_ % kPatience == 0) ::sched_yield();
}

// ---- ending

void SoviaEnd::close() {
  {
    Lock lock = guard();
    flush(lock);
    closing_ = true;
    while (queued_count_ > 0) {
      release(queued_[first_queued_++ % queued_.size()]);
      --queued_count_;
    }
    if (!two_way()) post_receive(memory_->descriptor(2));  // a FIN and a FINACK may come in a row
    send_control(Kind::fin);
    await(lock, [this] { return finished(); });
    reap(0);
    timer_ends_ = true;
    timer_changed_.notify_one();
  }
  if (handler_.joinable()) handler_.join();
  if (timer_.joinable()) timer_.join();
  (void)VipDisconnect(vi_);
  VIP_DESCRIPTOR* flushed = nullptr;
  while (VipRecvDone(vi_, &flushed), flushed != nullptr) continue;
  must(VipDestroyVi(vi_), "VipDestroyVi");
  vi_ = nullptr;
  if (cq_ != nullptr) must(VipDestroyCQ(cq_), "VipDestroyCQ");
  registrations_.clear();
  memory_->deregister();
  adapter_.close();
}

SoviaEnd::Counts SoviaEnd::counts() {
  const Lock lock = guard();
  return counts_;
}

}  // namespace viaduct::bench
