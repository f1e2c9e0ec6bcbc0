// A gigabyte, verified word by word, on a connection that is asked to go back to TCP at some moment.
#include <sys/socket.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::uint64_t kWords = (std::uint64_t{1} << 30) / sizeof(std::uint64_t);
constexpr std::size_t kPiece = std::size_t{32} << 10;  // words

int send_all_of_it(int fd) {
  if (!warm(fd, true)) return complain("warm");
  std::vector<std::uint64_t> buffer(kPiece);
  for (std::uint64_t at = 0; at < kWords; at += kPiece) {
    for (std::size_t i = 0; i < kPiece; ++i) buffer[i] = (at + i) * 0x9e3779b97f4a7c15;
    const char* from = reinterpret_cast<const char*>(buffer.data());
    for (std::size_t left = kPiece * sizeof(std::uint64_t); left != 0;) {
      const ssize_t sent = ::send(fd, from, left, MSG_NOSIGNAL);
      if (sent <= 0) return complain("send");
      from += sent;
      left -= static_cast<std::size_t>(sent);
    }
  }
  char byte;
  return ::recv(fd, &byte, 1, 0) == 1 ? 0 : complain("the answer");
}

int receive_all_of_it(int fd) {
  if (!warm(fd, false)) return complain("warm");
  std::vector<std::uint64_t> buffer(kPiece);
  for (std::uint64_t at = 0; at < kWords; at += kPiece) {
    const std::size_t size = kPiece * sizeof(std::uint64_t);
    if (::recv(fd, buffer.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) return complain("recv");
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < kPiece; ++i) wrong |= buffer[i] ^ (at + i) * 0x9e3779b97f4a7c15;
    if (wrong != 0) return std::fprintf(stderr, "torture: wrong behind word %" PRIu64 "\n", at), 1;
  }
  return ::send(fd, "!", 1, MSG_NOSIGNAL) == 1 ? 0 : complain("answer");
}

}  // namespace

int hand_back_a_gigabyte(int rounds, unsigned seed) {
  Random random(seed);
  int in_the_middle = 0;
  for (int i = 0; i < rounds; ++i) {
    const Pair pair = make_pair();
    const pid_t sender = start(pair, true, send_all_of_it);
    const pid_t receiver = start(pair, false, receive_all_of_it);
    ::close(pair.client);
    ::close(pair.server);
    ::usleep(1000 + random() % 150'000);
    if (const StreamOf stream(sender); stream) {
      for (End& end : stream->end)
        if (random() % 3 != 0) end.request.fetch_or(kHandBack);
      for (const Direction& direction : stream->direction)
        if (direction.tally.bytes.load() > 1000 && direction.tally.bytes.load() < kWords * 8) ++in_the_middle;
    }
    const int sent = wait_for(sender), received = wait_for(receiver);
    if (sent != 0 || received != 0)
      return std::fprintf(stderr, "torture: round %d of seed %u: sender %d, receiver %d\n", i, seed, sent, received), 1;
  }
  std::fprintf(stderr, "torture: %d of %d were asked in the middle\n", in_the_middle, rounds);
  return in_the_middle == 0;
}

}  // namespace viaduct::sockets::torture
