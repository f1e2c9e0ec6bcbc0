// The other process of a two-process measurement: forked once, pinned, and asleep in read() whenever it is not
// measuring, so that it never disturbs the measurements of others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::bench {

class Partner {
 public:
  using Body = std::function<void(std::uint64_t count)>;

  // `body` runs in the child for each start(count); descriptors and segments it uses are inherited.
  static Result<Partner> fork(int processor, Body body);

  Partner(Partner&& other) noexcept;
  Partner& operator=(Partner&&) = delete;
  ~Partner();

  void start(std::uint64_t count);
  void finish();              // returns when body has
  bool has_finished() const;  // finish() will not wait
  pid_t process() const { return child_; }

 private:
  Partner(pid_t child, Fd commands, Fd answers);
  pid_t child_;
  Fd commands_;
  Fd answers_;
};

// The processors two-process measurements use: this process on `mine`, partners on `theirs`.
struct Placement {
  int mine;
  int theirs;
};
Placement placement();

// Starts the copy engine so that its workers are beside this process's processor, not on it; call before pinning.
void start_copy_engine();

}  // namespace viaduct::bench
