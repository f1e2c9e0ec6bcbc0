// The two halves of a direction: Sender puts bytes into the ring, Receiver takes them out.
#pragma once

#include "sockets/receiver.hpp"
#include "sockets/sender.hpp"
