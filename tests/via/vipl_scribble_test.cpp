// A peer that connects in good order and then writes anything anywhere into the memory it shares with us: rings, bulk
// areas, wait words, our ready queue. Its own connection may break; this process, its adapter and its other connections
// go on.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/random.hpp"
#include "via/vipl_stranger.hpp"

namespace viaduct::vipl::testing {
namespace {

struct Mapping {
  std::uint64_t begin, end;
  bool operator==(const Mapping&) const = default;
};

// Writable shared memory of channels and ready queues.
std::vector<Mapping> shared_mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:viaduct-") == std::string::npos || line.find(" rw-s ") == std::string::npos) continue;
    if (line.find("viaduct-counters") != std::string::npos) continue;
    Mapping mapping{};
    char dash = 0;
    std::istringstream(line) >> std::hex >> mapping.begin >> dash >> mapping.end;
    found.push_back(mapping);
  }
  return found;
}

// Some bytes of it, mostly where headers and indices are.
void scribble(const std::vector<Mapping>& mappings, Random& random) {
  const Mapping& mapping = mappings[random.below(mappings.size())];
  const std::uint64_t size = mapping.end - mapping.begin;
  const std::uint64_t reach = random.chance(0.7) ? std::min<std::uint64_t>(size, 20'000) : size;
  const std::uint64_t at = mapping.begin + random.below(reach - 8);
  const std::uint64_t values[] = {0, 1, ~std::uint64_t{0}, random(), random() & 0xffff, std::uint64_t{1} << 31};
  const std::uint64_t value = values[random.below(6)];
  std::memcpy(reinterpret_cast<void*>(at), &value, std::size_t{1} << random.below(4));
}

constexpr VIP_ULONG kMostTransferred = 1 << 20;
constexpr std::uint32_t kLong = 300'000;  // goes by reference where the level allows it

// The process of the peer: talks sense a little, so that there is something going on, and scribbles.
int vandal(const std::string& name, std::uint64_t seed, VIP_RELIABILITY_LEVEL level, Baton& begin, Baton& done) {
  Random random(seed);
  const std::vector<Mapping> before = shared_mappings();
  Stranger stranger(level, Stranger::Reachable::yes);
  std::vector<std::byte> memory(kLong);
  VIP_MEM_HANDLE handle = 0;
  stranger.offer(reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), &handle);
  stranger.description().max_transfer = kMostTransferred;
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  CHILD_EXPECT(stranger.connect(name));
  CHILD_EXPECT(begin.take());
  for (int i = 0; i < 200; ++i) {
    if (random.chance(0.3)) (void)stranger.say(kSend, std::vector<std::byte>(random.below(3000)));
    if (random.chance(0.05)) (void)stranger.say(kReference, ReferenceHeader{address, handle, kLong, 0, 0});
    if (random.chance(0.05)) (void)stranger.say(kOffer, OfferHeader{address, handle, kLong, 0, kLong / 2, 1, 0, 1});
    if (random.chance(0.05))
      (void)stranger.say(kDirect, DirectHeader{static_cast<std::uint32_t>(random.below(3)), 4000, 0, 0});
    if (random.chance(0.02)) (void)stranger.say(kRest, RestHeader{1, 0});
    if (random.chance(0.02)) (void)stranger.say(kTaken, std::vector<std::byte>());
    std::vector<Mapping> ours = shared_mappings();
    std::erase_if(ours,
                  [&](const Mapping& one) { return std::find(before.begin(), before.end(), one) != before.end(); });
    for (std::uint64_t writes = random.below(4); writes > 0 && !ours.empty(); --writes) scribble(ours, random);
    via::Fragment fragment;
    if (stranger.channel().peek(fragment) == via::Got::fragment) stranger.channel().consume();
  }
  done.give();
  ::pause();  // until killed: its end of the socket stays open
  return 0;
}

enum class How { polling, completion_queue };

class ViplScribble : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Looking, ViplScribble, ::testing::Values(How::polling, How::completion_queue),
                         [](const auto& how) { return how.param == How::polling ? "Polling" : "Cq"; });

TEST_P(ViplScribble, OnlyItsOwnConnectionSuffers) {
  Program program(std::size_t{1} << 20, true, GetParam() == How::polling);
  ErrorLog errors;
  errors.listen(program.nic);
  const VIP_CQ_HANDLE cq = GetParam() == How::completion_queue ? program.make_cq(256) : nullptr;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi({.receive_cq = cq});
  connect_here(program, a, b);
  const VIP_RELIABILITY_LEVEL levels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                          VIP_SERVICE_RELIABLE_RECEPTION};
  int broken = 0;
  const int rounds = viaduct::testing::rounds(120);
  for (int round = 0; round < rounds; ++round) {
    HangGuard guard;
    const std::string name = own_name("scribble") + std::to_string(static_cast<int>(GetParam()));
    Baton begin, done;
    const bool early = round % 4 == 0;  // while we are still connecting
    if (early) begin.give();
    const VIP_RELIABILITY_LEVEL level = levels[round % 3];
    Child peer([&] { return vandal(name, static_cast<std::uint64_t>(round), level, begin, done); });
    const VIP_VI_HANDLE vi = program.make_vi(
        {.level = level, .max_transfer = kMostTransferred, .send_cq = cq, .receive_cq = cq, .rdma_write = true});
    for (std::size_t i = 0; i < 8; ++i)
      ASSERT_EQ(program.post_receive(vi, i, 4096 * i, i % 2 == 0 ? 4096 : kLong), VIP_SUCCESS);
    const VIP_RETURN served = program.serve(name, vi);
    ASSERT_TRUE(served == VIP_SUCCESS || (early && (served == VIP_ERROR_RESOURCE || served == VIP_TIMEOUT))) << served;
    if (!early) begin.give();
    std::atomic<bool> over{false};
    std::thread waiting([&] { over = done.take(); });
    for (int extra = 0; extra < 200; extra += over ? 1 : 0) {
      VIP_DESCRIPTOR* descriptor = nullptr;
      if (VipRecvDone(vi, &descriptor) == VIP_SUCCESS) (void)program.post_receive(vi, descriptor);
      if (VipSendDone(vi, &descriptor) == VIP_DESCRIPTOR_ERROR && descriptor == nullptr)
        (void)program.post_send(vi, 20, 0, round % 2 == 0 ? 100 : kLong);
      VIP_VI_HANDLE which;
      VIP_BOOLEAN receive;
      if (cq != nullptr) (void)VipCQDone(cq, &which, &receive);
      if (!over) std::this_thread::yield();
    }
    waiting.join();
    broken += program.state(vi) == VIP_STATE_ERROR;
    // Everybody else is served.
    ASSERT_EQ(program.post_receive(b, 30, 0, 8), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(a, 31, 0, 8), VIP_SUCCESS);
    ASSERT_EQ(sent(a), program.descriptor(31));
    ASSERT_EQ(received(b), program.descriptor(30));
    ASSERT_EQ(VipDisconnect(vi), served == VIP_SUCCESS ? VIP_SUCCESS : VIP_INVALID_STATE);
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (const auto taken : {VipSendDone, VipRecvDone})
      while (taken(vi, &descriptor) != VIP_NOT_DONE && descriptor != nullptr) {
      }
    peer.kill();
    ASSERT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
    program.forget(vi);
  }
  EXPECT_GT(broken, rounds / 10) << "what was written was hardly ever noticed: is it written where it matters?";
}

}  // namespace
}  // namespace viaduct::vipl::testing
