// `viaduct bench copy-ipc`: figure 9 of the ADCE paper: moving a buffer from one process to another.
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <viaduct/adma.h>

#include <memory>
#include <vector>

#include "base/copy_loop.hpp"
#include "base/segment.hpp"
#include "base/spin.hpp"
#include "base/topology.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/message_pipe.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint64_t kLayout = layout_hash("bench copy-ipc");

// One way to move buffers; made before the fork, used by the writer here and by the reader in the partner.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void write() = 0;
  virtual void read() = 0;
  virtual void prepare() {}  // in either process, before its first use
};

// A link of the copy engine. Both sides attach to their end of an inherited socket pair, each on its first use.
class LinkMover final : public Mover {
 public:
  LinkMover(FdPair sockets, std::size_t size, bool engine_owned)
      : sockets_(std::move(sockets)), size_(size), engine_owned_(engine_owned), parent_(::getpid()) {}

  void prepare() override {
    if (link_ != nullptr) return;
    const bool writer = ::getpid() == parent_;
    link_ = adma_attach((writer ? sockets_.first : sockets_.second).release(), 5000);
    if (engine_owned_)
      buffer_ = adma_alloc(size_);
    else
      buffer_ = (ordinary_ = std::make_unique<Memory>(*Memory::make(size_)))->data();
    std::memset(buffer_, 1, size_);
  }
  void write() override { moved_ += adma_write(link_, buffer_, size_) == static_cast<std::int64_t>(size_); }
  void read() override { moved_ += adma_read(link_, buffer_, size_) == static_cast<std::int64_t>(size_); }

 private:
  FdPair sockets_;
  std::size_t size_;
  bool engine_owned_;
  pid_t parent_;
  adma_link* link_ = nullptr;
  void* buffer_ = nullptr;
  std::unique_ptr<Memory> ordinary_;
  std::uint64_t moved_ = 0;
};

// The kernel copies from the writer's memory into the reader's; two flags in shared memory say when.
class CmaMover final : public Mover {
 public:
  CmaMover(Segment shared, std::size_t size)
      : shared_(std::move(shared)), memory_(*Memory::make(size)), writer_(::getpid()) {}

  void write() override {
    flag(0).store(++turn_, std::memory_order_release);
    while (flag(64).load(std::memory_order_acquire) != turn_) cpu_relax();
  }
  void read() override {
    ++turn_;
    while (flag(0).load(std::memory_order_acquire) != turn_) cpu_relax();
    // The same address on both sides: the partner is a fork of the writer, with pages of its own once it writes them.
    const iovec local{memory_.data(), memory_.size()}, remote{memory_.data(), memory_.size()};
    (void)::process_vm_readv(writer_, &local, 1, &remote, 1, 0);
    flag(64).store(turn_, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t>& flag(std::size_t offset) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(shared_.payload().data() + offset);
  }
  Segment shared_;
  Memory memory_;
  pid_t writer_;
  std::uint64_t turn_ = 0;
};

// The floor: memory that both have mapped, of which each copies one half; of little, the reader copies all. The halves
// change hands each time: a buffer comes from one processor and goes to the other.
class BareMover final : public Mover {
 public:
  BareMover(Segment shared, std::size_t size)
      : shared_(std::move(shared)), size_(size), part_(size < kShared ? size : size / 2) {}

  static std::size_t bytes_for(std::size_t size) { return kFlags + 2 * size; }

  void write() override {
    flag(0).store(++turn_, std::memory_order_release);
    if (part_ < size_) copy(turn_ % 2 == 0);
    while (flag(64).load(std::memory_order_acquire) != turn_) cpu_relax();
  }
  void read() override {
    ++turn_;
    while (flag(0).load(std::memory_order_acquire) != turn_) cpu_relax();
    copy(turn_ % 2 != 0);
    flag(64).store(turn_, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kFlags = 4096, kShared = 128 << 10;

  std::atomic<std::uint64_t>& flag(std::size_t offset) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(shared_.payload().data() + offset);
  }
  void copy(bool first_part) {
    const std::size_t from = first_part || part_ == size_ ? 0 : part_;
    std::byte* const source = shared_.payload().data() + kFlags;
    copy_through_ring(source + size_ + from, source + from, part_);
  }
  Segment shared_;
  std::size_t size_;
  std::size_t part_;
  std::uint64_t turn_ = 0;
};

// A pipe or a UNIX socket.
class StreamMover final : public Mover {
 public:
  StreamMover(FdPair ends, std::size_t size) : pipe_(std::move(ends)), buffer_(size) {}
  void write() override { pipe_.send(buffer_); }
  void read() override { pipe_.receive(buffer_); }

