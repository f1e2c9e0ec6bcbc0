// The engine: one per process, made on first use; a forked child gets a fresh one.
//
// It keeps the table of operations, decides by cost who executes each, holds back those that must wait for others, and
// lets whoever waits help. Small unordered copies never come here as operations at all: they are done by their caller
// at once.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <viaduct/copy.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "copy/channel.hpp"
#include "copy/cpu_channel.hpp"
#include "copy/cuda_channel.hpp"
#include "copy/operation.hpp"
#include "copy/operation_table.hpp"
#include "copy/region.hpp"

namespace viaduct::copy {

class Engine {
 public:
  static Engine& process();

  // What a caller asks for. `pieces` has more than one entry for batches only.
  struct Request {
    Work work = Work::copy;
    int fill_byte = 0;
    std::span<const Piece> pieces;
    Options options;
  };

  // Returns a cookie, or minus an errno value.
  Cookie start(const Request& request);
  // The same and wait, without an operation where the caller is the cheapest. 0 or an errno value.
  int run(const Request& request);

  // 1 complete, 0 in progress; minus an errno value: how it failed, or EINVAL for a cookie unknown here. An end is
  // reported once: the cookie is gone with it.
  int check(Cookie cookie);
  int wait(Cookie cookie);  // 0, or minus an errno value
  std::int64_t ready_bytes(Cookie cookie);
  bool resume_when_finished(Cookie cookie, std::coroutine_handle<> waiting);

  std::vector<ChannelReport> report();

 private:
  explicit Engine(std::uint32_t generation);
  static void abandon_in_child();

  using Held = OperationTable::Held;

  // Order.
  void gather_predecessors(OperationRecord& record, const Options& options);
  Held unfinished_predecessor(const OperationRecord& record);
  void hold_back(OperationRecord& record);
  void dispatch_held();
  void dispatch(OperationRecord& record);

  // Choice.
  const CostModel& model();                        // measures on first use
  const CostModel& model_for(std::size_t length);  // measures once it is worth it
  bool streams(const Request& request, std::size_t length);
  Manner manner_of(const Request& request, std::size_t length);
  int choose(const OperationRecord& record, Choice wanted, Channel*& channel);
  CudaChannel* cuda(bool demanded);
  CudaChannel* cuda_failed(std::string why);

  void wait_until_finished(OperationRecord& record);
  void execute_here(OperationRecord& record);

  OperationTable table_;
  std::unique_ptr<CpuChannel> cpu_;
  std::once_flag measured_;
  std::atomic<std::size_t> asked_{0};  // bytes of copies that were decided by the model
  CudaUse cuda_use_{CudaSettings::from_config().library};
  std::mutex cuda_mutex_;
  std::unique_ptr<CudaChannel> cuda_;
  std::unique_ptr<RegionWatcher> stable_regions_;  // tells the GPU's pin cache of engine-owned memory
  std::atomic<CudaChannel*> cuda_ready_{nullptr};
  std::atomic<bool> cuda_hopeless_{false};  // tried, and will not be tried again
  std::mutex report_mutex_;
  std::string cuda_missing_;  // why

  // Operations whose predecessors are still under way; each holds a reference.
  std::atomic<std::uint32_t> held_count_{0};
  std::mutex held_mutex_;
  std::vector<OperationRecord*> held_;
};

}  // namespace viaduct::copy
