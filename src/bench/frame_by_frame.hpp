// What a card does that cannot take super-frames apart: the kernel cuts them before they reach it.
#pragma once

#include <string>

#include "base/result.hpp"

namespace viaduct::bench {

// Of an interface in this thread's network namespace: no segmentation offload any more, TCP's and UDP's.
Status send_frame_by_frame(const std::string& interface);

}  // namespace viaduct::bench
