// What the benchmarks of virtual interfaces share: conduits under their names, each added for many sizes.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/conduit.hpp"
#include "bench/conduit_vipl.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

class ViaSuite {
 public:
  ViaSuite(const char* benchmark, const char* title, const Options& options)
      : suite_(benchmark, title), options_(options) {}

  struct Entry {
    const char* who;
    Kind kind;
    ConduitLink* link;
  };

  Result<Entry> connect(const char* who, Kind kind, Result<std::unique_ptr<Conduit>> conduit) {
    if (!conduit) return conduit.error().because(who);
    VIADUCT_TRY(auto link, ConduitLink::make(std::move(*conduit)));
    links_.push_back(std::move(link));
    return Entry{who, kind, links_.back().get()};
  }
  Result<Entry> connect(const char* who, Kind kind, const ViplOptions& options) {
    VIADUCT_TRY(std::unique_ptr<Conduit> conduit, make_vipl(options));
    return connect(who, kind, std::move(conduit));
  }

  // Half a round trip of so many bytes; about `count` of them per sample.
  void add_one_way(const Entry& entry, std::size_t size, std::uint32_t count) {
    suite_.add({size_name(size), entry.who, entry.kind, kOneWay, "us", Better::lower,
                [link = entry.link, size, n = scaled(count)] { return link->one_way_ns(n, size) / 1000; }});
  }
  void add_stream(const Entry& entry, std::size_t size, std::uint32_t count) {
    suite_.add({size_name(size), entry.who, entry.kind, kBandwidth, "GB/s", Better::higher,
                [link = entry.link, size, n = scaled(count)] {
                  return static_cast<double>(size) / link->per_message_ns(n, size);
                }});
  }

  Suite& suite() { return suite_; }
  bool quick() const { return options_.quick; }
  std::uint32_t scaled(std::uint32_t count) const { return options_.quick ? count / 10 + 1 : count; }
  Report run(int rounds) { return suite_.run(options_, rounds); }

  static constexpr const char* kOneWay = "one-way latency";
  static constexpr const char* kBandwidth = "bandwidth";
  static constexpr const char* kFabric = "libfabric shm";
  static constexpr const char* kTcp = "TCP";

 private:
  Suite suite_;
  Options options_;
  std::vector<std::unique_ptr<ConduitLink>> links_;
};

}  // namespace viaduct::bench
