// How many bytes a TCP socket has carried, as the kernel counts them: both ends of a connection agree on these numbers
// without having counted, whoever wrote or read them.
#pragma once

#include <cstdint>

namespace viaduct::sockets {

enum class Opened : int { unknown = -1, by_peer = 0, by_us = 1 };  // accept(), connect()

// Handed to the kernel for sending. It counts what it has sent, which is too much where a segment was refused on its
// way out (a full queue, a firewall); and what was acknowledged, where the SYN of the end that called is counted too.
// `opened`: by whom the connection was; where that is unknown, what was sent is believed, if the two do not differ by
// more.
bool tcp_written(int fd, std::uint64_t& bytes, Opened opened);
// Whether the two agree so far, and by whom it was opened then; what is known of that already must be so.
bool tcp_counts_agree(int fd, Opened& opened);
// Taken from the kernel; the caller is the only reader. False too for a connection that is closed both ways: whether an
// end of stream was counted with the bytes cannot be told then.
// `unread`: tcp_unread, or where the sender may have sent urgent data, tcp_unread_past_mark.
int tcp_unread(int fd);            // ready to be read; -1: cannot tell
int tcp_unread_past_mark(int fd);  // the same, but for urgent data, before which the kernel's count ends
bool tcp_read(int fd, std::uint64_t& bytes, int (*unread)(int) = tcp_unread);
// Not closed or reset. Two of which that is true at the same moment, with the same addresses, are the ends of one
// connection.
bool tcp_is_alive(int fd);
bool tcp_peer_ended(int fd);  // by its end of stream, or a reset; not by our own shutdown

}  // namespace viaduct::sockets
