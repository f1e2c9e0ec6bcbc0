#include "bench/conduit.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>

#include "base/clock.hpp"

namespace viaduct::bench {

void give_up(const std::string& why) {
  fmt::print(stderr, "viaduct: benchmark: {}\n", why);
  std::_Exit(1);  // the partners go with us
}

void Conduit::ping(std::uint32_t count, std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) {
    send(size);
    receive(size);
  }
}

void Conduit::pong(std::uint32_t count, std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) {
    receive(size);
    send(size);
  }
}

void Conduit::stream(std::uint32_t count, std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) send(size);
}

void Conduit::drain(std::uint32_t count, std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) receive(size);
}

// ---- meeting

Status Meeting::prepare() {
  VIADUCT_TRY(sockets_, make_socket_pair(SOCK_SEQPACKET));
  return {};
}

void Meeting::tell(const void* bytes, std::size_t size) {
  if (::send(end_, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) give_up("the other end is gone");
}

void Meeting::hear(void* bytes, std::size_t size) {
  if (::recv(end_, bytes, size, 0) != static_cast<ssize_t>(size)) give_up("the other end is gone");
}

// ---- a link

Result<std::unique_ptr<ConduitLink>> ConduitLink::make(std::unique_ptr<Conduit> conduit) {
  std::unique_ptr<ConduitLink> link(new ConduitLink(std::move(conduit)));
  VIADUCT_TRY(Partner partner, Partner::fork(placement().theirs, [raw = link.get()](std::uint64_t job) {
                raw->do_there(std::bit_cast<Job>(job));
              }));
  link->partner_ = std::make_unique<Partner>(std::move(partner));
  return link;
}

ConduitLink::~ConduitLink() {
  if (!partner_ || !opened_) return;
  start({0, Work::close});
  conduit_->close();
  finish();
}

void ConduitLink::start(Job job) {
  partner_->start(std::bit_cast<std::uint64_t>(job));
}

void ConduitLink::finish() {
  while (!partner_->has_finished() && conduit_->turn()) continue;
  partner_->finish();
}

void ConduitLink::do_there(Job job) {
  switch (job.work()) {
    case Work::open:
      return conduit_->open(Conduit::Side::there);
    case Work::pong:
      conduit_->send(kToken);
      conduit_->pong(job.count, job.size());
      break;
    case Work::drain:
      conduit_->send(kToken);
      conduit_->drain(job.count, job.size());
      conduit_->send(kToken);
      break;
    case Work::close:
      return conduit_->close();
  }
  conduit_->settle();
}

void ConduitLink::open() {
  if (opened_) return;
  opened_ = true;
  start({0, Work::open});
  conduit_->open(Conduit::Side::here);
  finish();
}

double ConduitLink::one_way_ns(std::uint32_t count, std::size_t size) {
  open();
  start({count, Work::pong, size});
  conduit_->receive(kToken);
  const std::uint64_t began = Clock::steady().now_ns();
  conduit_->ping(count, size);
  const std::uint64_t ended = Clock::steady().now_ns();
  conduit_->settle();
  finish();
  return static_cast<double>(ended - began) / 2 / count;
}

double ConduitLink::per_message_ns(std::uint32_t count, std::size_t size) {
  open();
  start({count, Work::drain, size});
  conduit_->receive(kToken);
  const std::uint64_t began = Clock::steady().now_ns();
  conduit_->stream(count, size);
  conduit_->receive(kToken);
  const std::uint64_t ended = Clock::steady().now_ns();
  conduit_->settle();
  finish();
  return static_cast<double>(ended - began) / count;
}

}  // namespace viaduct::bench
