// A process's side of MemNet: its lines to a server, its sockets, jobs and memory.
//
//   client.cpp     opening, lines, memory
//   look.cpp       what the server says
//   waiting.cpp    who looks, and how those who wait sleep (via/port/leadership.hpp)
//   ClientLine     one connection to one worker of the server
//
// One lock for all of it, held for the copy of some bytes at most. Whoever leads looks at the lines and takes the lock
// for each; nobody leads, waits or calls the program while it holds the lock.
#pragma once

#include <memnet.h>
#include <viaduct/via.hpp>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/waiter.hpp"
#include "memnet/client/client_socket.hpp"
#include "memnet/client/job_table.hpp"
#include "via/port/leadership.hpp"
#include "via/port/port.hpp"

namespace viaduct::memnet {

// What has to be done once the lock is free.
struct Effects {
  bool news = false;  // somebody may wait for what has changed
  std::vector<std::pair<void (*)(void*), void*>> notify;
};

class Client;

class ClientLine {
 public:
  ClientLine(Client& client, via::Connection connection, std::uint32_t slot)
      : client_(client),
        slot_(slot),
        far_(connection.shared == nullptr),
        channel_(std::move(connection.channel)),
        reach_(std::move(connection.reach)) {}

  via::Channel& channel() { return *channel_; }
  std::uint32_t slot() const { return slot_; }
  bool far() const { return far_; }
  bool over() const { return over_; }
  std::size_t sockets() const { return sockets_; }

  // ---- under the client's lock

  // Control messages are never lost: what does not fit goes when there is room.
  void post(Ask ask, std::uint32_t socket, std::span<const std::byte> first = {},
            std::span<const std::byte> second = {});
  template <class Words>
  void post_words(Ask ask, std::uint32_t socket, const Words& words) {
    post(ask, socket, std::as_bytes(std::span(&words, 1)));
  }
  // Bytes of a stream. False: no room now, and the server says when there is.
  bool try_send(Ask ask, std::uint32_t socket, std::span<const iovec> pieces);
  bool has_room();

  std::uint32_t add(std::shared_ptr<ClientSocket> socket);  // a number for one of ours
  void forget(ClientSocket& socket);
  void take_back(ClientSocket& socket);  // one that the server never had

  struct Call {
    bool ended = false;
    int error = 0;
    std::vector<std::byte> value;
  };
  std::uint32_t begin(Call& call) {
    calls_[++last_request_] = &call;
    return last_request_;
  }
  void give_up(std::uint32_t request) { calls_.erase(request); }
  std::uint32_t new_request() { return ++last_request_; }

  // By the leader: everything that has come.
  void receive(Effects& effects);

 private:
  void handle(std::uint32_t immediate, std::span<const std::byte> bytes, Effects& effects);
  void replied(const ReplyWords& words, std::span<const std::byte> value, Effects& effects);
  void accepted(ClientSocket& listener, const AcceptedWords& words, Effects& effects);
  void died(Effects& effects);
  void flush();
  void want_room();
  void tell_room();
  std::shared_ptr<ClientSocket> find(std::uint32_t number) const;

  Client& client_;
  const std::uint32_t slot_;
  const bool far_;
  std::unique_ptr<via::Channel> channel_;
  std::unique_ptr<via::Reach> reach_;  // goes before the channel
  bool over_ = false;
  std::size_t sockets_ = 0;
  struct Message {
    std::uint32_t immediate;
    std::vector<std::byte> bytes;
  };
  std::deque<Message> outbox_;
  std::vector<std::shared_ptr<ClientSocket>> own_, accepted_;
  std::vector<std::uint32_t> free_;  // of own numbers: the server has said `closed`
  std::unordered_map<std::uint32_t, Call*> calls_;
  std::uint32_t last_request_ = 0;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> open(const std::string& server);
  ~Client();

  SpinLock lock;

  // ---- under the lock

  std::shared_ptr<ClientSocket> find(int descriptor) const {
    const auto place = static_cast<std::size_t>(descriptor);
    return descriptor >= 0 && place < sockets_.size() ? sockets_[place] : nullptr;
  }
  int give_descriptor(const std::shared_ptr<ClientSocket>& socket);
  void take_descriptor(ClientSocket& socket);
  JobTable& jobs() { return jobs_; }
  void end_job(Job& job, std::int64_t bytes, int error, Effects& effects);
  void part_ended(Job& job, std::int32_t result, Effects& effects);
  void changed(ClientSocket& socket, Effects& effects);
  std::deque<std::weak_ptr<ClientSocket>>& events() { return events_; }
  void press_receives(ClientSocket& socket, Effects& effects);
  static void quiet(ClientSocket& socket);
  static void push(ClientSocket& socket);
  void press_accepts(ClientSocket& socket, Effects& effects);
  static void grant_accepts(ClientSocket& listener, std::uint32_t more);
  void told_failed(ClientSocket& socket, int error, Effects& effects);
  std::size_t take_from_stash(ClientSocket& socket, std::span<const iovec> pieces, bool peek);
  ClientLine* line_for_new_socket();
  short ready_events(ClientSocket& socket) const;

