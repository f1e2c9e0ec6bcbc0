// How two programs of different hosts make a connection: by opening a flow, whose request and answer carry their words.
#pragma once

#include <vector>

#include "via/port/handshake.hpp"
#include "via/port/network.hpp"

namespace viaduct::via {

class NetHandshake final : public Handshake {
 public:
  // Somebody has asked.
  NetHandshake(std::shared_ptr<Network> network, net::Incoming incoming);
  // Asks until the deadline: the name may not be offered yet.
  NetHandshake(std::shared_ptr<Network> network, std::string host, std::string name, const Terms& mine,
               std::span<const std::byte> words, Deadline deadline);
  ~NetHandshake() override;

  Step advance() override;
  void wait(std::uint64_t most_ns) override;
  std::span<const std::byte> words() const override { return words_; }
  std::string peer() const override { return peer_; }
  bool found_nobody_yet() const override { return stage_ == Stage::between; }
  Error fault() const override { return fault_; }
  bool accept(const Terms& mine, std::span<const std::byte> words) override;
  void refuse(std::span<const std::byte> words) override;
  Connection take() override;

 private:
  enum class Stage { asking, between, asked, open, over };
  Step ask();
  Step look();
  Step again(Step if_late);
  Step over(Step step);
  void let_go();

  const std::shared_ptr<Network> network_;
  Stage stage_;
  net::FlowId flow_ = 0;
  std::uint64_t user_ = 0;
  std::string host_, name_, peer_;
  Terms mine_;
  std::vector<std::byte> request_;
  std::vector<std::byte> words_;
  Deadline deadline_ = Deadline::never();
  std::uint64_t again_at_ = 0;
  std::uint64_t nap_ns_ = 0;
  Step end_ = Step::pending;
  Error fault_{0, ""};
};

}  // namespace viaduct::via
