// Ranks that send each other messages of random sizes by a plan that all know: exact receives, receives from anybody,
// probes, cancels, sends that wait for their receive. Every byte is checked, and every order.
#pragma once

#include <viaduct/mx_extensions.h>
#include <viaduct/myriexpress.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "base/child.hpp"
#include "base/random.hpp"

namespace viaduct::mx::testing {

struct SoakPlan {
  int ranks = 4;
  std::uint32_t messages = 200;  // from each to each, also to oneself
  std::uint64_t seed = 1;
  std::uint32_t largest = 300'000;
};

class SoakRank {
 public:
  SoakRank(const SoakPlan& plan, int rank, mx_endpoint_t endpoint, std::vector<mx_endpoint_addr_t> others)
      : plan_(plan), rank_(rank), endpoint_(endpoint), others_(std::move(others)), random_(plan.seed * 977 + rank) {}

  // The exit code.
  int run() {
    for (int source = 0; source < plan_.ranks; ++source)
      for (std::uint32_t i = 0; i < plan_.messages; ++i) ++expected_[which(source, rank_, i).kind];
    while (!done()) {
      start_sends();
      post_receives();
      if (!probe_some()) return 1;
      if (random_.below(8) == 0) post_and_cancel();
      if (!finish_some()) return 1;
    }
    return say_goodbye() ? 0 : 1;
  }

 private:
  enum Kind { ordered, anybody, probed, kKinds };
  static constexpr std::size_t kWindow = 12;
  static constexpr std::uint64_t kIndexMask = 0xffffffff;

  struct Which {
    Kind kind;
    std::uint32_t size;
    bool until_matched;
  };
  Which which(int from, int to, std::uint32_t i) const {
    Random random((plan_.seed << 40) + (std::uint64_t(from) << 28) + (std::uint64_t(to) << 20) + i);
    const auto kind = static_cast<Kind>(random.below(kKinds));
    // Most are short; every class of message is among them.
    const std::uint64_t bits = random.below(20);
    const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(random.below(1ull << bits), plan_.largest));
    return {kind, size, random.below(10) == 0};
  }
  static std::uint64_t match_of(int from, Kind kind, std::uint32_t i) {
    return std::uint64_t(from) << 48 | std::uint64_t(kind) << 40 | i;
  }
  static std::uint8_t byte_of(std::uint64_t match, int to, std::size_t at) {
    return static_cast<std::uint8_t>((match ^ match >> 40) * 31 + static_cast<unsigned>(to) * 17 + at * 7 + (at >> 8));
  }

  struct Transfer {
    mx_request_t request = nullptr;
    std::vector<std::uint8_t> bytes;
  };

  bool done() const {
    return sends_.empty() && receives_.empty() && next_to_ == plan_.ranks * std::uint64_t{plan_.messages} &&
           got_[ordered] == expected_[ordered] && got_[anybody] == expected_[anybody] &&
           got_[probed] == expected_[probed];
  }

  // Message by message to everybody in turn.
  void start_sends() {
    while (sends_.size() < kWindow && next_to_ < plan_.ranks * std::uint64_t{plan_.messages}) {
      const int to = static_cast<int>((next_to_ + rank_) % plan_.ranks);
      const auto i = static_cast<std::uint32_t>(next_to_ / plan_.ranks);
      const Which message = which(rank_, to, i);
      const std::uint64_t match = match_of(rank_, message.kind, i);
      Transfer& transfer = sends_.emplace_back();
      transfer.bytes.resize(message.size);
      for (std::size_t at = 0; at < message.size; ++at) transfer.bytes[at] = byte_of(match, to, at);
      mx_segment_t segments[3];
      const std::uint32_t count = cut(transfer, segments);
      const auto send = message.until_matched ? mx_issend : mx_isend;
      if (send(endpoint_, segments, count, others_[to], match, nullptr, &transfer.request) != MX_SUCCESS) std::abort();
      ++next_to_;
    }
  }

  // In one to three segments.
  std::uint32_t cut(Transfer& transfer, mx_segment_t* segments) {
    const auto size = static_cast<std::uint32_t>(transfer.bytes.size());
    std::uint32_t at = 0, count = 0;
    for (; count < 2 && random_.below(2) == 0; ++count) {
      const auto part = static_cast<std::uint32_t>(random_.below(size - at + 1));
      segments[count] = {transfer.bytes.data() + at, part};
      at += part;
    }
    segments[count++] = {transfer.bytes.data() + at, size - at};
    return count;
  }

