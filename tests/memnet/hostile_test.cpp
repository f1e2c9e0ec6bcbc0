// A client that breaks the rules loses its own sockets and nothing else.
#include <adma.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <viaduct/regions.hpp>

#include <random>

#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

// A client of the lab's own, that says what it likes.
class Stranger {
 public:
  explicit Stranger(const std::string& server, Hello hello = {}) {
    port_ = std::move(*via::Port::open(meeting::Peers::own_user, true));
    const via::Terms terms{.slot = 0, .number = 1, .tag = 5, .rights = via::kRdmaRead | via::kRdmaWrite};
    auto joining = port_->join({"", meeting_name(server, false), ""}, terms, std::as_bytes(std::span(&hello, 1)),
                               Deadline::after_ns(Clock::steady(), 2'000'000'000));
    handshake_ = std::move(*joining);
    step = handshake_->run(Deadline::after_ns(Clock::steady(), 2'000'000'000), [] { return false; });
    if (step == via::Handshake::Step::done) connection_ = handshake_->take();
  }
  via::Channel& channel() { return *connection_.channel; }
  via::Port& port() { return *port_; }

  bool say(Ask ask, std::uint32_t socket, std::span<const std::byte> bytes, bool more = false) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    for (;;) {
      switch (channel().try_send({&piece, 1}, immediate_of(ask, socket), more)) {
        case via::Sent::taken:
          return true;
        case via::Sent::closed:
          return false;
        case via::Sent::full:
          (void)hear();
      }
    }
  }
  template <class Words>
  requires std::is_aggregate_v<Words>
  bool say(Ask ask, std::uint32_t socket, const Words& words) {
    return say(ask, socket, std::as_bytes(std::span(&words, 1)));
  }
  // Takes everything that is there. False: the server has let us go.
  bool hear() {
    via::Fragment fragment;
    for (;;) {
      const via::Got got = channel().peek(fragment);
      if (got == via::Got::end) return false;
      if (got == via::Got::nothing) return true;
      last = static_cast<Tell>(kind_of(fragment.immediate));
      last_bytes.assign(fragment.bytes.begin(), fragment.bytes.end());
      channel().consume();
    }
  }
  bool is_let_go() {
    while (hear())
      if (channel().wait_to_receive(5000)) return false;
    return true;
  }
  bool wait_for(Tell what) {
    while (last != what) {
      if (!hear()) return false;
      if (last != what && channel().wait_to_receive(5000)) return false;
    }
    return true;
  }

  via::Handshake::Step step = via::Handshake::Step::failed;
  Tell last = Tell::room;
  std::vector<std::byte> last_bytes;

 private:
  std::shared_ptr<via::Port> port_;
  std::unique_ptr<via::Handshake> handshake_;
  via::Connection connection_;
};

class Hostile : public MemnetTest {
 protected:
  // Somebody honest goes on all the while.
  void SetUp() override {
    MemnetTest::SetUp();
    honest = std::make_unique<Pair>();
  }
  void TearDown() override {
    work();
    honest.reset();
    MemnetTest::TearDown();
  }
  void work() {
    ASSERT_EQ(memnet_send(honest->here, "good", 4, 0), 4);
    std::string got(4, 0);
    ASSERT_TRUE(read_all(honest->there.get(), got));
    EXPECT_EQ(got, "good");
  }
  static bool make(Stranger& stranger, std::uint32_t number = 0) {
    stranger.last = Tell::room;
    return stranger.say(Ask::make, number, MakeWords{1, AF_INET, SOCK_STREAM, 0}) && stranger.wait_for(Tell::reply);
  }
  std::unique_ptr<Pair> honest;
};

TEST_F(Hostile, HandshakesAreChecked) {
  Hello other;
  other.version = 99;
  EXPECT_EQ(Stranger(server.name(), other).step, via::Handshake::Step::refused);
  other = {};
  other.magic = 1;
  EXPECT_EQ(Stranger(server.name(), other).step, via::Handshake::Step::refused);
  other = {};
  other.worker = 500;
  EXPECT_EQ(Stranger(server.name(), other).step, via::Handshake::Step::refused);
}

TEST_F(Hostile, SocketsOfOthersCannotBeNamed) {
  for (const std::uint32_t number : {0u, 1u, 5000u, kAcceptedBit, kAcceptedBit | 1u, 0xffffffu}) {
    Stranger stranger(server.name());
    ASSERT_EQ(stranger.step, via::Handshake::Step::done);
    EXPECT_TRUE(stranger.say(Ask::close, number, std::span<const std::byte>{}));
    EXPECT_TRUE(stranger.is_let_go()) << number;
  }
}

TEST_F(Hostile, NumbersMustBeFreeAndInTurn) {
  Stranger stranger(server.name());
  ASSERT_TRUE(make(stranger));
  ASSERT_TRUE(stranger.say(Ask::make, 0, MakeWords{2, AF_INET, SOCK_STREAM, 0}));
  EXPECT_TRUE(stranger.is_let_go());
  Stranger another(server.name());
  ASSERT_TRUE(another.say(Ask::make, 7, MakeWords{2, AF_INET, SOCK_STREAM, 0}));
  EXPECT_TRUE(another.is_let_go());
}

TEST_F(Hostile, WordsMustBeThere) {
  for (int ask = 1; ask <= 25; ++ask) {
    if (ask == static_cast<int>(Ask::send) || ask == static_cast<int>(Ask::send_more)) continue;
    if (ask == static_cast<int>(Ask::close) || ask == static_cast<int>(Ask::room)) continue;
    Stranger stranger(server.name());
    ASSERT_TRUE(make(stranger));
    const std::byte few[2] = {};
    ASSERT_TRUE(stranger.say(static_cast<Ask>(ask), 0, few));
    EXPECT_TRUE(stranger.is_let_go()) << ask;
  }
}

TEST_F(Hostile, WindowsAreKept) {
  {
    Stranger stranger(server.name());
    ASSERT_TRUE(make(stranger));
    ASSERT_TRUE(stranger.say(Ask::window, 0, CountWords{1}));
    EXPECT_TRUE(stranger.is_let_go()) << "nothing was pushed";
  }
  {
    KernelListener listener;
    Stranger stranger(server.name());
    ASSERT_TRUE(make(stranger));
    stranger.last = Tell::room;
    ASSERT_TRUE(stranger.say(Ask::connect, 0,
                             AddressWords{2, WireAddress::of(generic(listener.address), sizeof listener.address)}));
    ASSERT_TRUE(stranger.wait_for(Tell::reply));
    const Fd deaf = listener.accept();
    const std::vector<std::byte> bytes(16 << 10);
    bool let_go = false;
    for (int i = 0; i < 10'000 && !let_go; ++i) let_go = !stranger.say(Ask::send, 0, bytes);
    EXPECT_TRUE(let_go) << "more was sent than the window";
  }
  {
    Stranger stranger(server.name());
    ASSERT_TRUE(make(stranger));
    bool let_go = false;
    for (unsigned i = 0; i < 2000 && !let_go; ++i)
      let_go = !stranger.say(Ask::receive_memory, 0, JobWords{i, 1, 0, 10, 0});
    EXPECT_TRUE(let_go || stranger.is_let_go()) << "more jobs than there may be";
  }
}

// Options whose values would be pointers, descriptors or other people's business.
TEST_F(Hostile, OptionsAreFromAList) {
  Stranger stranger(server.name());
  ASSERT_TRUE(make(stranger));
  for (const int name : {SO_ATTACH_FILTER, SO_BINDTODEVICE, SO_MARK, SO_PEERCRED, SO_ATTACH_BPF}) {
    std::vector<std::byte> bytes(sizeof(OptionWords) + 16);
    const OptionWords words{3, SOL_SOCKET, name, 16};
    std::memcpy(bytes.data(), &words, sizeof words);
    stranger.last = Tell::room;
    ASSERT_TRUE(stranger.say(Ask::set_option, 0, bytes));
    ASSERT_TRUE(stranger.wait_for(Tell::reply));
    ReplyWords reply{};
    ASSERT_TRUE(read_words(stranger.last_bytes, reply));
    EXPECT_EQ(reply.error, ENOPROTOOPT) << name;
  }
  ASSERT_TRUE(stranger.say(Ask::set_option, 0, OptionWords{4, SOL_SOCKET, SO_LINGER, 60'000}));
  EXPECT_TRUE(stranger.is_let_go()) << "a value that is not there";
}

TEST_F(Hostile, MessagesOfSeveralFragmentsAreNone) {
  Stranger stranger(server.name());
  ASSERT_TRUE(make(stranger));
  ASSERT_TRUE(stranger.say(Ask::room, 0, std::span<const std::byte>{}, true));
  EXPECT_TRUE(stranger.is_let_go());
}

// A client that asks and never takes the answers.
TEST_F(Hostile, AnswersAreNotKeptForEver) {
  Stranger stranger(server.name());
  ASSERT_TRUE(make(stranger));
  const OptionWords words{1, SOL_SOCKET, SO_TYPE, 4};
  const iovec piece{const_cast<OptionWords*>(&words), sizeof words};
  bool let_go = false;
  for (int i = 0; i < 400'000 && !let_go; ++i) {
    const via::Sent sent = stranger.channel().try_send({&piece, 1}, immediate_of(Ask::get_option, 0));
    if (sent == via::Sent::full) (void)stranger.channel().wait_to_send(sizeof words, 100);
    let_go = sent == via::Sent::closed;
  }
  EXPECT_TRUE(let_go);
}

// Anything at all, by seed.
TEST_F(Hostile, NonsenseOfEveryKind) {
  KernelListener listener;
  for (unsigned seed = 0; seed < static_cast<unsigned>(viaduct::testing::rounds(60)); ++seed) {
    std::mt19937 random(seed);
    Stranger stranger(server.name());
    ASSERT_EQ(stranger.step, via::Handshake::Step::done) << seed;
    bool there = true;
    for (std::uint32_t i = 0; i < 4 && there; ++i) there = make(stranger, i);
    for (int message = 0; message < 300 && there; ++message) {
      std::vector<std::byte> bytes(random() % 4 == 0 ? random() % 3000 : random() % 64);
      for (std::byte& one : bytes) one = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 4);
      if (random() % 3 == 0 && bytes.size() >= sizeof(AddressWords)) {
        const AddressWords words{static_cast<std::uint32_t>(random()),
                                 WireAddress::of(generic(listener.address), sizeof listener.address)};
        std::memcpy(bytes.data(), &words, sizeof words);
      }
      there = stranger.say(static_cast<Ask>(random() % 20 + (random() % 50 == 0 ? 200 : 0)), random() % 5, bytes);
      there = there && stranger.hear();
    }
    if (seed % 10 == 0) work();
  }
}

TEST_F(Hostile, MemoryThatIsGoneFailsTheJob) {
  Pair pair;
  auto* const bytes =
      static_cast<char*>(::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  memnet_mem_t memory;
  ASSERT_EQ(memnet_register_mem(bytes, 1 << 20, &memory), 0);
  ::munmap(bytes, 1 << 20);
  EXPECT_EQ(memnet_send_direct(pair.here, memory, 0, 1 << 20, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  Pair other;
  const int off = 0;
  ASSERT_EQ(memnet_setsockopt(other.here, SOL_MEMNET, MEMNET_PUSH, &off, sizeof off), 0);
  pollfd nothing{other.here, POLLIN, 0};
  ASSERT_EQ(memnet_poll(&nothing, 1, 20), 0);
  ASSERT_TRUE(write_all(other.there.get(), "nowhere to go"));
  EXPECT_EQ(memnet_recv_direct(other.here, memory, 0, 100, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  work();
}

// A hole in a memory file that the server sends from reads as zeros, or fails the job: never the server.
TEST_F(Hostile, MemoryWithHolesHurtsNobody) {
  Pair pair;
  constexpr std::size_t kLength = 1 << 20;
  auto* const bytes = static_cast<char*>(adma_alloc(kLength));
  std::memset(bytes, 7, kLength);
  copy::RegionPlace place;
  ASSERT_TRUE(copy::region_of(bytes, kLength, place));
  memnet_mem_t memory;
  ASSERT_EQ(memnet_register_mem(bytes, kLength, &memory), 0);
  ASSERT_EQ(memnet_send_direct(pair.here, memory, 0, 10, 0), 10);
  (void)::fallocate(place.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, kLength);
  memnet_job_t job;
  ASSERT_EQ(memnet_async_send(pair.here, memory, 0, kLength, 0, &job), 0);
  std::string got(kLength + 10, 0);
  EXPECT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(memnet_job_wait(job, 5000, nullptr), 1);
  EXPECT_EQ(memnet_deregister_mem(memory), 0);
  adma_free(bytes);
  work();
}

}  // namespace
}  // namespace viaduct::memnet::testing
