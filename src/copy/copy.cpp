#include <viaduct/copy.hpp>

#include "copy/engine.hpp"
#include "copy/kernels.hpp"

namespace viaduct::copy {

namespace {

std::error_code code(int error) {
  return {error, std::generic_category()};
}

Operation begin(const Engine::Request& request) {
  const Cookie cookie = Engine::process().start(request);
  return cookie < 0 ? Operation::failed(code(static_cast<int>(-cookie))) : Operation::adopt(cookie);
}

}  // namespace

Operation& Operation::operator=(Operation&& other) noexcept {
  if (this != &other) {
    (void)wait();
    cookie_ = std::exchange(other.cookie_, 0);
    fault_ = other.fault_;
  }
  return *this;
}

Operation::~Operation() {
  if (cookie_ != 0) (void)wait();
}

Operation Operation::adopt(Cookie cookie) {
  Operation operation;
  operation.cookie_ = cookie;
  return operation;
}

Operation Operation::failed(std::error_code fault) {
  Operation operation;
  operation.fault_ = fault;
  return operation;
}

bool Operation::done() {
  if (cookie_ == 0) return true;
  const int result = Engine::process().check(cookie_);
  if (result == 0) return false;
  cookie_ = 0;
  if (result < 0) fault_ = code(-result);
  return true;
}

std::error_code Operation::wait() {
  if (cookie_ != 0) {
    if (const int result = Engine::process().wait(std::exchange(cookie_, 0)); result < 0) fault_ = code(-result);
  }
  return fault_;
}

std::size_t Operation::ready_bytes() const {
  if (cookie_ == 0) return 0;
  const std::int64_t ready = Engine::process().ready_bytes(cookie_);
  return ready < 0 ? 0 : static_cast<std::size_t>(ready);
}

bool Operation::resume_later(std::coroutine_handle<> waiting) {
  return cookie_ != 0 && Engine::process().resume_when_finished(cookie_, waiting);
}

Operation start(const void* source, void* destination, std::size_t length, const Options& options) {
  const Piece piece{source, destination, length};
  return begin({Work::copy, 0, {&piece, 1}, options});
}

Operation start_fill(void* destination, int byte, std::size_t length, const Options& options) {
  const Piece piece{nullptr, destination, length};
  return begin({Work::fill, byte, {&piece, 1}, options});
}

Operation start_batch(std::span<const Piece> pieces, const Options& options) {
  return begin({Work::copy, 0, pieces, options});
}

std::error_code run_in_engine(const void* source, void* destination, std::size_t length, const Options& options) {
  const Piece piece{source, destination, length};
  return code(Engine::process().run({Work::copy, 0, {&piece, 1}, options}));
}

void run_here(const void* source, void* destination, std::size_t length) noexcept {
  const auto* const from = static_cast<const std::byte*>(source);
  auto* const to = static_cast<std::byte*>(destination);
  if (from < to + length && to < from + length)
    std::memmove(to, from, length);
  else
    copy_kept(to, from, length);
}

std::vector<ChannelReport> report_channels() {
  return Engine::process().report();
}

}  // namespace viaduct::copy
