// Nodes on a real network: the loopback interface.
#include "net/node.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>

#include "base/clock.hpp"

namespace viaduct::net {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class OneRegion final : public RegisteredMemory {
 public:
  explicit OneRegion(std::size_t size) : bytes(size) {}
  Reached reach(std::uint64_t, std::uint64_t tag, std::uint64_t address, std::uint64_t length, Access) override {
    if (tag != 5) return {TransferStatus::no_such_tag};
    if (address > bytes.size() || length > bytes.size() - address) return {TransferStatus::out_of_bounds};
    return {TransferStatus::done, bytes.data() + address};
  }
  std::vector<std::byte> bytes;
};

// Tests run side by side: each process has a well-known port of its own, below those that the kernel gives out.
std::uint16_t port_of_this_test() {
  return static_cast<std::uint16_t>(30'000 + ::getpid() % 2'700);
}

struct Peer {
  explicit Peer(std::size_t memory_size = 0, std::uint64_t silence_ns = 30 * kSecond) : memory(memory_size) {
    NodeOptions options;
    options.well_known_port = port_of_this_test();
    options.station.session.silence_ns = silence_ns;
    auto opened = Node::open(options, memory);
    EXPECT_TRUE(opened) << opened.error().message();
    node = std::move(*opened);
  }
  // One turn of a program that accepts every flow and echoes every message.
  bool turn() {
    bool moved = node->progress();
    StationEvent event;
    while (node->take_event(event)) {
      moved = true;
      if (event.kind == StationEvent::Kind::connected) connected = event.session;
      if (event.kind == StationEvent::Kind::met) met = event.session;
      if (event.kind == StationEvent::Kind::failed) failed = event.text;
      if (event.kind != StationEvent::Kind::session) continue;
      Session* session = node->use(event.session);
      const Event& what = event.event;
      if (what.kind == Event::Kind::over) over = session->over();
      if (what.kind == Event::Kind::asked) session->accept(what.flow, {}, {});
      if (what.kind == Event::Kind::accepted) flow = what.flow;
      if (what.kind == Event::Kind::transferred) statuses.push_back(what.status);
      std::span<const std::byte> message;
      while (session->peek(what.flow, message)) {
        heard.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
        if (echoes) say(event.session, what.flow, heard.back());
        session->consume(what.flow);
      }
    }
    return moved;
  }
  void say(std::uint64_t session, std::uint32_t on, std::string text) {
    const iovec piece{text.data(), text.size()};
    EXPECT_EQ(node->use(session)->try_send(on, {&piece, 1}), Sent::yes);
  }

  OneRegion memory;
  std::unique_ptr<Node> node;
  bool echoes = false;
  std::uint64_t connected = 0, met = 0;
  std::uint32_t flow = 0;
  std::string failed;
  Over over = Over::no;
  std::vector<std::string> heard;
  std::vector<TransferStatus> statuses;
};

// Runs all of them until `done`, sleeping where nothing moves. False: not within the time.
template <class Done>
bool run(std::initializer_list<Peer*> peers, Done&& done, std::uint64_t within = 20 * kSecond) {
  const std::uint64_t end = Clock::steady().now_ns() + within;
  while (!done()) {
    bool moved = false;
    for (Peer* peer : peers) moved |= peer->turn();
    if (!moved) {
      for (Peer* peer : peers) peer->node->sleep(200'000);
    }
    if (Clock::steady().now_ns() > end) return false;
  }
  return true;
}

Result<std::uint64_t> connect(Node& node, const std::string& host, const std::string& name, std::uint64_t within_ns) {
  VIADUCT_TRY(const Route way, node.route_to(host));
  return node.connect(way, name, within_ns);
}

void join(Peer& client, Peer& server, const std::string& name = "echo", const std::string& host = "127.0.0.1") {
  auto number = connect(*client.node, host, name, 10 * kSecond);
  ASSERT_TRUE(number) << number.error().message();
  ASSERT_TRUE(run({&client, &server}, [&] { return client.connected == *number && server.met != 0; })) << client.failed;
  ASSERT_NE(client.node->use(*number)->open({}, {}), 0U);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.flow != 0; }));
}

TEST(Node, CarriesMessagesAndMemory) {
  Peer client, server(4 << 20);
  server.echoes = true;
  ASSERT_TRUE(server.node->offer("echo"));
  ASSERT_NO_FATAL_FAILURE(join(client, server));
  for (int i = 0; i < 100; ++i) {
    client.say(client.connected, client.flow, "message " + std::to_string(i));
    ASSERT_TRUE(run({&client, &server}, [&] { return client.heard.size() == static_cast<std::size_t>(i) + 1; }));
  }
  EXPECT_EQ(client.heard[99], "message 99");

  std::vector<std::byte> out(3 << 20), back(3 << 20);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7 + i / 4096);
  ASSERT_TRUE(client.node->use(client.connected)->put(client.flow, out.data(), 5, 100, out.size(), 1));
  ASSERT_TRUE(run({&client, &server}, [&] { return client.statuses.size() == 1; }));
  EXPECT_EQ(client.statuses[0], TransferStatus::done);
  EXPECT_EQ(std::memcmp(server.memory.bytes.data() + 100, out.data(), out.size()), 0);
  ASSERT_TRUE(client.node->use(client.connected)->get(client.flow, back.data(), 5, 100, back.size(), 2));
  ASSERT_TRUE(client.node->use(client.connected)->get(client.flow, back.data(), 6, 0, 10, 3));
  ASSERT_TRUE(run({&client, &server}, [&] { return client.statuses.size() == 3; }));
  EXPECT_TRUE(out == back);
  EXPECT_EQ(std::count(client.statuses.begin(), client.statuses.end(), TransferStatus::no_such_tag), 1);

  const std::uint64_t ended = client.connected;
  client.node->forget(ended);
  EXPECT_TRUE(run({&client, &server}, [&] { return server.over == Over::finished_there; }));
  EXPECT_EQ(client.node->look(ended), nullptr);
}

