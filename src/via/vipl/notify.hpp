// Notify functions: a thread of the adapter, started by the first request, calls each handler once for one completion.
//
// Requests of one queue are served in order. A handler runs without any lock and may call every VIPL function.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "via/vipl/cq.hpp"
#include "via/vipl/progress.hpp"

namespace viaduct::vipl {

class Notifier {
 public:
  explicit Notifier(Progress& progress) : progress_(progress) {}
  ~Notifier() { stop(); }
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // False: no thread could be started.
  bool add(const std::shared_ptr<Vi>& vi, bool receive, WorkQueue::Request request);
  bool add(const std::shared_ptr<Cq>& cq, Cq::Request request);
  // Forgets requests of what is about to be destroyed.
  void cancel(Vi& vi);
  void cancel(Cq& cq);
  void stop();

 private:
  struct Call {  // one of the two
    WorkQueue::Request queue{};
    VIP_DESCRIPTOR* descriptor = nullptr;
    Cq::Request cq{};
    Cq::Entry entry{};
    VIP_VI_HANDLE vi = nullptr;
  };

  bool start();
  void run();
  bool look();
  bool take_calls_of(Vi& vi, Effects& effects);
  bool take_calls_of(Cq& cq);

  Progress& progress_;
  std::mutex mutex_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::vector<std::shared_ptr<Vi>> vis_;  // that have requests
  std::vector<std::shared_ptr<Cq>> cqs_;
  std::vector<Call> calls_;  // found by look(), made by run(): the thread's own
};

}  // namespace viaduct::vipl
