// A function that programs call instead of libc's. The whole list is in cmake/sockets.map.
#pragma once

#define VIADUCT_EXPORT __attribute__((visibility("default")))
