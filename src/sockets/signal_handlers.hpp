// What the program's signal handlers say of a call that they interrupt and that takes no time limit: whether the kernel
// goes on with it (SA_RESTART). All handlers are asked once, and again after the program has changed one.
#pragma once

namespace viaduct::sockets {

enum class Handlers { restart, end, differ };
Handlers signal_handlers();

void note_handler_changed();

}  // namespace viaduct::sockets
