// Kill -9 of either side at any moment of its life, many times over: the other one is told, never hangs, and nothing is
// left behind. VIADUCT_KILL_ROUNDS sets how often; the moment and the kind of life differ from round to round.
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/random.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

enum class Role { server, client, peer };
enum class How { polling, waiting, completion_queue };

struct Life {
  Role role;
  How how;
  VIP_RELIABILITY_LEVEL level;
  std::string name;
};

Life life_of(std::uint64_t round, Role role, const std::string& name) {
  const VIP_RELIABILITY_LEVEL levels[] = {VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION};
  return {role, static_cast<How>(round / 3 % 3), levels[round / 9 % 2], name};
}

// Connects, exchanges messages and reads and writes the other's memory, disconnects, and again; until told to stop or,
// in a victim, for ever. `enough` also ends a life whose peer does not come back.
class Liver {
 public:
  static constexpr std::uint32_t kLongest = 400'000;  // the longer ones go by reference
  static constexpr std::size_t kData = 6 * kLongest;
  static constexpr int kExchanges = 12;
  static constexpr std::size_t kReceives = 4;

  Liver(Program& program, const Life& life)
      : program_(program), life_(life), cq_(life.how == How::completion_queue ? program.make_cq() : nullptr) {
    vi_ = program.make_vi({.level = life.level,
                           .max_transfer = 1 << 19,
                           .send_cq = cq_,
                           .receive_cq = cq_,
                           .rdma_write = true,
                           .rdma_read = true});
  }
  ~Liver() {
    EXPECT_EQ(VipDestroyVi(vi_), VIP_SUCCESS);
    program_.forget(vi_);
    if (cq_ != nullptr) program_.destroy(cq_);
  }

  template <class Enough>
  void live(Enough enough) {
    while (!enough()) {
      for (std::size_t i = 0; i < kReceives; ++i)
        ASSERT_EQ(program_.post_receive(vi_, i, i * kLongest, kLongest), VIP_SUCCESS);
      const VIP_RETURN connected = connect();
      if (connected == VIP_SUCCESS)
        talk();
      else
        ASSERT_TRUE(connected == VIP_TIMEOUT || connected == VIP_NO_MATCH || connected == VIP_ERROR_RESOURCE)
            << connected;
      take_everything_back();
    }
  }
  int connections() const { return connections_; }

 private:
  VIP_RETURN connect() {
    constexpr VIP_ULONG kPatience = 20;
    const VIP_RETURN result = life_.role == Role::server   ? program_.serve(life_.name, vi_, kPatience)
                              : life_.role == Role::client ? program_.request(life_.name, vi_, kPatience)
                                                           : program_.meet(life_.name, life_.name, vi_, kPatience);
    connections_ += result == VIP_SUCCESS;
    return result;
  }

  // The first message tells where the other may read and write; then each in turn.
  void talk() {
    const auto target = reinterpret_cast<std::uint64_t>(program_.data(5 * kLongest));
    std::memcpy(program_.data(4 * kLongest), &target, sizeof target);
    if (!send(program_.prepare(10, {{4 * kLongest, sizeof target}}, VIP_CONTROL_IMMEDIATE, program_.handle))) return;
    VIP_DESCRIPTOR* got = finished(true);
    if (got == nullptr) return;
    const VIP_MEM_HANDLE theirs = got->CS.ImmediateData;
    std::uint64_t address = 0;
    std::memcpy(&address, got->DS[0].Local.Data.Address, sizeof address);
    for (std::uint32_t i = 1; i <= kExchanges; ++i) {
      if (program_.post_receive(vi_, got) != VIP_SUCCESS) return;
      if (!send(program_.prepare_rdma(11, VIP_CONTROL_OP_RDMAWRITE, address, theirs, {{4 * kLongest, kLongest}})) ||
          !send(program_.prepare_rdma(12, VIP_CONTROL_OP_RDMAREAD, address, theirs, {{4 * kLongest, kLongest}})) ||
          !send(program_.prepare(13, {{4 * kLongest, kLongest / kExchanges * i}})))
        return;
      got = finished(true);
      if (got == nullptr) return;
    }
  }

