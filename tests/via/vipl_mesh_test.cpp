// Eight processes, each connected to every other, all talking at once.
#include "base/random.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::size_t kProcesses = 8;
constexpr std::uint32_t kMessages = 200;
// Nobody is more than one message ahead of what it has received: so four receives are always enough.
constexpr std::size_t kReceives = 4;
constexpr std::uint32_t kAhead = 1;
constexpr std::uint32_t kLongest = 3000;

struct Message {
  std::uint32_t from;
  std::uint32_t number;
  std::uint32_t length;
};

std::uint32_t length_of(std::size_t from, std::size_t to, std::uint32_t number) {
  Random random(from * 1'000'003 + to * 1009 + number);
  return static_cast<std::uint32_t>(sizeof(Message) + random.below(kLongest - sizeof(Message)));
}

struct Partner {
  std::size_t who;
  VIP_VI_HANDLE vi = nullptr;
  std::uint32_t sent = 0, received = 0;
  bool sending = false;
};

class Member {
 public:
  Member(std::size_t self, const std::string& name) : self_(self) {
    cq_ = program_.make_cq(1024);
    for (std::size_t other = 0; other < kProcesses; ++other) {
      if (other == self) continue;
      partners_.push_back({.who = other, .vi = program_.make_vi({.send_cq = cq_, .receive_cq = cq_})});
      for (std::size_t i = 0; i < kReceives; ++i) post_receive(partners_.size() - 1, i);
    }
    for (Partner& partner : partners_) {
      NetAddress mine(program_.nic, name + std::to_string(self)),
          theirs(program_.nic, name + std::to_string(partner.who));
      ok_ = ok_ && VipConnectPeerRequest(partner.vi, mine.get(), theirs.get(), kSoon) == VIP_SUCCESS;
    }
    for (std::size_t connected = 0; ok_ && connected < partners_.size();) {
      connected = 0;
      for (Partner& partner : partners_) {
        if (program_.state(partner.vi) == VIP_STATE_CONNECTED)
          ++connected;
        else if (const VIP_RETURN done = VipConnectPeerDone(partner.vi, nullptr);
                 done != VIP_NOT_DONE && done != VIP_SUCCESS)
          ok_ = false;
      }
      ::usleep(200);
    }
  }

  bool talk() {
    while (ok_ && !finished()) {
      for (std::size_t i = 0; i < partners_.size(); ++i) send_next(i);
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = 0;
      if (VipCQWait(cq_, kSoon, &vi, &receive) != VIP_SUCCESS) return false;
      for (std::size_t i = 0; i < partners_.size(); ++i)
        if (partners_[i].vi == vi) ok_ = receive ? take_received(i) : take_sent(i);
    }
    return ok_;
  }

 private:
  bool finished() const {
    for (const Partner& partner : partners_)
      if (partner.sent != kMessages || partner.received != kMessages || partner.sending) return false;
    return true;
  }
  void post_receive(std::size_t partner, std::size_t i) {
    const std::size_t index = partner * kReceives + i;
    ok_ = ok_ && program_.post_receive(partners_[partner].vi, index, index * kLongest, kLongest) == VIP_SUCCESS;
  }
  void send_next(std::size_t i) {
    Partner& partner = partners_[i];
    if (partner.sending || partner.sent == kMessages || partner.sent > partner.received + kAhead) return;
    const std::uint32_t length = length_of(self_, partner.who, partner.sent);
    const std::size_t at = (40 + i) * kLongest;
    const Message message{static_cast<std::uint32_t>(self_), partner.sent, length};
    std::memcpy(program_.data(at), &message, sizeof message);
    fill(program_.data(at + sizeof message), length - sizeof message, partner.sent);
    VIP_DESCRIPTOR* const descriptor = program_.prepare(40 + i, {{at, length}}, VIP_CONTROL_IMMEDIATE, partner.sent);
    ok_ = ok_ && program_.post_send(partner.vi, descriptor) == VIP_SUCCESS;
    partner.sending = true;
    ++partner.sent;
  }
  bool take_sent(std::size_t i) {
    VIP_DESCRIPTOR* descriptor = nullptr;
    partners_[i].sending = false;
    return VipSendDone(partners_[i].vi, &descriptor) == VIP_SUCCESS && descriptor == program_.descriptor(40 + i);
  }
  bool take_received(std::size_t i) {
    Partner& partner = partners_[i];
    VIP_DESCRIPTOR* descriptor = nullptr;
    if (VipRecvDone(partner.vi, &descriptor) != VIP_SUCCESS) return false;
    const auto* const bytes = static_cast<const std::byte*>(descriptor->DS[0].Local.Data.Address);
    Message message;
    std::memcpy(&message, bytes, sizeof message);
    const bool right = message.from == partner.who && message.number == partner.received &&
                       descriptor->CS.Length == message.length && descriptor->CS.ImmediateData == message.number &&
                       message.length == length_of(partner.who, self_, partner.received) &&
                       filled(bytes + sizeof message, message.length - sizeof message, message.number);
    ++partner.received;
    return right && program_.post_receive(partner.vi, descriptor) == VIP_SUCCESS;
  }

  Program program_;
  const std::size_t self_;
  VIP_CQ_HANDLE cq_;
  std::vector<Partner> partners_;
  bool ok_ = true;
};

TEST(ViplMesh, EightProcessesAllToAll) {
  HangGuard guard;
  const std::string name = own_name("mesh");
  std::vector<std::unique_ptr<Child>> children;
  Baton finished[kProcesses], go[kProcesses];
  for (std::size_t i = 0; i < kProcesses; ++i)
    children.push_back(std::make_unique<Child>([&, i] {
      Member member(i, name);
      const bool talked = member.talk();
      finished[i].give();
      CHILD_EXPECT(go[i].take());  // nobody hangs up while others still receive
      CHILD_EXPECT(talked);
      return 0;
    }));
  for (Baton& one : finished) EXPECT_TRUE(one.take());
  for (Baton& one : go) one.give();
  for (auto& child : children) EXPECT_EQ(child->wait(), 0);
}

}  // namespace
}  // namespace viaduct::vipl::testing
