// Endpoints of an adapter that another process owns: what is agreed, what is refused, and what is left when somebody
// lies or dies.
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <viaduct/nic_serve.hpp>

#include <random>
#include <thread>

#include "base/meeting.hpp"
#include "base/socket_message.hpp"
#include "nic/endpoint/memory.hpp"
#include "nic/pair.hpp"
#include "nic/serve/protocol.hpp"

namespace viaduct::nic {
namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr std::size_t kAnswerAt = 20;  // in a frame: the endpoint that the echo sends it back to

std::string own_name(const char* what) {
  return std::string(what) + "-" + std::to_string(::getpid());
}

Config serving() {
  Config config;
  config.partition = Partition::release;
  config.coalescing = Coalescing::none();
  config.spin_us = 0;
  config.queues = 2;
  config.queue_core = {0, 0};
  config.delivery = Delivery::multiqueue;
  return config;
}

// A server on a wire whose far end sends every frame back to the endpoint that it names.
class EchoServer {
 public:
  explicit EchoServer(const std::string& name) {
    auto [a, b] = make_wire();
    far_ = std::move(b);
    Failure why;
    server = Server::create(name, serving(), std::move(a), why);
    EXPECT_NE(server, nullptr) << why.message;
    thread_ = std::thread([this] { run(); });
  }
  ~EchoServer() {
    over_ = true;
    thread_.join();
  }
  std::unique_ptr<Server> server;

