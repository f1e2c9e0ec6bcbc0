// What becomes of this library in a program that is about to start, told from its file.
#pragma once

namespace viaduct::sockets {

enum class Loading {
  takes,      // loads this library where the environment names it
  ignores,    // static or privileged, or no program that we can read
  chokes_on,  // its loader, of another libc or for 32 bits, would end the program over it, or complain
};

// `path`: as execve takes it. Scripts: what their interpreter does. Safe in signal handlers and vfork children.
Loading loading_of(const char* path);

// Takes our library out of the text of LD_PRELOAD, in place; false: nothing is left.
bool leave_library_out(char* libraries);

inline constexpr char kLibraryName[] = "libviaduct-sockets.so";

}  // namespace viaduct::sockets
