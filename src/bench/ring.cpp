// `viaduct bench ring`: our rings between two processes, against the bare cache line, a pipe and a UNIX socket.
#include <sys/socket.h>

#include "base/segment.hpp"
#include "base/topology.hpp"
#include "bench/message_pipe.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kLayout = layout_hash("bench ring");
constexpr std::size_t kBulkMessage = 65536;
constexpr double kMessageBytes = kBulkMessage;
constexpr std::size_t kByteCapacity = std::size_t{512} << 10;

class RingBenchmark {
 public:
  explicit RingBenchmark(const Options& options) : options_(options) {}

  Result<Report> run() {
    const PinnedScope pinned(placement().mine);
    VIADUCT_CHECK(build());
    return suite_.run(options_, 15);
  }

 private:
  enum class What { one_way, stream };

  Status build() {
    VIADUCT_CHECK(add_latency("8 B message", 8));
    VIADUCT_CHECK(add_latency("64 B message", 64));
    VIADUCT_CHECK(add_rate());
    VIADUCT_CHECK(add_bandwidth());
    suite_.expect({"8 B message", "one-way latency", kUs, kLine, Better::lower, 1.6});
    suite_.expect({"64 KB messages", "bandwidth", kUs, kTwoCopies, Better::higher, 0.8});
    return {};
  }

