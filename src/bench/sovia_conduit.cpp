#include "bench/sovia_conduit.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "bench/sovia_end.hpp"

namespace viaduct::bench {

namespace {

class SoviaConduit final : public Conduit {
 public:
  SoviaConduit(const SoviaOptions& options, std::string name, Memory buffer)
      : options_(options), name_(std::move(name)), buffer_(std::move(buffer)) {}

  void open(Side side) override {
    end_ = std::make_unique<SoviaEnd>(options_);
    end_->connect(side, name_);
  }
  void close() override { end_->close(); }
  void send(std::size_t size) override { end_->send({buffer_.data(), size}); }
  void receive(std::size_t size) override {
    for (std::size_t have = 0; have < size;) {
      const std::size_t part = end_->recv({buffer_.data() + have, size - have});
      if (part == 0) give_up("a stream closed");
      have += part;
    }
  }
  // The last of a measurement is not to wait for a timer.
  void settle() override { end_->flush(); }

 private:
  const SoviaOptions options_;
  const std::string name_;
  Memory buffer_;
  std::unique_ptr<SoviaEnd> end_;  // each process's own
};

}  // namespace

Result<std::unique_ptr<Conduit>> make_sovia(const SoviaOptions& options) {
  static int number = 0;
  VIADUCT_TRY(Memory buffer, Memory::make(kSoviaChunk));
  return std::unique_ptr<Conduit>(
      std::make_unique<SoviaConduit>(options, fmt::format("sovia.{}.{}", ::getpid(), ++number), std::move(buffer)));
}

}  // namespace viaduct::bench