 private:
  FdPipe pipe_;
  std::vector<std::byte> buffer_;
};

class CopyIpc {
 public:
  explicit CopyIpc(const Options& options) : options_(options) {}

  Result<Report> run() {
    for (const std::size_t size : {4u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20}) VIADUCT_CHECK(add_size(size));
    const PinnedScope pinned(placement().mine);
    return suite_.run(options_, 11);
  }

 private:
  Status add_size(std::size_t size) {
    const std::string name = size_name(size);
    VIADUCT_TRY(FdPair owned, make_socket_pair(SOCK_STREAM));
    VIADUCT_CHECK(add(name, kOwned, Kind::us, size, std::make_unique<LinkMover>(std::move(owned), size, true)));
    VIADUCT_TRY(FdPair ordinary, make_socket_pair(SOCK_STREAM));
    VIADUCT_CHECK(add(name, "engine, ordinary memory", Kind::us, size,
                      std::make_unique<LinkMover>(std::move(ordinary), size, false)));
    VIADUCT_TRY(Segment flags, Segment::create({"viaduct-bench", kLayout, 4096}));
    VIADUCT_CHECK(add(name, kCma, Kind::peer, size, std::make_unique<CmaMover>(std::move(flags), size)));
    VIADUCT_TRY(FdPair socket, make_socket_pair(SOCK_STREAM));
    VIADUCT_CHECK(add(name, kUnix, Kind::peer, size, std::make_unique<StreamMover>(std::move(socket), size)));
    VIADUCT_TRY(FdPair pipe, make_pipe());
    VIADUCT_CHECK(add(name, "pipe", Kind::peer, size, std::make_unique<StreamMover>(std::move(pipe), size)));
    VIADUCT_TRY(Segment places, Segment::create({"viaduct-bench", kLayout, BareMover::bytes_for(size)}));
    VIADUCT_CHECK(add(name, kBare, Kind::floor, size, std::make_unique<BareMover>(std::move(places), size)));
    suite_.expect({name, kMetric, kOwned, kBare, Better::lower, size <= (64 << 10) ? 2 : 1.5});
    return {};
  }

  Status add(const std::string& name, const char* who, Kind kind, std::size_t size, std::unique_ptr<Mover> mover) {
    Mover* const shared = mover.get();
    movers_.push_back(std::move(mover));
    VIADUCT_TRY(Partner partner, Partner::fork(placement().theirs, [shared](std::uint64_t count) {
                  shared->prepare();
                  for (std::uint64_t i = 0; i < count; ++i) shared->read();
                }));
    partners_.push_back(std::make_unique<Partner>(std::move(partner)));
    Partner* const other = partners_.back().get();
    const int count = repetitions(size, (options_.quick ? std::size_t{2} : std::size_t{32}) << 20) / 4 + 4;
    suite_.add({name, who, kind, kMetric, "us", Better::lower, [shared, other, count] {
                  other->start(static_cast<std::uint64_t>(count) + 1);
                  shared->prepare();
                  shared->write();  // the partner is awake now
                  const double time = nanoseconds([&] {
                    for (int i = 0; i < count; ++i) shared->write();
                  });
                  other->finish();
                  return time / count / 1000;
                }});
    return {};
  }

  static constexpr const char* kMetric = "transfer";
  static constexpr const char* kOwned = "engine, engine-owned memory";
  static constexpr const char* kBare = "bare copy";
  static constexpr const char* kCma = "process_vm_readv";
  static constexpr const char* kUnix = "UNIX socket";

  Options options_;
  Suite suite_{"copy-ipc", "Moving a buffer to another process (figure 9)"};
  std::vector<std::unique_ptr<Mover>> movers_;
  std::vector<std::unique_ptr<Partner>> partners_;
};

}  // namespace

Result<Report> run_copy_ipc(const Options& options) {
  return CopyIpc(options).run();
}

}  // namespace viaduct::bench
