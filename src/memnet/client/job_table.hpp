// Jobs: what was asked of the server and has an end. A job's number is what the server says back and what the program
// holds: its place, and how often the place was used.
//
// Under the client's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace viaduct::memnet {

class ClientLine;
struct ClientSocket;

struct Job {
  enum class State : std::uint8_t { free, pending, ended };
  enum class Kind : std::uint8_t { send, receive, accept };
  std::uint32_t number = 0;
  State state = State::free;
  Kind kind = Kind::send;
  std::uint32_t parts = 0;  // that have not ended
  std::int32_t flags = 0;
  int error = 0;
  std::int64_t bytes = 0;
  ClientLine* line = nullptr;  // it ends with that, if not before
  std::shared_ptr<ClientSocket> socket;
  std::uint32_t memory = 0;  // of a receive: its place in the table of memory, plus one
  std::uint64_t offset = 0, length = 0;
  std::vector<std::uint32_t> memories;  // of a send, likewise: each is in use
  void* context = nullptr;
  void (*notify)(void*) = nullptr;  // instead of a place among the ended
  void* notify_argument = nullptr;
  std::uint32_t next = 0, previous = 0;  // among the ended, places plus one
};

class JobTable {
 public:
  // Null: there are too many.
  Job* take(Job::Kind kind, ClientLine* line, std::shared_ptr<ClientSocket> socket) {
    if (free_.empty()) {
      if (jobs_.size() >= kMostJobsAtOnce) return nullptr;
      jobs_.push_back(std::make_unique<Job>());
      jobs_.back()->number = static_cast<std::uint32_t>(jobs_.size() - 1);
      free_.push_back(jobs_.back()->number);
    }
    Job& job = *jobs_[free_.back()];
    free_.pop_back();
    const std::uint32_t uses = (job.number >> kPlaceBits) + 1;
    const std::uint32_t place = place_of(job.number);
    job.number = place | ((uses & kUsesMask) == 0 ? 1u : uses & kUsesMask) << kPlaceBits;
    job.state = Job::State::pending;
    job.kind = kind;
    job.line = line;
    job.socket = std::move(socket);
    job.parts = 0;
    job.flags = 0;
    job.error = 0;
    job.bytes = 0;
    job.memory = 0;
    job.memories.clear();
    job.context = nullptr;
    job.notify = nullptr;
    job.next = job.previous = 0;
    return &job;
  }
  Job* find(std::uint64_t number) const {
    const std::uint64_t place = number & kPlaceMask;
    if (number == 0 || place >= jobs_.size() || jobs_[place]->number != number) return nullptr;
    return jobs_[place]->state == Job::State::free ? nullptr : jobs_[place].get();
  }
  void give_back(Job& job) {
    if (job.state == Job::State::ended && job.notify == nullptr) leave_ended(job);
    job.state = Job::State::free;
    job.socket.reset();
    free_.push_back(place_of(job.number));
  }
  void ended(Job& job) {
    job.state = Job::State::ended;
    if (job.notify != nullptr) return;
    const std::uint32_t place = place_of(job.number) + 1;
    job.previous = last_;
    job.next = 0;
    (last_ != 0 ? jobs_[last_ - 1]->next : first_) = place;
    last_ = place;
  }
  // It tells its end by itself from now on.
  void leave_ended(Job& job) {
    (job.previous != 0 ? jobs_[job.previous - 1]->next : first_) = job.next;
    (job.next != 0 ? jobs_[job.next - 1]->previous : last_) = job.previous;
    job.next = job.previous = 0;
  }
  Job* first_ended() const { return first_ == 0 ? nullptr : jobs_[first_ - 1].get(); }
  template <class Body>
  void for_each_pending(Body body) {
    for (auto& job : jobs_)
      if (job->state == Job::State::pending) body(*job);
  }

 private:
  static constexpr std::uint32_t kPlaceBits = 20, kPlaceMask = (1u << kPlaceBits) - 1;
  static constexpr std::uint32_t kUsesMask = (1u << (32 - kPlaceBits)) - 1;
  static constexpr std::size_t kMostJobsAtOnce = kPlaceMask;
  static std::uint32_t place_of(std::uint32_t number) { return number & kPlaceMask; }

  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = 0, last_ = 0;
};

}  // namespace viaduct::memnet
