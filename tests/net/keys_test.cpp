// With a key: who has it talks, who has not is told so, and nobody else on the network can change, repeat or make up
// anything.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/crc32c.hpp"
#include "net/engine_pair.hpp"
#include "net/key.hpp"
#include "net/simulated_switch.hpp"

namespace viaduct::net {
namespace {

std::shared_ptr<const Key> key_of(const std::string& secret) {
  return std::make_shared<const Key>(Key::of(std::as_bytes(std::span(secret))));
}

StationOptions with(const std::string& secret) {
  StationOptions options;
  if (!secret.empty()) options.key = key_of(secret);
  return options;
}

struct Pair {
  explicit Pair(const std::string& firsts, const std::string& seconds)
      : first(network.add(1, with(firsts))), second(network.add(2, with(seconds))) {
    second.station.offer("echo");
    second.echoes = true;
  }
  // Where everything works.
  std::uint64_t open() { return number = open_flow(network, first, second, "echo"); }
  bool echoes() {
    const std::size_t before = first.heard[number].size();
    first.say(number, "something that nobody else may read");
    return network.run(network.now + 10 * kSecond, [&] { return first.heard[number].size() == before + 1; });
  }
  // Where it does not.
  std::string why_not() {
    const std::uint64_t end = network.now + 5 * kSecond;
    (void)first.station.connect(second.place, "echo", 1472, network.now, end);
    EXPECT_TRUE(network.run(end + kSecond, [&] { return first.failed.size() == 1; }));
    EXPECT_TRUE(second.met.empty());
    return first.failed.empty() ? "" : first.failed.begin()->second;
  }
  Switch network;
  Host& first;
  Host& second;
  std::uint64_t number = 0;
};

TEST(Keys, ThoseWhoHaveItTalkAndNobodyCanReadAlong) {
  Pair pair("a secret", "a secret");
  bool readable = false;
  pair.network.tap = [&](const Place&, const Place&, std::span<std::byte> frame) {
    const std::string text(reinterpret_cast<const char*>(frame.data()), frame.size());
    readable |= text.find("nobody else may read") != std::string::npos;
    return true;
  };
  pair.open();
  EXPECT_TRUE(pair.echoes());
  EXPECT_FALSE(readable);
  Pair open("", "");
  open.network.tap = pair.network.tap;
  open.open();
  EXPECT_TRUE(open.echoes());
  EXPECT_TRUE(readable) << "without a key it can be read";
}

TEST(Keys, OthersAreToldWhatIsMissing) {
  const std::uint64_t start = Switch().now;
  {
    Pair pair("", "a secret");
    EXPECT_EQ(pair.why_not(), "it talks only to those who have its key, and this side has none (VIADUCT_KEY_FILE)");
    EXPECT_LT(pair.network.now - start, kSecond);
  }
  {
    Pair pair("a secret", "");
    EXPECT_EQ(pair.why_not(), "it has no key, and this side talks only to those who have its own (VIADUCT_KEY_FILE)");
    EXPECT_LT(pair.network.now - start, 3 * kSecond) << "well before the time is up";
  }
  {
    Pair pair("a secret", "another secret");
    EXPECT_EQ(pair.why_not(), "its key is another one: VIADUCT_KEY_FILE has to name the same key on both sides");
    EXPECT_LT(pair.network.now - start, 3 * kSecond);
  }
}

TEST(Keys, WhoeverHasNoKeyCannotRefuseForAnother) {
  Pair pair("a secret", "a secret");
  // Somebody sees each hello and refuses it before the one that is meant, whose first answers are lost.
  int answers = 0;
  pair.network.tap = [&](const Place& from, const Place& to, std::span<std::byte> frame) {
    const auto opened = open_frame(frame);
    if (static_cast<FrameKind>(opened->header.kind) == FrameKind::answer) return ++answers > 3;
    if (static_cast<FrameKind>(opened->header.kind) == FrameKind::hello) {
      std::vector<std::byte> refusal(kHeaderSize + 1, static_cast<std::byte>(Refusal::no_such_name));
      FrameHeader header{};
      header.kind = static_cast<std::uint8_t>(FrameKind::refusal);
      header.session = Station::read_hello(frame)->number;
      seal_frame(refusal, header);
      pair.network.inject(to, from, refusal);
    }
    return true;
  };
  pair.open();
  EXPECT_GT(answers, 3);
  EXPECT_TRUE(pair.echoes());
  // One who has the key is believed at once.
  const std::uint64_t began = pair.network.now;
  (void)pair.first.station.connect(pair.second.place, "else", 1472, began, began + 5 * kSecond);
  EXPECT_TRUE(pair.network.run(began + kSecond / 10, [&] { return pair.first.failed.size() == 1; }));
}

TEST(Keys, ChangedFramesTouchNothing) {
  Pair pair("a secret", "a secret");
  pair.open();
  Random random(3);
  std::uint64_t changed = 0;
  // Any bit, with a checksum that is right again; others pass, so that it goes on.
  pair.network.tap = [&](const Place&, const Place&, std::span<std::byte> frame) {
    if (random.chance(0.6)) return true;
    const std::size_t at = 4 + random.below(frame.size() - 4);
    frame[at] ^= static_cast<std::byte>(1 << random.below(8));
    const std::uint32_t checksum = crc32c(frame.subspan(4));
    std::memcpy(frame.data(), &checksum, sizeof checksum);
    ++changed;
    return true;
  };
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(pair.echoes()) << i;
  EXPECT_GT(changed, 100U);
  EXPECT_TRUE(pair.first.over.empty());
  EXPECT_TRUE(pair.second.over.empty());
  EXPECT_GT(pair.first.station.counters().dropped_forged + pair.second.station.counters().dropped_forged, 50U);
}

TEST(Keys, RepeatedAndReflectedFramesTouchNothing) {
  Pair pair("a secret", "a secret");
  pair.first.station.offer("echo");  // so that its own hello would find somebody here
  std::vector<std::tuple<Place, Place, std::vector<std::byte>>> seen;
  pair.network.tap = [&](const Place& from, const Place& to, std::span<std::byte> frame) {
    seen.emplace_back(from, to, std::vector(frame.begin(), frame.end()));
    return true;
  };
  pair.open();
  ASSERT_TRUE(pair.echoes());
  ASSERT_TRUE(pair.echoes());
  pair.network.rest(kMillisecond);
  pair.network.tap = nullptr;
  const auto counters = [&](Host& host) { return host.station.counters().dropped_forged; };
  const std::uint64_t before = counters(pair.first) + counters(pair.second);
  const std::size_t heard = pair.first.heard[pair.number].size();
  const auto record = seen;
  for (const auto& [from, to, frame] : record) {
    pair.network.inject(from, to, frame);  // again
    pair.network.inject(to, from, frame);  // and back, as if the other side had written it
    pair.network.rest(kMillisecond);
  }
  const auto of_sessions = std::count_if(record.begin(), record.end(), [](const auto& one) {
    return static_cast<FrameKind>(std::get<2>(one)[5]) == FrameKind::session;
  });
  EXPECT_GE(counters(pair.first) + counters(pair.second), before + static_cast<std::uint64_t>(of_sessions));
  EXPECT_EQ(pair.first.heard[pair.number].size(), heard);
  EXPECT_EQ(pair.first.met.size() + pair.second.met.size(), 1U) << "nobody has met anybody through a repeated hello";
  EXPECT_TRUE(pair.first.over.empty());
  EXPECT_TRUE(pair.second.over.empty());
  EXPECT_TRUE(pair.echoes());
}

TEST(Keys, ARestartedPeerIsNoticedAndNobodyElseCanSaySo) {
  Pair pair("a secret", "a secret");
  pair.open();
  const auto unknown = [&] {
    std::vector<std::byte> bytes(kHeaderSize);
    FrameHeader header{};
    header.kind = static_cast<std::uint8_t>(FrameKind::unknown);
    header.session = pair.second.met.front();
    seal_frame(bytes, header);
    pair.network.inject(pair.second.place, pair.first.place, bytes);
  };
  for (int i = 0; i < 40; ++i) {
    unknown();
    pair.network.rest(100 * kMillisecond);
    ASSERT_TRUE(pair.echoes());
  }
  EXPECT_TRUE(pair.first.over.empty());
  pair.network.stop(pair.second);
  pair.network.add(2, with("a secret"));
  const std::uint64_t began = pair.network.now;
  pair.first.say(pair.number, "lost");
  ASSERT_TRUE(pair.network.run(began + 5 * kSecond, [&] { return !pair.first.over.empty(); }));
  EXPECT_EQ(pair.first.over[pair.number], Over::forgotten);
  EXPECT_LT(pair.network.now - began, 2 * kSecond);
}

// ---- the file

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "viaduct-key-" + std::to_string(::getpid());
    write("0123456789abcdef0123456789abcdef\n");
  }
  void TearDown() override { (void)::unlink(path_.c_str()); }
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  std::string fault() const {
    const auto key = Key::read(path_);
    return key ? "" : key.error().message();
  }
  std::string path_;
};