  bool send(VIP_DESCRIPTOR* descriptor) {
    return program_.post_send(vi_, descriptor) == VIP_SUCCESS && finished(false) == descriptor;
  }

  // Null: it failed, and then with the bits that say why.
  VIP_DESCRIPTOR* finished(bool receive) {
    VIP_DESCRIPTOR* descriptor = nullptr;
    VIP_RETURN result = VIP_NOT_DONE;
    if (life_.how == How::waiting) {
      result = receive ? VipRecvWait(vi_, VIP_INFINITE, &descriptor) : VipSendWait(vi_, VIP_INFINITE, &descriptor);
    } else {
      while ((result = receive ? VipRecvDone(vi_, &descriptor) : VipSendDone(vi_, &descriptor)) == VIP_NOT_DONE) {
        VIP_VI_HANDLE which;
        VIP_BOOLEAN of_receive;
        if (life_.how == How::completion_queue)
          (void)VipCQWait(cq_, VIP_INFINITE, &which, &of_receive);
        else
          std::this_thread::yield();
      }
    }
    if (result == VIP_SUCCESS) return descriptor;
    constexpr VIP_UINT32 kLost = VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_TRANSPORT_ERROR;
    EXPECT_EQ(result, VIP_DESCRIPTOR_ERROR);
    EXPECT_TRUE(descriptor != nullptr && (descriptor->CS.Status & kLost) != 0);
    return nullptr;
  }

  void take_everything_back() {
    if (program_.state(vi_) != VIP_STATE_IDLE)
      EXPECT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
    else
      drop_receives();
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (const auto done : {VipSendDone, VipRecvDone})
      while (done(vi_, &descriptor) != VIP_NOT_DONE && descriptor != nullptr) {
      }
    VIP_BOOLEAN no_sends = 0, no_receives = 0;
    EXPECT_EQ(VipQueryVi(vi_, nullptr, nullptr, &no_sends, &no_receives), VIP_SUCCESS);
    EXPECT_TRUE(no_sends && no_receives);
    if (cq_ == nullptr) return;
    VIP_VI_HANDLE which;
    VIP_BOOLEAN of_receive;
    while (VipCQDone(cq_, &which, &of_receive) == VIP_SUCCESS) {
    }
  }
  // An idle VI keeps its receives: another connection attempt that is cancelled gives them back.
  void drop_receives() {
    NetAddress nobody(program_.nic, life_.name + ".nobody"), also(program_.nic, life_.name + ".too");
    ASSERT_EQ(VipConnectPeerRequest(vi_, nobody.get(), also.get(), 1000), VIP_SUCCESS);
    ASSERT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
  }

  Program& program_;
  const Life life_;
  VIP_CQ_HANDLE cq_;
  VIP_VI_HANDLE vi_ = nullptr;
  int connections_ = 0;
};

// Each kind of life has its name: a server may find the request of a victim that has gone, and it must be of its kind.
constexpr int kKinds = 18;

// A server keeps the requests that came while it was busy until it waits again; then those that have left go.
void look_for_requests(Program& program, const std::string& name) {
  for (int kind = 0; kind < kKinds; ++kind) {
    NetAddress local(program.nic, name + "." + std::to_string(kind)), remote;
    VIP_CONN_HANDLE request = nullptr;
    EXPECT_EQ(VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &request), VIP_TIMEOUT);
  }
}

int lines_with(const char* file, std::string_view word) {
  std::ifstream in(file);
  int count = 0;
  for (std::string line; std::getline(in, line);) count += line.find(word) != std::string::npos;
  return count;
}
int mapped() {
  return lines_with("/proc/self/maps", "memfd:viaduct");
}

// An adapter maps its own ready queue once more when the first sleeper is woken from within, and keeps that.
void wake_a_sleeper(Program& program) {
  const HangGuard guard;
  const VIP_CQ_HANDLE cq = program.make_cq();
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  std::atomic<bool> woken{false};
  std::thread sleeper([&] {
    VIP_VI_HANDLE which;
    VIP_BOOLEAN of_receive;
    while (!woken) (void)VipCQWait(cq, 5, &which, &of_receive);
  });
  for (const int before = mapped(); mapped() == before;) {
    connect_here(program, a, b);
    for (const VIP_VI_HANDLE vi : {a, b}) ASSERT_EQ(VipDisconnect(vi), VIP_SUCCESS);
  }
  woken = true;
  sleeper.join();
  for (const VIP_VI_HANDLE vi : {a, b}) {
    ASSERT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
    program.forget(vi);
  }
  program.destroy(cq);
}

