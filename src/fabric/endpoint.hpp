// An endpoint: fi_ep_*, over one endpoint of `mx`. Messages without tags and with tags are matched in spaces of their
// own; what has to be asked of the owner of memory travels as control messages (remote.cpp).
//
// Files: endpoint.cpp (life, binding, options), messages.cpp (sending, receiving, looking), completions.cpp (what the
// endpoint below tells), remote.cpp (reading and writing memory of peers), remote_answers.cpp (what peers ask of ours),
// paths.cpp (VIADUCT_FABRIC_PATHS),
// calls_message.cpp, calls_tagged.cpp, calls_rma.cpp, calls_atomic.cpp (the exported forms).
//
// Locks: `lock_` guards operations and keys, and is taken under that of the endpoint below, never around a call of it.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <viaduct/mx.hpp>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.hpp"
#include "fabric/addresses.hpp"
#include "fabric/completion_queue.hpp"
#include "fabric/counter.hpp"
#include "fabric/domain.hpp"
#include "fabric/operation.hpp"
#include "fabric/remote_wire.hpp"

namespace viaduct::fabric {

inline constexpr mx::Space kPlain = 0, kTagged = 1;

int error_of(mx::Status status);  // of FI_E*; 0: none

class Endpoint final : public fid_ep, private mx::Events {
 public:
  static int open(Domain& domain, fi_info* info, fid_ep** endpoint, void* context);
  static Endpoint& of(fid_t handle) { return static_cast<Endpoint&>(*reinterpret_cast<fid_ep*>(handle)); }
  static Endpoint& of(fid_ep* ep) { return static_cast<Endpoint&>(*ep); }
  ~Endpoint();

  mx::Endpoint& below() { return *below_; }
  void progress();

  // ---- what programs ask for; 0, or minus an error of libfabric

  struct Outgoing {
    std::span<const iovec> bytes;
    fi_addr_t to = FI_ADDR_UNSPEC;
    mx::Space space = kPlain;
    std::uint64_t tag = 0;
    bool has_data = false;
    std::uint64_t data = 0;
    void* context = nullptr;
    std::uint64_t flags = 0;
    bool silent = false;  // injected by a call that tells no completion
  };
  ssize_t send(const Outgoing& message);

  struct Incoming {
    std::span<const iovec> into;
    fi_addr_t from = FI_ADDR_UNSPEC;
    mx::Space space = kPlain;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;
    void* context = nullptr;
    std::uint64_t flags = 0;
  };
  ssize_t receive(const Incoming& wanted);

  struct Remote {
    RemoteKind kind = RemoteKind::read;
    std::span<const iovec> pieces{};  // local
    fi_addr_t peer = FI_ADDR_UNSPEC;
    std::uint64_t address = 0, key = 0;
    std::uint64_t length = 0;  // there
    bool has_data = false;
    std::uint64_t data = 0;
    std::vector<std::byte> operands{};
    fi_datatype datatype = FI_UINT8;
    fi_op op = FI_MIN;
    void* context = nullptr;
    std::uint64_t flags = 0;
    bool silent = false;
  };
  ssize_t reach(const Remote& wanted);

  ssize_t cancel(void* context);

  // As calls without flags of their own have them.
  std::uint64_t send_flags() const { return send_flags_; }
  std::uint64_t receive_flags() const { return receive_flags_; }

 private:
  Endpoint(Domain& domain, const fi_info& info, void* context);

  // endpoint.cpp
  int start(const fi_info& info);
  int bind(fid_t to, std::uint64_t flags);
  int bind_queue(CompletionQueue& queue, std::uint64_t flags);
  int bind_counter(Counter& counter, std::uint64_t flags);
  int control(int command, void* argument);
  void leave_all();
  mx::Partner* partner_at(fi_addr_t address);
  fi_addr_t address_at(mx::Partner* partner);
  static fi_ops kOps;
  static fi_ops_ep kEndpointOps;
  static fi_ops_cm kNameOps;
  static fi_ops_msg kMessageOps;
  static fi_ops_tagged kTaggedOps;
  static fi_ops_rma kRemoteOps;
  static fi_ops_atomic kAtomicOps;
  friend struct EndpointCalls;