  void post(std::uint64_t match, std::uint64_t mask, std::size_t size) {
    Transfer& transfer = receives_.emplace_back();
    transfer.bytes.resize(size);
    mx_segment_t segments[3];
    const std::uint32_t count = cut(transfer, segments);
    if (mx_irecv(endpoint_, segments, count, match, mask, nullptr, &transfer.request) != MX_SUCCESS) std::abort();
  }

  // The ordered ones by their source, whatever comes next from it; others from anybody. One at least for each, so that
  // whatever anybody waits to send goes on; some more by chance.
  void post_receives() {
    open_by_source_.resize(plan_.ranks);
    for (int source = 0; source < plan_.ranks; ++source)
      while (posted_from(source) < planned_from(source) && (open_by_source_[source] == 0 || post_another())) {
        ++posted_by_source_[source];
        ++posted_[ordered];
        ++open_by_source_[source];
        post(match_of(source, ordered, 0), ~kIndexMask, plan_.largest);
      }
    while (posted_[anybody] < expected_[anybody] && (posted_[anybody] == got_[anybody] || post_another())) {
      ++posted_[anybody];
      post(match_of(0, anybody, 0), std::uint64_t{0xff} << 40, plan_.largest);
    }
  }
  bool post_another() { return receives_.size() < kWindow && random_.below(2) == 0; }
  std::uint32_t posted_from(int source) {
    posted_by_source_.resize(plan_.ranks);
    return posted_by_source_[source];
  }
  std::uint32_t planned_from(int source) {
    if (planned_.empty())
      for (int from = 0; from < plan_.ranks; ++from) {
        planned_.push_back(0);
        for (std::uint32_t i = 0; i < plan_.messages; ++i)
          planned_.back() += which(from, rank_, i).kind == ordered ? 1 : 0;
      }
    return planned_[source];
  }

  bool probe_some() {
    mx_status_t status;
    std::uint32_t result = 0;
    const std::uint64_t match = match_of(0, probed, 0), mask = std::uint64_t{0xff} << 40;
    if (mx_iprobe(endpoint_, match, mask, &status, &result) != MX_SUCCESS) return false;
    if (result == 0) return true;
    post(status.match_info, MX_MATCH_MASK_NONE, status.msg_length);
    return true;
  }

  void post_and_cancel() {
    char byte;
    mx_segment_t segment{&byte, 1};
    mx_request_t request;
    std::uint32_t result = 0;
    if (mx_irecv(endpoint_, &segment, 1, std::uint64_t{0xee} << 40, MX_MATCH_MASK_NONE, nullptr, &request) !=
        MX_SUCCESS)
      std::abort();
    if (mx_cancel(endpoint_, &request, &result) != MX_SUCCESS || result != 1) std::abort();
  }

  bool finish_some() {
    bool waited = false;
    for (auto* const list : {&sends_, &receives_})
      for (auto one = list->begin(); one != list->end();) {
        mx_status_t status;
        std::uint32_t result = 0;
        // Now and then it sleeps.
        const bool wait = !waited && random_.below(16) == 0;
        waited |= wait;
        const mx_return_t code = wait ? mx_wait(endpoint_, &one->request, 2, &status, &result)
                                      : mx_test(endpoint_, &one->request, &status, &result);
        if (code != MX_SUCCESS) return false;
        if (result == 0) {
          ++one;
          continue;
        }
        if (status.code != MX_STATUS_SUCCESS) {
          std::fprintf(stderr, "rank %d: %s\n", rank_, mx_strstatus(status.code));
          return false;
        }
        if (list == &receives_ && !check(status, one->bytes)) return false;
        one = list->erase(one);
      }
    return true;
  }

  bool check(const mx_status_t& status, const std::vector<std::uint8_t>& bytes) {
    const int source = static_cast<int>(status.match_info >> 48);
    const auto kind = static_cast<Kind>(status.match_info >> 40 & 0xff);
    const auto i = static_cast<std::uint32_t>(status.match_info);
    const Which message = which(source, rank_, i);
    bool good = kind == message.kind && status.msg_length == message.size && status.xfer_length == message.size;
    for (std::size_t at = 0; good && at < message.size; ++at) good = bytes[at] == byte_of(status.match_info, rank_, at);
    if (kind == ordered && good) {
      // They match in order, and may finish out of it.
      seen_ordered_.resize(plan_.ranks);
      seen_ordered_[source].push_back(i);
      --open_by_source_[source];
    }
    ++got_[kind];
    if (!good)
      std::fprintf(stderr, "rank %d: message %u of kind %d from %d is wrong (%u of %u bytes)\n", rank_, i, kind, source,
                   status.xfer_length, message.size);
    return good;
  }

