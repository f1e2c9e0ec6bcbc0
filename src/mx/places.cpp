#include "mx/places.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "base/meeting.hpp"
#include "mx/boards.hpp"
#include "mx/core.hpp"

namespace viaduct::mx {

via::Place place_of(const std::string& family, const Name& name) {
  const std::string who = meeting::any_user_may(meeting::Peers::by_setting) ? "any" : fmt::format("{}", ::geteuid());
  const std::string which = fmt::format("{}/{:x}/{}", family, name.nic, name.endpoint);
  return {is_loopback(name.nic) ? "" : address_text(name.nic), meeting::fit_name("viaduct/mx/" + who + '/' + which),
          is_loopback(name.nic) ? "" : "mx/" + which};
}

namespace {

constexpr std::size_t kMostHelped = 256;  // at once

std::mutex population_mutex;
std::atomic<std::size_t> population_size{0};
std::size_t next_helped = 0;

std::vector<Core*>& everybody() {
  static auto* const list = new std::vector<Core*>;  // lives as long as any thread
  return *list;
}

void hook_fork() {
  static const int hooked = ::pthread_atfork([] { population_mutex.lock(); }, [] { population_mutex.unlock(); },
                                             [] {
                                               for (Core* const core : everybody()) core->abandon();
                                               everybody().clear();
                                               population_size.store(0);
                                               population_mutex.unlock();
                                             });
  (void)hooked;
}

// ---- partners by number

constexpr std::uint32_t kMostPartners = 1u << 20;
constexpr std::uint32_t kPartnersInABlock = 1024;

struct Block {
  std::array<std::atomic<Partner*>, kPartnersInABlock> partners{};
};
std::mutex partners_mutex;
std::array<std::atomic<Block*>, kMostPartners / kPartnersInABlock> blocks{};
std::uint32_t next_partner = 1;

}  // namespace

void enter_population(Core& core) {
  hook_fork();
  const std::lock_guard lock(population_mutex);
  everybody().push_back(&core);
  population_size.store(everybody().size());
}

void leave_population(Core& core) {
  const std::lock_guard lock(population_mutex);
  std::erase(everybody(), &core);
  population_size.store(everybody().size());
}

std::size_t population() {
  return population_size.load(std::memory_order_relaxed);
}

void help_others(Core& core) {
  if (population() < 2) [[likely]]
    return;
  const std::unique_lock lock(population_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const std::size_t count = everybody().size();
  const std::uint64_t now = Clock::steady().now_ns();
  for (std::size_t i = 0; i < std::min(count, kMostHelped); ++i) {
    Core* const other = everybody()[next_helped++ % count];
    if (other != &core) (void)other->poll_for_another(now);
  }
}

// Numbers are not used twice: who holds on to an old one finds nobody.
std::uint32_t register_partner(Partner* partner) {
  const std::lock_guard lock(partners_mutex);
  if (next_partner == kMostPartners) return 0;
  const std::uint32_t handle = next_partner++;
  std::atomic<Block*>& block = blocks[handle / kPartnersInABlock];
  if (block.load(std::memory_order_relaxed) == nullptr) block.store(new Block, std::memory_order_release);
  block.load(std::memory_order_relaxed)->partners[handle % kPartnersInABlock].store(partner, std::memory_order_release);
  return handle;
}

void unregister_partner(std::uint32_t handle) {
  if (Block* const block = blocks[handle / kPartnersInABlock].load(std::memory_order_acquire); block != nullptr)
    block->partners[handle % kPartnersInABlock].store(nullptr, std::memory_order_release);
}

Partner* registered_partner(std::uint32_t handle) {
  if (handle == 0 || handle >= kMostPartners) return nullptr;
  const Block* const block = blocks[handle / kPartnersInABlock].load(std::memory_order_acquire);
  return block == nullptr ? nullptr : block->partners[handle % kPartnersInABlock].load(std::memory_order_acquire);
}

}  // namespace viaduct::mx
