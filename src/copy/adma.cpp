// The C interface inside one process: thin over copy.hpp.
#include <viaduct/adma.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "copy/engine.hpp"

namespace {

using viaduct::copy::Engine;
using viaduct::copy::Operation;
using viaduct::copy::Options;
using viaduct::copy::Piece;
using viaduct::copy::Work;

// True where the options make sense; C can pass any number as an enum.
bool convert(const adma_options* given, Options& options) {
  if (given == nullptr) return true;
  const auto number = [](const auto& choice) {
    int value;
    std::memcpy(&value, &choice, sizeof value);
    return value;
  };
  const int intent = number(given->intent), order = number(given->order), channel = number(given->channel);
  if (intent < 0 || intent > ADMA_STREAM || order < 0 || order > ADMA_FENCE || channel < 0 || channel > ADMA_CUDA)
    return false;
  options.intent = static_cast<viaduct::copy::Intent>(intent);
  options.order = static_cast<viaduct::copy::Order>(order);
  options.after = given->after;
  options.channel = static_cast<viaduct::copy::Choice>(channel);
  return true;
}

template <class Number>
Number answer(Number result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

int run(const Piece& piece, Work work, int byte, const adma_options* options) {
  Engine::Request request{work, byte, {&piece, 1}, {}};
  if (!convert(options, request.options)) return answer(-EINVAL);
  return answer(-Engine::process().run(request));
}

adma_cookie_t start(std::span<const Piece> pieces, Work work, int byte, const adma_options* options) {
  Engine::Request request{work, byte, pieces, {}};
  if (!convert(options, request.options)) return answer(adma_cookie_t{-EINVAL});
  return answer(Engine::process().start(request));
}

// Walks both lists at once and cuts where either ends. False where their totals differ.
bool pair_up(std::span<const iovec> sources, std::span<const iovec> destinations, std::vector<Piece>& pieces) {
  std::size_t from = 0, to = 0, from_offset = 0, to_offset = 0;
  for (;;) {
    while (from < sources.size() && from_offset == sources[from].iov_len) ++from, from_offset = 0;
    while (to < destinations.size() && to_offset == destinations[to].iov_len) ++to, to_offset = 0;
    if (from == sources.size() || to == destinations.size()) return from == sources.size() && to == destinations.size();
    const std::size_t length = std::min(sources[from].iov_len - from_offset, destinations[to].iov_len - to_offset);
    pieces.push_back({static_cast<const char*>(sources[from].iov_base) + from_offset,
                      static_cast<char*>(destinations[to].iov_base) + to_offset, length});
    from_offset += length, to_offset += length;
  }
}

}  // namespace

int adma_copy(const void* source, void* destination, size_t length) {
  const std::error_code fault = viaduct::copy::run(source, destination, length);
  return fault ? answer(-fault.value()) : 0;
}

adma_cookie_t adma_icopy(const void* source, void* destination, size_t length) {
  const Piece piece{source, destination, length};
  return start({&piece, 1}, Work::copy, 0, nullptr);
}

int adma_check_copy(adma_cookie_t cookie) {
  return answer(Engine::process().check(cookie));
}

int adma_wait_copy(adma_cookie_t cookie) {
  return answer(Engine::process().wait(cookie));
}

int adma_copy_with(const void* source, void* destination, size_t length, const adma_options* options) {
  return run({source, destination, length}, Work::copy, 0, options);
}

adma_cookie_t adma_icopy_with(const void* source, void* destination, size_t length, const adma_options* options) {
  const Piece piece{source, destination, length};
  return start({&piece, 1}, Work::copy, 0, options);
}

int adma_fill(void* destination, int byte, size_t length) {
  return run({nullptr, destination, length}, Work::fill, byte, nullptr);
}

adma_cookie_t adma_ifill(void* destination, int byte, size_t length, const adma_options* options) {
  const Piece piece{nullptr, destination, length};
  return start({&piece, 1}, Work::fill, byte, options);
}

int adma_copyv(const iovec* sources, int source_count, const iovec* destinations, int destination_count) {
  const adma_cookie_t cookie = adma_icopyv(sources, source_count, destinations, destination_count, nullptr);
  return cookie < 0 ? -1 : adma_wait_copy(cookie);
}

adma_cookie_t adma_icopyv(const iovec* sources, int source_count, const iovec* destinations, int destination_count,
                          const adma_options* options) {
  if (source_count < 0 || destination_count < 0) return answer(adma_cookie_t{-EINVAL});
  std::vector<Piece> pieces;
  if (!pair_up({sources, static_cast<std::size_t>(source_count)},
               {destinations, static_cast<std::size_t>(destination_count)}, pieces))
    return answer(adma_cookie_t{-EINVAL});
  return start(pieces, Work::copy, 0, options);
}

adma_cookie_t adma_icopy_batch(const adma_piece* pieces, size_t count, const adma_options* options) {
  if (pieces == nullptr && count > 0) return answer(adma_cookie_t{-EFAULT});
  return start({pieces, count}, Work::copy, 0, options);
}

int64_t adma_ready_bytes(adma_cookie_t cookie) {
  return answer(Engine::process().ready_bytes(cookie));
}