  // Nobody closes before all have all.
  bool say_goodbye() {
    for (auto& seen : seen_ordered_) {
      std::sort(seen.begin(), seen.end());
      if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) return false;
    }
    std::vector<mx_request_t> requests(2 * static_cast<std::size_t>(plan_.ranks));
    constexpr std::uint64_t kBye = std::uint64_t{0xbb} << 40;
    for (int other = 0; other < plan_.ranks; ++other) {
      if (mx_irecv(endpoint_, nullptr, 0, kBye | std::uint64_t(other) << 48, MX_MATCH_MASK_NONE, nullptr,
                   &requests[2 * other]) != MX_SUCCESS ||
          mx_issend(endpoint_, nullptr, 0, others_[other], kBye | std::uint64_t(rank_) << 48, nullptr,
                    &requests[2 * other + 1]) != MX_SUCCESS)
        return false;
    }
    for (mx_request_t& request : requests) {
      mx_status_t status;
      std::uint32_t result = 0;
      if (mx_wait(endpoint_, &request, 30000, &status, &result) != MX_SUCCESS || result == 0) return false;
      // Who has heard everybody's goodbye may be gone before its own word back has come.
      if (status.code != MX_STATUS_SUCCESS && status.code != MX_STATUS_ENDPOINT_CLOSED) return false;
    }
    return true;
  }

  const SoakPlan plan_;
  const int rank_;
  const mx_endpoint_t endpoint_;
  const std::vector<mx_endpoint_addr_t> others_;
  Random random_;
  std::uint64_t next_to_ = 0;
  std::deque<Transfer> sends_, receives_;
  std::uint32_t expected_[kKinds]{}, posted_[kKinds]{}, got_[kKinds]{};
  std::vector<std::uint32_t> posted_by_source_, planned_, open_by_source_;
  std::vector<std::vector<std::uint32_t>> seen_ordered_;
};

// A rank from its opening to its end. `nic_of` says where another one is.
template <class NicOf>
int soak_rank(const SoakPlan& plan, int rank, std::uint32_t board, std::uint32_t first_number, NicOf nic_of) {
  mx_set_error_handler(MX_ERRORS_RETURN);
  CHILD_EXPECT(mx_init() == MX_SUCCESS);
  mx_endpoint_t endpoint;
  CHILD_EXPECT(mx_open_endpoint(board, first_number + static_cast<std::uint32_t>(rank), 9, nullptr, 0, &endpoint) ==
               MX_SUCCESS);
  std::vector<mx_endpoint_addr_t> others(static_cast<std::size_t>(plan.ranks));
  for (int other = 0; other < plan.ranks; ++other)
    CHILD_EXPECT(mx_connect(endpoint, nic_of(other), first_number + static_cast<std::uint32_t>(other), 9, 30000,
                            &others[static_cast<std::size_t>(other)]) == MX_SUCCESS);
  const int code = SoakRank(plan, rank, endpoint, others).run();
  CHILD_EXPECT(mx_close_endpoint(endpoint) == MX_SUCCESS);
  CHILD_EXPECT(mx_finalize() == MX_SUCCESS);
  return code;
}

// Longer runs by hand: VIADUCT_MX_SOAK=50 is fifty times the messages.
inline SoakPlan soak_plan(int ranks, std::uint32_t messages) {
  const char* const wanted = std::getenv("VIADUCT_MX_SOAK");
  const std::uint32_t times = wanted != nullptr ? static_cast<std::uint32_t>(std::max(1, std::atoi(wanted))) : 1;
  if (times > 1) ::alarm(0);
  return {.ranks = ranks,
          .messages = static_cast<std::uint32_t>(viaduct::testing::rounds(static_cast<int>(messages)) * times),
          .seed = static_cast<std::uint64_t>(::getpid())};
}

}  // namespace viaduct::mx::testing
