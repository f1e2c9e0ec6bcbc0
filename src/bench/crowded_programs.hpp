// Programs of others, as Debian has them, more of them than there are processors: what an operation costs in processor
// time, of all their threads and processes together, and how long it takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace viaduct::bench {

struct OperationCost {
  double cpu_us;   // of all processes that take part
  double time_us;  // from the end of one to the end of the next
};

// An application whose servers run: on kernel TCP, or accelerated.
class CrowdedProgram {
 public:
  CrowdedProgram() = default;
  CrowdedProgram(const CrowdedProgram&) = delete;
  CrowdedProgram& operator=(const CrowdedProgram&) = delete;
  virtual ~CrowdedProgram() = default;

  virtual OperationCost run(unsigned load) = 0;  // of CrowdedKind::loads
};

// Everything is started on the processors that the calling thread may use. The error says what is missing.
struct CrowdedKind {
  const char* name;
  std::vector<std::string> loads;  // the names of its rows
  Result<std::unique_ptr<CrowdedProgram>> (*start)(bool accelerated);
  bool slow_to_start = false;  // makes a database first
};

std::vector<CrowdedKind> crowded_kinds();

}  // namespace viaduct::bench
