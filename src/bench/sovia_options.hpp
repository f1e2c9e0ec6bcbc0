// The choices of the SOVIA paper (Kim, Kim and Jung), sections 4.1 to 4.3: each can be made by itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace viaduct::bench {

struct SoviaOptions {
  // Two-way: data is sent at once, into receives that are posted already, and acknowledged. Three-way: REQ, ACK, DATA;
  // data lands in the receiver's own buffer, and nothing is kept in between: an end that sends waits for the other to
  // receive. Three-way goes with handling by the application and without combining.
  enum class Synchronisation { two_way, three_way };
  // Who takes packets in: the application's thread inside send() and recv(), a thread that sleeps on a completion
  // queue, or the adapter's notify function.
  enum class Handling { application, handler, notify };
  // Data of a send: by reference, registered for it (R); copied into a chunk that stays registered (B); copied up to
  // `copy_limit` and registered above (H).
  enum class Data { registered, buffered, hybrid };
  enum class Waiting { polling, blocking };  // of the application's thread, where that takes packets in

  Synchronisation synchronisation = Synchronisation::two_way;
  Handling handling = Handling::application;
  Data data = Data::registered;
  Waiting waiting = Waiting::polling;
  bool keep_registrations = false;  // memory stays registered after the send that needed it
  bool handler_apart = false;       // the handler thread on a processor of its own
  std::uint32_t window = 1;         // w: messages under way without an acknowledgement
  std::uint32_t threshold = 1;      // t <= w: so many delayed acknowledgements become a packet
  bool combine = false;             // messages of up to copy_limit wait for company
  std::size_t copy_limit = 2048;
  std::chrono::milliseconds flush_after{100};  // what was combined leaves after this long at the latest
};

}  // namespace viaduct::bench
