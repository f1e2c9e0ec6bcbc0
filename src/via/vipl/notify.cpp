#include "via/vipl/notify.hpp"

#include <algorithm>
#include <system_error>

#include "base/log.hpp"

namespace viaduct::vipl {

namespace {

template <class T>
void add_once(std::vector<std::shared_ptr<T>>& list, const std::shared_ptr<T>& one) {
  if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
}

}  // namespace

bool Notifier::start() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this, adapter = progress_.adapter().shared_from_this()] { run(); });
  } catch (const std::system_error& error) {
    log::fault(std::string("start the notify thread: ") + error.what());
    return false;
  }
  return true;
}

bool Notifier::add(const std::shared_ptr<Vi>& vi, bool receive, WorkQueue::Request request) {
  {
    const std::lock_guard lock(mutex_);
    if (!start()) return false;
    add_once(vis_, vi);
    const std::lock_guard vi_lock(vi->lock);
    WorkQueue& queue = vi->queue(receive);
    queue.requests.push_back(request);
    queue.waiters.fetch_add(1, std::memory_order_seq_cst);
  }
  progress_.adapter().leadership().tell_waiters();
  return true;
}

bool Notifier::add(const std::shared_ptr<Cq>& cq, Cq::Request request) {
  {
    const std::lock_guard lock(mutex_);
    if (!start()) return false;
    add_once(cqs_, cq);
    cq->add_request(request);
  }
  progress_.adapter().leadership().tell_waiters();
  return true;
}

void Notifier::cancel(Vi& vi) {
  const std::lock_guard lock(mutex_);
  std::erase_if(vis_, [&](const auto& one) { return one.get() == &vi; });
  const std::lock_guard vi_lock(vi.lock);
  for (const bool receive : {false, true}) {
    WorkQueue& queue = vi.queue(receive);
    queue.waiters.fetch_sub(static_cast<int>(queue.requests.size()), std::memory_order_seq_cst);
    queue.requests.clear();
  }
}

void Notifier::cancel(Cq& cq) {
  const std::lock_guard lock(mutex_);
  std::erase_if(cqs_, [&](const auto& one) { return one.get() == &cq; });
}

// Called by the thread itself, from a handler that closes the adapter: then it ends when the handler returns.
void Notifier::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) return thread_.detach();
  progress_.adapter().leadership().tell_waiters();
  thread_.join();
}

void Notifier::run() {
  const VIP_NIC_HANDLE nic = progress_.adapter().handle;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    (void)progress_.wait(Deadline::never(), [this] { return stopping_.load(std::memory_order_seq_cst) || look(); });
    for (const Call& call : std::exchange(calls_, {})) {
      if (call.queue.handler != nullptr)
        call.queue.handler(call.queue.context, nic, call.vi, call.descriptor);
      else
        call.cq.handler(call.cq.context, nic, call.entry.vi, call.entry.receive ? VIP_TRUE : VIP_FALSE);
    }
  }
}

bool Notifier::look() {
  Effects effects{.of_a_wait = true};
  (void)progress_.poll(effects);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(vis_, [&](const auto& vi) { return !take_calls_of(*vi, effects); });
    std::erase_if(cqs_, [&](const auto& cq) { return !take_calls_of(*cq); });
  }
  progress_.adapter().deliver(effects);  // calls the program's error handler, which may ask for notice: without a lock
  return !calls_.empty();
}

// False: it has no request any more.
bool Notifier::take_calls_of(Vi& vi, Effects& effects) {
  bool more = false;
  vi.lock.lock();
  for (const bool receive : {false, true}) {
    WorkQueue& queue = vi.queue(receive);
    while (!queue.requests.empty()) {
      VIP_DESCRIPTOR* descriptor = nullptr;
      (void)vi.take_completed(receive, &descriptor, effects);
      if (descriptor == nullptr) break;
      calls_.push_back({.queue = queue.requests.front(), .descriptor = descriptor, .vi = vi.handle()});
      queue.requests.pop_front();
      queue.waiters.fetch_sub(1, std::memory_order_seq_cst);
    }
    more = more || !queue.requests.empty();
  }
  vi.lock.unlock();
  return more;
}

bool Notifier::take_calls_of(Cq& cq) {
  Cq::Request request{};
  Cq::Entry entry{};
  while (cq.take_request(request, entry)) calls_.push_back({.cq = request, .entry = entry});
  return cq.has_requests();
}

}  // namespace viaduct::vipl
