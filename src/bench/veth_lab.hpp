// A process of its own that measures in network namespaces which nobody else enters. It is forked, enters new user and
// network namespaces, makes what it measures, and then answers with one number at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::bench {

class Lab {
 public:
  using Measurements = std::vector<std::function<double()>>;

  // `prepare` runs in the child; what it makes lives as long as the child.
  static Result<Lab> fork(const std::function<Result<Measurements>()>& prepare);

  Lab(Lab&& other) noexcept;
  Lab& operator=(Lab&&) = delete;
  ~Lab();

  double measure(std::size_t index);  // 0: it failed

 private:
  Lab(pid_t child, Fd questions, Fd answers);
  pid_t child_;
  Fd questions_, answers_;
};

// For prepare(): two namespaces, joined by cables.
class TwoNetworks {
 public:
  static Result<TwoNetworks> make();
  // A veth pair NAMEl - NAMEr with 10.0.NUMBER.1 and 10.0.NUMBER.2 at its ends.
  Status add_cable(int number, unsigned mtu = 1500);
  static std::string interface(int number, bool left) { return "cable" + std::to_string(number) + (left ? "l" : "r"); }
  static std::string address(int number, bool left) { return "10.0." + std::to_string(number) + (left ? ".1" : ".2"); }
  // Sockets that are made from now on belong there.
  void enter(bool left) const;

 private:
  Fd left_, right_;
};

}  // namespace viaduct::bench
