// The small program that hands an interface's frames to an AF_XDP socket, and its attachment to the interface. All of
// it goes when the object does.
#pragma once

#include <cstdint>

#include "base/fd.hpp"

namespace viaduct::nic {

class XdpProgram {
 public:
  // In the driver (native) or in the generic hook. `frags`: frames in several pieces too.
  static Result<XdpProgram> attach(int interface, bool native, bool frags);
  // Frames of that queue go to the socket from now on; those of others to the kernel, as ever.
  Status serve(std::uint32_t queue, int socket);

 private:
  XdpProgram(Fd map, Fd program, Fd link)
      : map_(std::move(map)), program_(std::move(program)), link_(std::move(link)) {}
  Fd map_, program_, link_;
};

}  // namespace viaduct::nic