TEST(Node, AHelloFindsTheProcessThatItIsMeantFor) {
  Peer client;
  std::vector<std::unique_ptr<Peer>> servers;
  for (int i = 0; i < 4; ++i) {
    servers.push_back(std::make_unique<Peer>());
    ASSERT_TRUE(servers.back()->node->offer("server " + std::to_string(i)));
  }
  // Whichever of the four gets it: sixteen times.
  for (int round = 0; round < 16; ++round) {
    const std::size_t wanted = static_cast<std::size_t>(round) % 4;
    client.connected = 0;
    for (auto& server : servers) server->met = 0;
    const auto number = connect(*client.node, "127.0.0.1", "server " + std::to_string(wanted), 10 * kSecond);
    ASSERT_TRUE(run({&client, servers[0].get(), servers[1].get(), servers[2].get(), servers[3].get()},
                    [&] { return client.connected == *number && servers[wanted]->met != 0; }));
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(servers[i]->met != 0, i == wanted);
    client.node->forget(*number);
  }
  EXPECT_EQ(servers[0]->node->offer("server 1").error().message(), "another process offers the name 'server 1'");
}

TEST(Node, AMemberThatStandsStillSwallowsNoPeer) {
  Peer client, server;
  ASSERT_TRUE(server.node->offer("echo"));
  // Others of the group, who never look.
  std::vector<Fd> asleep;
  for (int i = 0; i < 3; ++i) {
    asleep.emplace_back(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    ::setsockopt(asleep.back().get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_of_this_test());
    ASSERT_EQ(::bind(asleep.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  for (int round = 0; round < 2; ++round) {
    const auto number = connect(*client.node, "127.0.0.1", "echo", 60 * kSecond);
    ASSERT_TRUE(run(
        {&client, &server}, [&] { return client.connected == *number; }, 60 * kSecond));
  }
}

TEST(Node, SaysWhyNot) {
  Peer client, server;
  ASSERT_TRUE(server.node->offer("echo"));
  EXPECT_EQ(connect(*client.node, "127.0.0.1:nonsense", "x", kSecond).error().message(),
            "'nonsense' is no port, 1 to 65535, in '127.0.0.1:nonsense' (HOST, HOST:PORT or [HOST]:PORT)");
  ASSERT_TRUE(connect(*client.node, "127.0.0.1", "nobody", 10 * kSecond));
  ASSERT_TRUE(run({&client, &server}, [&] { return !client.failed.empty(); }));
  EXPECT_EQ(client.failed, "nobody there goes by the name 'nobody'");
  client.failed.clear();
  // Nobody is at that port.
  ASSERT_TRUE(connect(*client.node, "127.0.0.1:9", "echo", kSecond / 5));
  ASSERT_TRUE(run({&client, &server}, [&] { return !client.failed.empty(); }));
  EXPECT_EQ(client.failed, "nobody answered");
}

TEST(Node, DrainsWhatWasTaken) {
  Peer client, server;
  ASSERT_TRUE(server.node->offer("echo"));
  ASSERT_NO_FATAL_FAILURE(join(client, server));
  for (int i = 0; i < 10; ++i) client.say(client.connected, client.flow, std::to_string(i));
  EXPECT_FALSE(client.node->drain(5'000'000));  // the server does not look
  ASSERT_TRUE(run({&client, &server}, [&] { return server.heard.size() == 10; }));
  EXPECT_TRUE(run({&client, &server}, [&] { return client.node->look(client.connected)->quiet(); }));
  EXPECT_TRUE(client.node->drain(kSecond));
}

// A peer that is gone without a word: the silence ends the session, and its host can be connected to again.
TEST(Node, GivesASilentPeerUpAndMeetsItAgain) {
  Peer client(0, kSecond / 3);
  auto server = std::make_unique<Peer>();
  ASSERT_TRUE(server->node->offer("echo"));
  ASSERT_NO_FATAL_FAILURE(join(client, *server));
  server.reset();
  client.say(client.connected, client.flow, "anybody?");
  ASSERT_TRUE(run({&client}, [&] { return client.over != Over::no; }));
  EXPECT_EQ(client.over, Over::timed_out);
  Peer again;
  ASSERT_TRUE(again.node->offer("echo"));
  client.flow = 0;
  ASSERT_NO_FATAL_FAILURE(join(client, again));
  client.say(client.connected, client.flow, "hello");
  EXPECT_TRUE(run({&client, &again}, [&] { return again.heard.size() == 1; }));
}

}  // namespace
}  // namespace viaduct::net
