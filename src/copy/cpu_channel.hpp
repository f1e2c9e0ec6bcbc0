// The CPU channel: worker threads on chosen processors, helped by whoever waits.
//
// Two lanes. Operations of at most kSmall bytes have their own, and a worker looks there before every chunk of a big
// one, so a small copy waits for one chunk at most, however much is queued. Workers spin for a bounded time after their
// last chunk and then park; submitting to a parked worker costs one futex call.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/wait_word.hpp"
#include "copy/channel.hpp"
#include "copy/cost_model.hpp"
#include "copy/operation_table.hpp"
#include "copy/work_queue.hpp"

namespace viaduct::copy {

class CpuChannel final : public Channel {
 public:
  static constexpr std::size_t kSmall = 64 << 10;
  static constexpr std::size_t kChunk =
      128 << 10;  // long enough to amortise, short enough to share and to let small ones in

  // One worker on each of these processors; none: everything is done by the caller.
  CpuChannel(const std::vector<int>& processors, OperationTable& table);

  std::string name() const override;
  Choice choice() const override { return Choice::cpu; }
  bool accepts(const OperationRecord&) const override { return workers_ > 0; }
  Cost cost(bool streaming) const override;
  std::size_t queued_bytes() const override { return queued_.load(std::memory_order_relaxed); }
  void submit(OperationRecord& operation) override;
  bool help(OperationRecord& operation) override;

  int workers() const { return workers_; }
  // What reaching a spinning worker and hearing back costs: a guess until measured.
  void measure_hand_over();
  double hand_over_ns() const { return hand_over_ns_.load(std::memory_order_relaxed); }
  // Is somebody spinning for work? Then a hand-over is cheap.
  bool awake() const { return awake_.load(std::memory_order_relaxed) > 0; }

 private:
  void work(int processor);
  bool work_once();

  OperationTable& table_;
  int workers_ = 0;
  std::atomic<double> hand_over_ns_{500};
  std::vector<int> processors_;
  WorkQueue<OperationRecord*> small_{1024};
  WorkQueue<OperationRecord*> bulk_{4096};
  WaitWord work_word_;
  std::atomic<std::size_t> queued_{0};
  std::atomic<int> awake_{0};
};

}  // namespace viaduct::copy
