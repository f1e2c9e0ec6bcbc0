// What becomes of this library in a program that is about to start, told from its file.
#pragma once

namespace viaduct::sockets {

enum class Loading {
  takes,      // loads this library where the environment names it
  ignores,    // static or privileged, or no program that we can read
  chokes_on,  // another loader than ours, of another libc, older or for 32 bits, may end it over that, or complain
};

// At the start, before the program can go where files have other names.
void remember_own_loader();

// `path`: as execve takes it. Scripts: what their interpreter does. Safe in signal handlers and vfork children.
Loading loading_of(const char* path);

// Takes our library out of the text of LD_PRELOAD, in place; false: nothing is left.
bool leave_library_out(char* libraries);

inline constexpr char kLibraryName[] = "libviaduct-sockets.so";

}  // namespace viaduct::sockets
