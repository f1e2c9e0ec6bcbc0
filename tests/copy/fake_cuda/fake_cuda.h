// What tests may ask of the fake driver, besides the driver's own functions. Found with dlsym, like those.
#pragma once

struct FakeCudaControls {
  // Calls number first .. first + count - 1 of that function from now on return `code`. One rule per function.
  void (*fail)(const char* function, int first, int count, int code);
  int (*calls)(const char* function);  // since the last reset
  void (*set_devices)(int count);
  void (*set_copy_engines)(int count);
  void (*set_copy_delay_us)(int delay);  // each chunk takes at least so long
  int (*most_pending)();                 // copies handed over and not finished, at the most
  int (*both_ways)();                    // copies that began while one of the other direction was under way
  int (*registered)();                   // ranges pinned now
  bool (*can_pin)();                     // false: no io_uring, or RLIMIT_MEMLOCK is too small: nothing works
  void (*reset)();                       // all of the above; memory and streams stay
};

extern "C" const FakeCudaControls* fake_cuda_controls();
