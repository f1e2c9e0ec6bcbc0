// The processor time that a program has used: of all its processes and threads, those that ended included.
#pragma once

#include <sys/types.h>

namespace viaduct::bench {

double own_processor_time_ns(pid_t process);

// Of the process, of all that it started and that still live, and of those that were waited for.
double processor_time_ns(pid_t program);

// Of all that this process started and waited for.
double processor_time_of_ended_ns();

}  // namespace viaduct::bench