// As the names of sockets have a discriminator.
std::string in_hex(const std::string& text) {
  std::string hex;
  for (const char c : text) hex += "0123456789abcdef"[c >> 4], hex += "0123456789abcdef"[c & 15];
  return hex;
}

int rounds_wanted() {
  const char* const said = std::getenv("VIADUCT_KILL_ROUNDS");
  return said != nullptr ? std::atoi(said) : viaduct::testing::rounds(160);
}

class ViplKill : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, ViplKill, ::testing::Bool(),
                         [](const auto& provider) { return provider.param ? "Provider" : "Ordinary"; });

TEST_P(ViplKill, AtAnyMomentLeavesNothing) {
  using viaduct::testing::open_descriptors;
  const std::string name = own_name(GetParam() ? "kill.provider" : "kill");
  const int rounds = rounds_wanted(), warm = std::max(rounds / 4, kKinds);
  (void)counter("via.broken");  // the counters of a process are made once, and stay; so is who looks after the network
  {
    Program first(Liver::kData, true, GetParam());
    look_for_requests(first, name);
  }
  const int descriptors_before = open_descriptors(), mapped_before = mapped();
  Random random(4);
  int connections = 0;
  {
    Program program(Liver::kData, true, GetParam());
    ErrorLog errors;
    errors.listen(program.nic);
    wake_a_sleeper(program);
    int descriptors = 0, mappings = 0;
    std::size_t heap = 0;
    for (int round = 0; round < rounds; ++round) {
      HangGuard guard;
      if (round == warm) {
        look_for_requests(program, name);
        descriptors = open_descriptors();
        mappings = mapped();
        heap = ::mallinfo2().uordblks;
      }
      const auto kind = static_cast<std::uint64_t>(round);
      const Role roles[][2] = {{Role::server, Role::client}, {Role::client, Role::server}, {Role::peer, Role::peer}};
      const std::string here = name + "." + std::to_string(round % kKinds);
      const Life mine = life_of(kind, roles[round % 3][0], here), theirs = life_of(kind, roles[round % 3][1], here);
      const std::uint64_t latest = (round % 4 == 0 ? 1500 : 12'000) * (kSanitized ? 8 : 1);  // it lives more slowly
      const auto moment = static_cast<useconds_t>(random.below(latest));
      Child victim([&] {
        Program own(Liver::kData, true, GetParam());
        ErrorLog quiet;
        quiet.listen(own.nic);
        Liver(own, theirs).live([] { return false; });
        return 1;
      });
      std::atomic<bool> dead{false};
      std::thread killer([&] {
        ::usleep(moment);
        victim.kill();
        EXPECT_EQ(victim.wait(), -SIGKILL);
        dead = true;
      });
      Liver survivor(program, mine);
      survivor.live([&] { return dead.load(); });
      killer.join();
      connections += survivor.connections();
      errors.errors.clear();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
    look_for_requests(program, name);
    EXPECT_EQ(open_descriptors(), descriptors) << "descriptors or sockets are left";
    EXPECT_EQ(mapped(), mappings) << "shared memory is left";
    if (!kSanitized) {
      const std::size_t now = ::mallinfo2().uordblks;
      EXPECT_LT(now, heap + 64 * static_cast<std::size_t>(rounds) + 32'768) << "memory is left";
    }
  }
  EXPECT_GT(connections, rounds / 4) << "most rounds got as far as talking";
  EXPECT_EQ(open_descriptors(), descriptors_before);
  EXPECT_EQ(mapped(), mapped_before);
  EXPECT_EQ(lines_with("/proc/net/unix", in_hex(name)), 0) << "names are left";
}

}  // namespace
}  // namespace viaduct::vipl::testing