 private:
  void run() {
    while (!over_) {
      Frame frame;
      if (far_->receive({&frame, 1}) == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        continue;
      }
      Bytes bytes(frame.data, frame.data + frame.length);
      far_->release(1);
      if (bytes.size() >= kAnswerAt + 2) std::memcpy(bytes.data() + 14, bytes.data() + kAnswerAt, 2);
      const Frame back{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
      while (far_->transmit({&back, 1}) == 0 && !over_) std::this_thread::yield();
    }
  }
  std::unique_ptr<Mac> far_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

std::unique_ptr<Endpoint> open(const std::string& name, const EndpointOptions& options) {
  Failure why;
  auto endpoint = open_served_endpoint(name, {.endpoint = options, .bind = Binding::no}, why);
  EXPECT_NE(endpoint, nullptr) << why.message;
  return endpoint;
}

bool send(Endpoint& endpoint, std::uint32_t number) {
  Bytes bytes = numbered_frame(number, 100);
  const std::uint16_t nobody = 9999, id = endpoint.id();
  std::memcpy(bytes.data() + 14, &nobody, 2);
  std::memcpy(bytes.data() + kAnswerAt, &id, 2);
  const Frame frame{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
  for (const std::uint64_t end = Clock::steady().now_ns() + kPatienceNs; Clock::steady().now_ns() < end;)
    if (endpoint.send({&frame, 1}) == 1) return true;
  return false;
}

std::optional<Packet> hold(Endpoint& endpoint, std::uint64_t patience_ns = kPatienceNs) {
  for (const std::uint64_t end = Clock::steady().now_ns() + patience_ns; Clock::steady().now_ns() < end;) {
    Packet packet;
    if (endpoint.receive({&packet, 1}) == 1) return packet;
    if (!endpoint.arm()) continue;
    pollfd entry{endpoint.descriptor(), POLLIN, 0};
    (void)::poll(&entry, 1, static_cast<int>(patience_ns / 1'000'000));
    endpoint.disarm();
  }
  return std::nullopt;
}

testing::AssertionResult comes_back(Endpoint& endpoint, std::uint32_t number) {
  if (!send(endpoint, number)) return testing::AssertionFailure() << "not taken";
  const auto packet = hold(endpoint);
  if (!packet) return testing::AssertionFailure() << "nothing came";
  const std::uint32_t got = number_of({packet->data, packet->length});
  endpoint.give_back({&*packet, 1});
  if (got != number) return testing::AssertionFailure() << got << " instead of " << number;
  return testing::AssertionSuccess();
}

TEST(Serve, AUserGetsAnEndpointOfAnotherProcesssAdapter) {
  EchoServer echo(own_name("plain"));
  auto one = open(own_name("plain"), {.id = 300}), two = open(own_name("plain"), {});
  EXPECT_EQ(one->id(), 300);
  EXPECT_EQ(two->id(), 1);
  EXPECT_EQ(one->core(), 0);
  EXPECT_EQ(one->address(), echo.server->adapter().mac().address());
  EXPECT_EQ(one->max_frame(), kStandardFrame);
  EXPECT_EQ(one->mac().link(), Link::up);
  EXPECT_EQ(one->mac().name(), "served:" + own_name("plain"));
  EXPECT_EQ(one->mac().capabilities().privilege, "");
  EXPECT_EQ(echo.server->counters().endpoints, 2U);
  for (std::uint32_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(comes_back(*one, i));
    ASSERT_TRUE(comes_back(*two, 1000 + i));
  }
}

TEST(Serve, RefusalsSayWhy) {
  EchoServer echo(own_name("refusals"));
  const std::string name = own_name("refusals");
  Failure why;
  EXPECT_EQ(open_served_endpoint(own_name("nobody"), {}, why), nullptr);
  EXPECT_EQ(why.code.value(), ECONNREFUSED);
  EXPECT_THAT(why.message, testing::HasSubstr("viaduct nic run --serve"));
  auto taken = open(name, {.id = 5});
  EXPECT_EQ(open_served_endpoint(name, {.endpoint = {.id = 5}}, why), nullptr);
  EXPECT_EQ(why.code.value(), EADDRINUSE);
  EXPECT_EQ(open_served_endpoint(name, {.endpoint = {.hold_limit = 0}}, why), nullptr);
  EXPECT_EQ(why.code.value(), EINVAL);
  EXPECT_EQ(open_served_endpoint(name, {.endpoint = {.queue = 2}}, why), nullptr);
  EXPECT_EQ(why.code.value(), EINVAL);
  EXPECT_THAT(why.message, testing::HasSubstr("queue 2"));
  auto [a, b] = make_wire();
  EXPECT_EQ(Server::create(name, serving(), std::move(a), why), nullptr);
  EXPECT_EQ(why.code.value(), EADDRINUSE);
  Config config = serving();
  config.partition = Partition::inlined;
  EXPECT_EQ(Server::create(own_name("inlined"), config, std::move(b), why), nullptr);
  EXPECT_EQ(why.code.value(), EINVAL);
  EXPECT_GE(echo.server->counters().refused, 3U);
  EXPECT_TRUE(comes_back(*taken, 1));
}

class Rogue {
 public:
  explicit Rogue(const std::string& name)
      : socket_(std::move(meeting::connect_at(meeting::fit_name(serve_name(name)))).value()) {}
  void say(std::span<const std::byte> bytes) { (void)send_part(socket_.get(), bytes, {}, 0); }
  bool is_ended() {
    return meeting::wait_for(socket_.get(), POLLIN, Deadline::after_ns(Clock::steady(), kPatienceNs)).ok();
  }
  int socket() const { return socket_.get(); }

 private:
  Fd socket_;
};

ServeHello hello(std::uint16_t id) {
  return {.magic = kServeMagic,
          .version = kServeVersion,
          .hold_limit = 16,
          .send_ring = 16,
          .queue = -1,
          .core = -1,
          .id = id,
          .listens = 0,
          .end_mask = 0,
          .end_offset = 0,
          .reserved = {}};
}

TEST(Serve, UsersWhoSpeakNonsenseAreSentAway) {
  EchoServer echo(own_name("nonsense"));
  auto good = open(own_name("nonsense"), {});
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    Rogue rogue(own_name("nonsense"));
    ServeHello bad = hello(77);
    auto* bytes = reinterpret_cast<unsigned char*>(&bad);
    if (round % 3 == 0) {
      for (std::size_t i = 0; i < sizeof bad; ++i) bytes[i] = static_cast<unsigned char>(random());
    } else if (round % 3 == 1) {
      bytes[8 + random() % 24] ^= static_cast<unsigned char>(1 + random() % 255);
    } else {
      rogue.say(std::as_bytes(std::span(bytes, random() % sizeof bad)));
      continue;  // and leaves in the middle of it
    }
    rogue.say(std::as_bytes(std::span(&bad, 1)));
    EXPECT_TRUE(rogue.is_ended());
  }
  Rogue versions(own_name("nonsense"));
  ServeHello other = hello(78);
  other.version = 2;
  versions.say(std::as_bytes(std::span(&other, 1)));
  EXPECT_TRUE(versions.is_ended());
  ASSERT_TRUE(comes_back(*good, 1));
}

// Everything that a user may write: its memory, its bell, more words after the hello.
TEST(Serve, AUserWhoScribblesLosesItsOwnEndpointOnly) {
  EchoServer echo(own_name("scribbles"));
  auto good = open(own_name("scribbles"), {.id = 1});
  Rogue rogue(own_name("scribbles"));
  const ServeHello asked = hello(2);
  rogue.say(std::as_bytes(std::span(&asked, 1)));
  ASSERT_TRUE(rogue.is_ended());
  auto message = receive_with_fds(rogue.socket(), sizeof(ServeAnswer), 2);
  ASSERT_TRUE(message);
  ASSERT_EQ(message->fds.size(), 2U);
  Segment segment = std::move(Segment::adopt(std::move(message->fds[0]), kEndpointLayout)).value();
  // The bell is a descriptor that two processes share: whatever is done to it must not stop the server.
  const int bell = message->fds[1].get();
  const auto words = reinterpret_cast<std::atomic<std::uint32_t>*>(segment.payload().data());
  std::mt19937 random(11);
  for (std::uint32_t round = 0; round < 300; ++round) {
    for (int i = 0; i < 200; ++i)
      words[random() % (segment.payload().size() / 4)].store(static_cast<std::uint32_t>(random()));
    for (int i = 0; i < 50; ++i) {  // near what is right
      words[48].store(words[48].load() + random() % 4);
      words[64].store(words[16].load() + random() % 20);
      words[80].store(static_cast<std::uint32_t>(random() | 1));
    }
    std::array<std::byte, 4096> much{};
    (void)::send(bell, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    Bytes to_rogue = numbered_frame(round, 100);  // by way of the echo, so that the server delivers to it
    ASSERT_TRUE(comes_back(*good, round));
  }
  EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);     // sealed
  rogue.say(std::as_bytes(std::span(&asked, 1)));  // a second hello is one too many
  EXPECT_TRUE(rogue.is_ended());
  for (int i = 0; i < 500 && echo.server->counters().endpoints != 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(echo.server->counters().endpoints, 1U);
  ASSERT_TRUE(comes_back(*good, 5000));
}

// A child of this test that does something and then waits to be killed; it says when it is ready.
class Child {
 public:
  template <class What>
  explicit Child(What&& what) {
    auto pipe = std::move(make_pipe()).value();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      what();
      (void)!::write(pipe.second.get(), "x", 1);
      for (;;) ::pause();
    }
    char ready = 0;
    pipe.second.reset();
    ready_ = ::read(pipe.first.get(), &ready, 1) == 1;
  }
  ~Child() { kill(); }
  bool ready() const { return ready_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

TEST(Serve, AUserThatIsKilledLeavesNothing) {
  const std::string name = own_name("killed-users");
  Child server([&] { new EchoServer(name); });
  ASSERT_TRUE(server.ready());
  auto other = open(name, {.id = 1});
  for (std::uint32_t round = 0; round < 5; ++round) {
    Child user([&] {
      static std::unique_ptr<Endpoint> endpoint;
      Failure why;
      // The one before may not have been buried yet.
      for (int i = 0; i < 500 && endpoint == nullptr; ++i) {
        endpoint = open_served_endpoint(name, {.endpoint = {.id = 2}, .bind = Binding::no}, why);
        if (endpoint == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      if (endpoint == nullptr || !comes_back(*endpoint, 3)) ::_exit(1);
    });
    ASSERT_TRUE(user.ready()) << round;
    user.kill();
    ASSERT_TRUE(comes_back(*other, round));
  }
}

TEST(Serve, AServerThatIsKilledIsMissedAndFoundAgain) {
  const std::string name = own_name("killed-server");
  auto server = std::make_unique<Child>([&] { new EchoServer(name); });
  ASSERT_TRUE(server->ready());
  auto sleeper = open(name, {.id = 1}), spinner = open(name, {.id = 2});
  for (std::uint32_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(comes_back(*sleeper, round));
    ASSERT_TRUE(comes_back(*spinner, round));
    ASSERT_TRUE(send(*sleeper, 100 + round));
    const auto held = hold(*sleeper);
    ASSERT_TRUE(held);
    server->kill();
    EXPECT_FALSE(hold(*sleeper, 100'000'000));
    EXPECT_EQ(sleeper->mac().link(), Link::down);
    Packet packet;
    for (const std::uint64_t end = Clock::steady().now_ns() + kPatienceNs;
         spinner->mac().link() == Link::up && Clock::steady().now_ns() < end;)
      (void)spinner->receive({&packet, 1});
    EXPECT_EQ(spinner->mac().link(), Link::down);
    const std::uint64_t drops = spinner->mac().counters().transmit_drops;
    EXPECT_TRUE(send(*spinner, 1));  // taken, lost and counted
    EXPECT_GT(spinner->mac().counters().transmit_drops, drops);
    server = std::make_unique<Child>([&] { new EchoServer(name); });
    ASSERT_TRUE(server->ready());
    EXPECT_EQ(number_of({held->data, held->length}), 100 + round) << "a packet that was out";
    for (auto* endpoint : {sleeper.get(), spinner.get()}) {
      for (const std::uint64_t end = Clock::steady().now_ns() + kPatienceNs;
           endpoint->mac().link() != Link::up && Clock::steady().now_ns() < end;)
        (void)endpoint->receive({&packet, 1});
      EXPECT_EQ(endpoint->mac().link(), Link::up);
    }
    sleeper->give_back({&*held, 1});
    EXPECT_EQ(sleeper->counters().held, 0U);
  }
}

// Not in this process: whoever runs the other tests keeps its processors.
int in_child(const std::function<int()>& what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what());
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<int> may_run_on() {
  cpu_set_t may;
  CPU_ZERO(&may);
  (void)::sched_getaffinity(0, sizeof may, &may);
  std::vector<int> on;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &may)) on.push_back(i);
  return on;
}

TEST(Serve, BindsAProcessNearItsQueueUnlessItIsBound) {
  const std::vector<int> all = may_run_on();
  if (all.size() < 2 || all.size() < static_cast<std::size_t>(::get_nprocs())) GTEST_SKIP() << "bound already";
  EXPECT_EQ(in_child([&] { return bind_near(all[1], Binding::core) && may_run_on() == std::vector{all[1]} ? 7 : 0; }),
            7);
  EXPECT_EQ(in_child([&] { return !bind_near(all[1], Binding::no) && may_run_on() == all ? 7 : 0; }), 7);
  EXPECT_EQ(in_child([&] { return !bind_near(-1, Binding::core) && may_run_on() == all ? 7 : 0; }), 7);
  EXPECT_EQ(in_child([&] {
              const bool bound = bind_near(all[1], Binding::cache);
              const std::vector<int> now = may_run_on();
              return bound ? (std::ranges::find(now, all[1]) == now.end() ? 7 : 0) : (now == all ? 7 : 0);
            }),
            7);
  EXPECT_EQ(in_child([&] {  // bound by somebody: that stays
              cpu_set_t one;
              CPU_ZERO(&one);
              CPU_SET(static_cast<unsigned>(all[0]), &one);
              (void)::sched_setaffinity(0, sizeof one, &one);
              return !bind_near(all[1], Binding::core) && may_run_on() == std::vector{all[0]} ? 7 : 0;
            }),
            7);
}

}  // namespace
}  // namespace viaduct::nic