  Status add_latency(const std::string& name, std::size_t size) {
    const auto add = [&](const char* who, Kind kind, std::uint64_t count, std::unique_ptr<Pipe> there,
                         std::unique_ptr<Pipe> back) -> Status {
      VIADUCT_TRY(Link * link, connect(std::move(there), std::move(back), size, true));
      suite_.add({name, who, kind, "one-way latency", "ns", Better::lower,
                  [link, n = scaled(count)] { return link->one_way_ns(n); }});
      return {};
    };
    VIADUCT_TRY(std::byte * lines, shared(4096));
    VIADUCT_CHECK(
        add(kLine, Kind::floor, 50'000, std::make_unique<CacheLine>(lines), std::make_unique<CacheLine>(lines + 256)));
    const SlotRingGeometry geometry{size <= 56 ? 64u : 128u, 256};
    VIADUCT_TRY(std::byte * there, shared(geometry.bytes()));
    VIADUCT_TRY(std::byte * back, shared(geometry.bytes()));
    VIADUCT_CHECK(add(kUs, Kind::us, 50'000, std::make_unique<SlotPipe>(std::span(there, geometry.bytes()), geometry),
                      std::make_unique<SlotPipe>(std::span(back, geometry.bytes()), geometry)));
    // Beside what sleeps in the kernel for every message: the same of us.
    VIADUCT_TRY(std::byte * sleeping_there, shared(geometry.bytes()));
    VIADUCT_TRY(std::byte * sleeping_back, shared(geometry.bytes()));
    VIADUCT_CHECK(add(kUsSleeping, Kind::us, 1'000,
                      std::make_unique<SlotPipe>(std::span(sleeping_there, geometry.bytes()), geometry, 0),
                      std::make_unique<SlotPipe>(std::span(sleeping_back, geometry.bytes()), geometry, 0)));
    VIADUCT_TRY(FdPair pipe_there, make_pipe());
    VIADUCT_TRY(FdPair pipe_back, make_pipe());
    VIADUCT_CHECK(add(kPipe, Kind::peer, 1'000, std::make_unique<FdPipe>(std::move(pipe_there)),
                      std::make_unique<FdPipe>(std::move(pipe_back))));
    VIADUCT_TRY(FdPair unix_there, make_socket_pair(SOCK_STREAM));
    VIADUCT_TRY(FdPair unix_back, make_socket_pair(SOCK_STREAM));
    VIADUCT_CHECK(add(kUnix, Kind::peer, 1'000, std::make_unique<FdPipe>(std::move(unix_there)),
                      std::make_unique<FdPipe>(std::move(unix_back))));
    VIADUCT_TRY(FdPair spin_there, make_socket_pair(SOCK_STREAM));
    VIADUCT_TRY(FdPair spin_back, make_socket_pair(SOCK_STREAM));
    return add(kUnixSpinning, Kind::peer, 5'000, std::make_unique<FdPipe>(FdPipe::spinning(std::move(spin_there))),
               std::make_unique<FdPipe>(FdPipe::spinning(std::move(spin_back))));
  }

  Status add_rate() {
    const auto add = [&](const char* who, Kind kind, std::uint64_t count, std::unique_ptr<Pipe> there,
                         std::unique_ptr<Pipe> back) -> Status {
      VIADUCT_TRY(Link * link, connect(std::move(there), std::move(back), 8, false));
      suite_.add({"8 B messages", who, kind, "rate", "million/s", Better::higher,
                  [link, n = scaled(count)] { return 1e3 / link->per_message_ns(n); }});
      return {};
    };
    VIADUCT_TRY(std::byte * there, shared(SlotPipe::kGeometry.bytes()));
    VIADUCT_TRY(std::byte * back, shared(SlotPipe::kGeometry.bytes()));
    VIADUCT_CHECK(add(kUs, Kind::us, 1'000'000,
                      std::make_unique<SlotPipe>(std::span(there, SlotPipe::kGeometry.bytes())),
                      std::make_unique<SlotPipe>(std::span(back, SlotPipe::kGeometry.bytes()))));
    VIADUCT_CHECK(add_kernel_peers(add, 100'000));
    return {};
  }

  Status add_bandwidth() {
    const auto add = [&](const char* who, Kind kind, std::uint64_t count, std::unique_ptr<Pipe> there,
                         std::unique_ptr<Pipe> back) -> Status {
      VIADUCT_TRY(Link * link, connect(std::move(there), std::move(back), kBulkMessage, false));
      suite_.add({"64 KB messages", who, kind, "bandwidth", "GB/s", Better::higher,
                  [link, n = scaled(count)] { return kMessageBytes / link->per_message_ns(n); }});
      return {};
    };
    suite_.add({"64 KB messages", "one memcpy", Kind::floor, "bandwidth", "GB/s", Better::higher,
                [source = Bytes(kBulkMessage), target = Bytes(kBulkMessage)]() mutable {
                  constexpr int kCount = 2000;
                  const std::uint64_t start = Clock::steady().now_ns();
                  for (int i = 0; i < kCount; ++i) {
                    std::memcpy(target.data(), source.data(), kBulkMessage);
                    asm volatile("" ::"r"(target.data()) : "memory");
                  }
                  return kMessageBytes * kCount / static_cast<double>(Clock::steady().now_ns() - start);
                }});
    VIADUCT_TRY(std::byte * bare_there, shared(TwoCopies::bytes()));
    VIADUCT_TRY(std::byte * bare_back, shared(TwoCopies::bytes()));
    VIADUCT_CHECK(add(kTwoCopies, Kind::floor, 3'000, std::make_unique<TwoCopies>(bare_there),
                      std::make_unique<TwoCopies>(bare_back)));
    VIADUCT_TRY(std::byte * there, shared(byte_ring_bytes(kByteCapacity)));
    VIADUCT_TRY(std::byte * back, shared(byte_ring_bytes(kByteCapacity)));
    VIADUCT_CHECK(add(kUs, Kind::us, 3'000,
                      std::make_unique<BytePipe>(std::span(there, byte_ring_bytes(kByteCapacity)), kByteCapacity),
                      std::make_unique<BytePipe>(std::span(back, byte_ring_bytes(kByteCapacity)), kByteCapacity)));
    return add_kernel_peers(add, 500);
  }

  template <class Add>
  Status add_kernel_peers(const Add& add, std::uint64_t count) {
    VIADUCT_TRY(FdPair pipe_there, make_pipe());
    VIADUCT_TRY(FdPair pipe_back, make_pipe());
    VIADUCT_CHECK(add(kPipe, Kind::peer, count, std::make_unique<FdPipe>(std::move(pipe_there)),
                      std::make_unique<FdPipe>(std::move(pipe_back))));
    VIADUCT_TRY(FdPair unix_there, make_socket_pair(SOCK_STREAM));
    VIADUCT_TRY(FdPair unix_back, make_socket_pair(SOCK_STREAM));
    return add(kUnix, Kind::peer, count, std::make_unique<FdPipe>(std::move(unix_there)),
               std::make_unique<FdPipe>(std::move(unix_back)));
  }

  std::uint64_t scaled(std::uint64_t count) const { return options_.quick ? count / 10 + 1 : count; }

  Result<std::byte*> shared(std::size_t size) {
    VIADUCT_TRY(Segment segment, Segment::create({"viaduct-bench", kLayout, size}));
    segments_.push_back(std::move(segment));
    return segments_.back().payload().data();
  }

  Result<Link*> connect(std::unique_ptr<Pipe> there, std::unique_ptr<Pipe> back, std::size_t size, bool answers) {
    links_.push_back(std::make_unique<Link>(std::move(there), std::move(back), size));
    VIADUCT_CHECK(links_.back()->connect(answers, placement().theirs));
    return links_.back().get();
  }

  static constexpr const char* kUs = "viaduct ring";
  static constexpr const char* kUsSleeping = "viaduct ring, sleeping";
  static constexpr const char* kLine = "cache line";
  static constexpr const char* kTwoCopies = "two bare copies";
  static constexpr const char* kPipe = "pipe";
  static constexpr const char* kUnix = "UNIX socket";
  static constexpr const char* kUnixSpinning = "UNIX socket, spinning";

  Options options_;
  Suite suite_{"ring", "Messages between two processes, each on its own processor"};
  std::vector<Segment> segments_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace

Result<Report> run_ring(const Options& options) {
  return RingBenchmark(options).run();
}

}  // namespace viaduct::bench
