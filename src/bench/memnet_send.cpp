// `viaduct bench memnet-send`: figure 5 of the MemNet paper: what a send costs the program that sends.
#include <adma.h>
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <viaduct/via.hpp>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/topology.hpp"
#include "bench/memnet_server.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kBurst = 200;  // a pipeline holds 256
constexpr std::size_t kSize = 1024;

class MemnetSend {
 public:
  explicit MemnetSend(const Options& options)
      : options_(options),
        suite_("memnet-send", "What a send of 1 KB costs its caller; server and receiver on the other processor") {}
  ~MemnetSend() {
    over_ = true;
    if (drain_.joinable()) drain_.join();
    if (sink_ > 0) ::kill(sink_, SIGKILL);
    memnet_shut();
  }

  Result<Report> run() {
    VIADUCT_CHECK(start_sink());
    VIADUCT_TRY(server_, MemnetServer::start());
    VIADUCT_CHECK(start_channel());
    if (memnet_open(server_->name().c_str()) != 0) return Error::from_errno("memnet-send");
    kernel_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socket_ = memnet_socket(AF_INET, SOCK_STREAM, 0);
    const auto* const to = reinterpret_cast<const sockaddr*>(&address_);
    const int on = 1;
    if (::connect(kernel_, to, sizeof address_) != 0 || memnet_connect(socket_, to, sizeof address_) != 0)
      return Error::from_errno("memnet-send: connect");
    (void)::setsockopt(kernel_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)memnet_setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bytes_ = static_cast<char*>(adma_alloc(kSize));
    if (bytes_ == nullptr || memnet_register_mem(bytes_, kSize, &memory_) != 0)
      return Error::from_errno("memnet-send: memory");
    const auto add = [&](const char* who, Kind kind, double (MemnetSend::*sample)()) {
      suite_.add(
          {"1 KB", who, kind, "cost of a send", "ns", Better::lower, [this, sample] { return (this->*sample)(); }});
    };
    add("channel post", Kind::floor, &MemnetSend::post);
    add("kernel send", Kind::peer, &MemnetSend::kernel_send);
    add("MemNet plain", Kind::us, &MemnetSend::plain);
    add("MemNet direct", Kind::us, &MemnetSend::direct);
    add("MemNet async", Kind::us, &MemnetSend::async);
    suite_.expect({"1 KB", "cost of a send", "MemNet async", "channel post", Better::lower, 1.5});
    suite_.expect({"1 KB", "cost of a send", "MemNet async", "kernel send", Better::lower, 0.3});
    suite_.note("the paper: async_send under 8 us, about one VI post of 2.1 us; send_direct waits for the server");
    suite_.note("in bursts of 200, the first after a pause; what is under way is waited for outside of the time");
    const PinnedScope pinned(placement().mine);
    return suite_.run(options_, 25);
  }

 private:
  // Reads everything that anybody sends.
  Status start_sink() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    auto* const name = reinterpret_cast<sockaddr*>(&address_);
    if (::bind(listener, name, length) != 0 || ::listen(listener, 8) != 0 ||
        ::getsockname(listener, name, &length) != 0)
      return Error::from_errno("memnet-send: a receiver");
    const pid_t parent = ::getpid();
    sink_ = ::fork();
    if (sink_ != 0) {
      ::close(listener);
      return sink_ > 0 ? Status() : Error::from_errno("memnet-send: a receiver");
    }
    const PinnedScope pinned(placement().theirs);
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
      const int fd = ::accept(listener, nullptr, nullptr);
      readers.emplace_back([fd] {
        static thread_local char bytes[256 << 10];
        while (::read(fd, bytes, sizeof bytes) > 0) continue;
      });
    }
    for (std::thread& one : readers) one.join();
    (void)parent;
    ::_exit(0);
  }

  Status start_channel() {
    std::error_code fault;
    pair_ = via::make_channel_pair({.slots = 1024}, fault);
    if (fault) return Error(fault.value(), "memnet-send: a channel");
    drain_ = std::thread([this] {
      const PinnedScope pinned(placement().theirs);
      via::Fragment fragment;
      while (!over_) {
        while (pair_.second->peek(fragment) == via::Got::fragment) pair_.second->consume();
        (void)pair_.second->wait_to_receive(50);
      }
    });
    return {};
  }

  template <class Send>
  double timed(Send send) {
    const std::uint64_t begin = Clock::steady().now_ns();
    for (std::size_t i = 0; i < kBurst; ++i) send(i);
    return static_cast<double>(Clock::steady().now_ns() - begin) / kBurst;
  }
  double post() {
    const char words[28] = {};
    const iovec piece{const_cast<char*>(words), sizeof words};
    const double cost = timed([&](std::size_t) { (void)pair_.first->try_send({&piece, 1}, 1); });
    while (pair_.first->credits() < 1024) ::usleep(100);
    return cost;
  }
  double kernel_send() {
    const double cost = timed([&](std::size_t) { (void)!::send(kernel_, bytes_, kSize, MSG_NOSIGNAL); });
    for (int left = 1; left > 0;) {
      ::usleep(200);
      if (::ioctl(kernel_, SIOCOUTQ, &left) != 0) break;
    }
    return cost;
  }
  double plain() {
    const double cost = timed([&](std::size_t) { (void)memnet_send(socket_, bytes_, kSize, MSG_NOSIGNAL); });
    (void)memnet_send_direct(socket_, memory_, 0, 1, MSG_NOSIGNAL);  // behind all of them
    return cost;
  }
  double direct() {
    return timed([&](std::size_t) { (void)memnet_send_direct(socket_, memory_, 0, kSize, MSG_NOSIGNAL); });
  }
  double async() {
    memnet_job_t jobs[kBurst];
    const double cost =
        timed([&](std::size_t i) { (void)memnet_async_send(socket_, memory_, 0, kSize, MSG_NOSIGNAL, &jobs[i]); });
    for (const memnet_job_t job : jobs) (void)memnet_job_wait(job, -1, nullptr);
    return cost;
  }

  const Options options_;
  Suite suite_;
  std::unique_ptr<MemnetServer> server_;
  sockaddr_in address_{};
  pid_t sink_ = -1;
  via::ChannelPair pair_;
  std::thread drain_;
  std::atomic<bool> over_{false};
  int kernel_ = -1, socket_ = -1;
  char* bytes_ = nullptr;
  memnet_mem_t memory_ = 0;
};

}  // namespace

Result<Report> run_memnet_send(const Options& options) {
  return MemnetSend(options).run();
}

}  // namespace viaduct::bench
