// The C face of engine-owned memory and of links.
#include <viaduct/adma.h>

#include <memory>

#include "base/log.hpp"
#include "copy/link.hpp"
#include "copy/link_rendezvous.hpp"
#include "copy/region.hpp"

using namespace viaduct;
using namespace viaduct::copy;

struct adma_link {
  std::unique_ptr<Link> link;
};

namespace {

// Somebody who connects and then says nothing does not hold up a caller of adma_accept that has all the time.
constexpr std::uint64_t kLongestHandshakeNs = 5'000'000'000;

Deadline deadline_of(int timeout_ms) {
  if (timeout_ms < 0) return Deadline::never();
  return Deadline::after_ns(Clock::steady(), static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
}

int refuse(int error) {
  errno = error;
  return -1;
}

// The line that says what failed, and errno. Nobody there in time is an answer, not a fault.
void give_up(const Error& error) {
  if (error.code() != ETIMEDOUT) log::fault(error.message());
  errno = error.code();
}

adma_link* attach(Fd socket, Deadline deadline, const char* what) {
  auto link = Link::attach(std::move(socket), deadline, Link::Options::of_process());
  if (link) return new adma_link{std::move(*link)};
  const Error error = link.error().because(what);
  log::fault(error.message());
  errno = error.code();
  return nullptr;
}

bool usable(const adma_link* link) {
  return link != nullptr && link->link->of_this_process();
}

std::int64_t post(adma_link* link, Direction direction, const void* buffer, std::size_t length) {
  if (!usable(link)) return refuse(EINVAL);
  const std::int64_t cookie = link->link->post(direction, const_cast<void*>(buffer), length);
  return cookie < 0 ? refuse(static_cast<int>(-cookie)) : cookie;
}

std::int64_t transfer(adma_link* link, Direction direction, const void* buffer, std::size_t length) {
  if (!usable(link)) return refuse(EINVAL);
  const std::int64_t cookie = link->link->post(direction, const_cast<void*>(buffer), length, true);
  if (cookie < 0) return refuse(static_cast<int>(-cookie));
  const Link::Outcome outcome = link->link->wait(cookie);
  return outcome.error != 0 ? refuse(outcome.error) : static_cast<std::int64_t>(outcome.moved);
}

int report(const Link::Outcome& outcome, std::size_t* moved, int success) {
  if (moved != nullptr) *moved = outcome.moved;
  return outcome.error != 0 ? refuse(outcome.error) : success;
}

}  // namespace

void* adma_alloc(size_t length) {
  auto memory = RegionHeap::process().allocate(length);
  if (memory) return *memory;
  errno = memory.error().code();
  return nullptr;
}

void adma_free(void* memory) {
  if (memory == nullptr) return;
  const int saved = errno;
  if (RegionHeap::process().free(memory) == RegionHeap::Freed::unknown)
    log::fault("adma_free: not memory from adma_alloc, or freed already; nothing is freed");
  errno = saved;
}

int adma_listen(const char* name) {
  auto listener = listen_on(name == nullptr ? "" : name);
  if (listener) return listener->release();
  give_up(listener.error());
  return -1;
}

adma_link* adma_accept(int listener, int timeout_ms) {
  const Deadline deadline = deadline_of(timeout_ms);
  auto socket = accept_from(listener, deadline);
  if (!socket) return give_up(socket.error()), nullptr;
  const std::uint64_t now = Clock::steady().now_ns();
  const bool plenty = deadline.left_ns(now) > kLongestHandshakeNs;
  return attach(std::move(*socket), plenty ? Deadline::at_ns(now + kLongestHandshakeNs) : deadline, "accept a link");
}

adma_link* adma_connect(const char* name, int timeout_ms) {
  const Deadline deadline = deadline_of(timeout_ms);
  auto socket = connect_to(name == nullptr ? "" : name, deadline);
  if (!socket) return give_up(socket.error()), nullptr;
  return attach(std::move(*socket), deadline, "connect a link");
}

adma_link* adma_attach(int socket, int timeout_ms) {
  if (socket < 0) return errno = EBADF, nullptr;
  return attach(Fd(socket), deadline_of(timeout_ms), "attach a link");
}

void adma_close(adma_link* link) {
  if (!usable(link)) return;
  const int saved = errno;
  delete link;
  errno = saved;
}

int64_t adma_read(adma_link* link, void* buffer, size_t length) {
  return transfer(link, Direction::read, buffer, length);
}

int64_t adma_write(adma_link* link, const void* buffer, size_t length) {
  return transfer(link, Direction::write, buffer, length);
}

adma_cookie_t adma_iread(adma_link* link, void* buffer, size_t length) {
  return post(link, Direction::read, buffer, length);
}

adma_cookie_t adma_iwrite(adma_link* link, const void* buffer, size_t length) {
  return post(link, Direction::write, buffer, length);
}

int adma_icheck(adma_link* link, adma_cookie_t cookie, size_t* moved) {
  if (moved != nullptr) *moved = 0;
  if (!usable(link)) return refuse(EINVAL);
  const auto outcome = link->link->check(cookie);
  return outcome ? report(*outcome, moved, 1) : 0;
}

int adma_wait(adma_link* link, adma_cookie_t cookie, size_t* moved) {
  if (moved != nullptr) *moved = 0;
  if (!usable(link)) return refuse(EINVAL);
  return report(link->link->wait(cookie), moved, 0);
}

const char* adma_link_path(const adma_link* link) {
  return usable(link) ? link->link->path() : "";
}