  // messages.cpp
  Operation* begin(Operation::Kind kind, void* context, std::uint64_t flags);  // null: too many are under way
  void began(Operation& operation, std::uint64_t number, mx::Request* request);
  void over(Operation& operation);  // under lock_
  void free(Operation& operation);
  ssize_t peek(const Incoming& wanted);
  ssize_t receive_claimed(const Incoming& wanted);
  ssize_t receive_several(const Incoming& wanted);
  void post_several(Operation& operation);
  static mx::Receive like(const Incoming& wanted, mx::Partner* from);

  // completions.cpp
  bool completed(mx::Request* request, const mx::Completion& completion) override;
  void control(mx::Partner* partner, std::uint32_t word, std::span<const std::byte> bytes) override;
  void partner_gone(mx::Partner* partner, mx::Status why) override;
  void tell_sent(Operation& operation, const mx::Completion& completion);
  void tell_received(Operation& operation, const mx::Completion& completion);
  void one_of_several(Operation& operation, const mx::Completion& completion);
  void tell_reached(Operation& operation, int error);

  // remote.cpp
  struct Known {  // of a peer's key
    bool asked = false;
    std::uint32_t key = 0;
    std::uint64_t address = 0, length = 0;
    std::vector<Operation*> waiting;
  };
  using KeyOf = std::pair<mx::Partner*, std::uint64_t>;
  void go_to(Operation& operation);
  void go_there(Operation& operation, std::uint32_t key, std::uint64_t address);
  void reached(Operation& operation, const mx::Completion& completion);
  void finish(Operation& operation, int error);
  void ask_for_key(mx::Partner* partner, std::uint64_t key);
  void ask_owner(Operation& operation);
  void write_notice(const Operation& operation);
  void hear_key(mx::Partner* partner, std::span<const std::byte> bytes);
  void hear_answer(mx::Partner* partner, std::span<const std::byte> bytes);
  void fail_all_with(mx::Partner* partner, int error);
  void say(mx::Partner* partner, RemoteWord word, std::vector<std::byte> bytes);
  void say_what_waits();

  // remote_answers.cpp
  void answer_key(mx::Partner* partner, std::span<const std::byte> bytes);
  void answer_ask(mx::Partner* partner, std::span<const std::byte> bytes);
  void hear_notice(std::span<const std::byte> bytes);

  // paths.cpp
  void tell_rank(mx::Partner* partner);
  void hear_rank(mx::Partner* partner, std::span<const std::byte> bytes);

  Domain& domain_;
  const std::uint64_t caps_;
  std::uint64_t send_flags_, receive_flags_;
  std::size_t least_room_ = 64;  // FI_OPT_MIN_MULTI_RECV
  bool enabled_ = false;
  std::unique_ptr<mx::Endpoint> below_;

  Addresses* addresses_ = nullptr;
  CompletionQueue* send_queue_ = nullptr;
  CompletionQueue* receive_queue_ = nullptr;
  bool send_selects_ = false, receive_selects_ = false;
  Counter* counters_[6] = {};  // by CountOf
  enum CountOf { kSends, kReceives, kReads, kWrites, kRemoteReads, kRemoteWrites };
  void count(CountOf what, bool good) {
    if (counters_[what] != nullptr) counters_[what]->count(good);
  }

  SpinLock lock_;
  std::deque<Operation> pool_;
  Operation* free_ = nullptr;
  Operation live_;  // head of the list of those under way
  std::size_t under_way_ = 0;
  std::uint64_t next_number_ = 1;
  int cancelling_ = 0;
  std::vector<mx::Request*> left_over_;  // over, but somebody was about to cancel them
  std::unordered_map<void*, mx::Message*> claimed_;
  std::vector<mx::Partner*> partners_;  // by fi_addr_t
  std::map<KeyOf, Known> keys_;
  std::unordered_map<std::uint64_t, Operation*> asked_;  // by number: answered by the owner
  struct Words {
    mx::Partner* partner;
    RemoteWord word;
    std::vector<std::byte> bytes;
  };
  std::deque<Words> unsaid_;  // there was no room
};

}  // namespace viaduct::fabric