  struct Memory {
    std::byte* address = nullptr;
    std::uint64_t length = 0;
    via::MemoryKey key = 0;  // 0: free
    std::uint32_t users = 0;
    std::uint32_t uses = 0;
  };
  Memory* find_memory(memnet_mem_t memory);
  Memory& memory_at(std::uint32_t place) { return memory_[place - 1]; }

  // ---- not under the lock

  int register_memory(void* buffer, std::size_t length, memnet_mem_t& memory);
  int deregister_memory(memnet_mem_t memory);
  // A live line; the server is looked for anew if it has gone. 0 or errno.
  int ensure_line();

  void poll();  // looks, if nobody else does
  void deliver(Effects& effects, bool of_a_wait = false);
  enum class Waited { ready, timeout, interrupted };
  // Until `ready`, which is asked under the lock.
  template <class Ready>
  Waited wait(Deadline deadline, Ready ready);
  int descriptor();
  bool prepare();

  // For a child after fork.
  void close_descriptors_in_child();

 private:
  class LeaderSleeper;
  friend class ClientLine;

  Client() = default;
  Status start(const std::string& server);
  Result<std::unique_ptr<ClientLine>> connect(std::uint32_t worker, std::uint32_t& workers);
  int connect_lines();
  void look_as_leader(Effects& effects);
  void visit(std::span<const std::uint64_t> tags, Effects& effects);
  SleepResult sleep_as_leader(Deadline deadline, const Clock& clock);
  void end_preparation(bool tell);
  void has_led();
  static Waiter& waiter();

  std::string server_;
  std::uint64_t number_ = 0;
  std::uint64_t tag_ = 0;
  std::shared_ptr<via::Port> port_;
  via::Leadership leadership_;
  std::unique_ptr<via::ReadyQueue> ready_;  // goes before the channels in it

  std::mutex connect_mutex_;
  std::vector<std::unique_ptr<ClientLine>> lines_;  // by tag, from 1; one that is over stays until it is replaced
  std::vector<std::shared_ptr<ClientSocket>> sockets_;
  std::vector<int> free_descriptors_;
  JobTable jobs_;
  std::vector<Memory> memory_;
  std::vector<std::uint32_t> free_memory_;
  std::deque<std::weak_ptr<ClientSocket>> events_;

  Fd edge_, bell_, nap_;
  std::atomic<bool> uses_descriptor_{false}, prepared_{false}, bell_wanted_{false};
};

// Where S4 of the wait protocol happens: in the ready queue for the leader, on the futex for everybody else.
class Client::LeaderSleeper final : public Sleeper {
 public:
  explicit LeaderSleeper(Client& client) : client_(client) {}
  SleepResult sleep(WaitWord&, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    return client_.leadership_.sleep(armed, deadline, clock, [&] { return client_.sleep_as_leader(deadline, clock); });
  }

 private:
  Client& client_;
};

template <class Ready>
Client::Waited Client::wait(Deadline deadline, Ready ready) {
  const auto look = [&] {
    if (leadership_.try_lead()) {
      Effects effects;
      look_as_leader(effects);
      leadership_.pause();
      has_led();
      deliver(effects, true);
    }
    const std::lock_guard held(lock);
    return ready();
  };
  // Lying down and being woken costs many times what a look does. Whoever else wants the processor, such as the server
  // that has what we wait for, gets it meanwhile.
  constexpr int kYields = 12;
  for (int yields = 0; yields < kYields; ++yields) {
    if (look()) {
      leadership_.leave();
      return Waited::ready;
    }
    ::sched_yield();
  }
  LeaderSleeper sleeper(*this);
  const WaitResult result = waiter().wait(leadership_.word(), sleeper, deadline, look);
  leadership_.leave();
  switch (result) {
    case WaitResult::timeout:
      return Waited::timeout;
    case WaitResult::interrupted:
      return Waited::interrupted;
    case WaitResult::ready:
      break;
  }
  return Waited::ready;
}

// The process's client; opened with the default server where there is none yet. Null: errno says why.
Client* process_client();
Client* process_client_if_any();
bool open_process_client(const char* server);  // null: the default one
int shut_process_client();

}  // namespace viaduct::memnet