TEST_F(KeyFile, IsReadIfItIsOnlyOurs) {
  EXPECT_EQ(fault(), "");
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    write("0123456789abcdef", mode);
    EXPECT_NE(fault().find("others must have no right to it; chmod 600 " + path_), std::string::npos) << fault();
  }
  write("too short");
  EXPECT_NE(fault().find("has 9 bytes"), std::string::npos) << fault();
  write(std::string(5000, 'x'));
  EXPECT_NE(fault().find("16 to 4096"), std::string::npos) << fault();
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_NE(fault().find("VIADUCT_KEY_FILE"), std::string::npos) << fault();
  if (::geteuid() != 0) GTEST_SKIP() << "who owns a file is changed by root only";
  write("0123456789abcdef");
  ASSERT_EQ(::chown(path_.c_str(), 12345, 0), 0);
  EXPECT_NE(fault().find("belongs to user 12345"), std::string::npos) << fault();
}

TEST_F(KeyFile, DecidesWhomAnEngineTalksTo) {
  EngineOptions with_key, without;
  with_key.key_file = path_;
  without.key_file = "";
  Program client(with_key), server(with_key), stranger(without);
  server.echoes = true;
  server.offer("echo");
  client.connect(1, "echo");
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, FlowEvent::Kind::accepted); }));
  ASSERT_EQ(client.say(1, "hello"), Sent::yes);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == 1; }));
  stranger.connect(2, "echo");
  ASSERT_TRUE(run({&stranger, &server}, [&] { return stranger.has(2, FlowEvent::Kind::failed); }));
  EXPECT_EQ(stranger.find(2, FlowEvent::Kind::failed)->reason, Reason::key_differs);
  EXPECT_NE(stranger.find(2, FlowEvent::Kind::failed)->text.find("VIADUCT_KEY_FILE"), std::string::npos);
  write("0123456789abcdef", 0644);
  Failure why;
  EXPECT_EQ(Engine::open(with_key, client.memory, why), nullptr);
  EXPECT_EQ(why.code.value(), EACCES) << why.message;
}

}  // namespace
}  // namespace viaduct::net
