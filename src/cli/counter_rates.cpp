#include "cli/counter_rates.hpp"

namespace viaduct::cli {

std::vector<ProcessLines> CounterRates::update(const std::vector<ProcessCounters>& reading, std::uint64_t now_ns) {
  std::map<Key, std::uint64_t> now;
  std::vector<ProcessLines> lines;
  const double seconds = static_cast<double>(now_ns - before_ns_) / 1e9;
  for (const ProcessCounters& process : reading) {
    ProcessLines& shown = lines.emplace_back(ProcessLines{process.pid, process.command, {}});
    for (const CounterReading& counter : process.counters) {
      const Key key{process.pid, counter.name};
      now[key] = counter.value;
      if (counter.value == 0) continue;
      CounterLine line{counter.name, counter.value, std::nullopt};
      // A smaller value is a new process under an old number, or a counter that was set: no rate until next time.
      if (const auto last = before_.find(key); last != before_.end() && counter.value >= last->second && seconds > 0)
        line.per_second = static_cast<double>(counter.value - last->second) / seconds;
      shown.counters.push_back(std::move(line));
    }
  }
  before_ = std::move(now);
  before_ns_ = now_ns;
  return lines;
}

}  // namespace viaduct::cli
