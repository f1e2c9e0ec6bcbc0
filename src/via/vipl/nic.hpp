// An open adapter: what belongs to one VipOpenNic. Protection tags, VIs and completion queues of a program; and what
// does its work (progress.hpp) and calls its notify functions (notify.hpp).
//
// Thread safety: everything may be called from any thread; tags and VIs are under a mutex of its own, which is taken
// before nothing but the locks of the handle tables.
#pragma once

#include <viaduct/vipl.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "via/vipl/adapter.hpp"
#include "via/vipl/notify.hpp"
#include "via/vipl/progress.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

constexpr std::size_t kMostRegisteredBytes = std::size_t{1} << 46;
constexpr std::uint32_t kMostTags = 65536;

class Nic;

struct Ptag {
  const Nic* nic;
  std::uint64_t number;
};

class Nic final : public Adapter {
 public:
  static Result<std::shared_ptr<Nic>> open(std::string name);
  ~Nic();

  void attributes(VIP_NIC_ATTRIBUTES& attributes) const;
  const std::array<VIP_UINT8, 4>& host() const { return host_; }

  // ---- protection tags; NULL is none: a VI that has it may use memory of every tag
  VIP_PROTECTION_HANDLE create_tag();
  VIP_RETURN destroy_tag(VIP_PROTECTION_HANDLE tag);
  bool tag_number(VIP_PROTECTION_HANDLE tag, std::uint64_t& number) const;
  VIP_PROTECTION_HANDLE tag_handle(std::uint64_t number) const;

  // ---- VIs and completion queues of this adapter
  std::shared_ptr<Vi> create_vi(const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag);
  void destroy_vi(Vi& vi);
  std::vector<std::shared_ptr<Vi>> all_vis() const;
  std::atomic<int> cq_count{0};
  bool in_use() const;
  void close();  // gives back what is still held for this adapter: tags, listeners, requests nobody answered
  // Until nobody, no thread here and no peer, copies from or to memory under what was registered before.
  void wait_for_copies();

  Progress& progress() { return progress_; }
  Notifier& notifier() { return notifier_; }

 private:
  explicit Nic(std::string name) : Adapter(std::move(name)) {}
  Status start();

  std::array<VIP_UINT8, 4> host_{};

  mutable std::mutex mutex_;
  std::map<std::uint64_t, VIP_PROTECTION_HANDLE> tags_;
  std::uint64_t next_tag_ = 1;
  std::vector<std::shared_ptr<Vi>> vis_;  // by slot
  std::vector<std::uint32_t> free_slots_;

  Progress progress_{*this};
  Notifier notifier_{progress_};
};

}  // namespace viaduct::vipl
