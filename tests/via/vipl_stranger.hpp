// A peer that connects like any other and then says what it likes: the raw channel behind a VI.
#pragma once

#include "via/port/port.hpp"
#include "via/vipl/connect.hpp"
#include "via/vipl/memory.hpp"
#include "via/vipl/message.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {

class Stranger {
 public:
  // Reachable: others can read and write what it offers by cross-memory attach.
  enum class Reachable { no, yes };
  explicit Stranger(VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY, Reachable reachable = Reachable::no)
      : port_(std::move(*via::Port::open(meeting::Peers::by_setting, reachable == Reachable::yes))) {
    description_.max_transfer = 65536;
    description_.reliability = level;
    description_.enable_write = description_.enable_read = 1;
  }
  Description& description() { return description_; }
  via::Terms& terms() { return terms_; }
  Registrations& table() { return port_->registrations(); }
  // Memory that it lets others read and write, as far as its table says.
  void offer(std::uint64_t address, std::size_t length, VIP_MEM_HANDLE* handle) {
    *handle = table().add(reinterpret_cast<void*>(address), length, terms_.tag, kRdmaWrite | kRdmaRead);
  }

  // To a server of that name.
  bool connect(Program&, const std::string& name) { return connect(name); }
  bool connect(const std::string& name) {
    WireAddress remote{};
    remote.discriminator_length = static_cast<std::uint16_t>(name.size());
    name.copy(reinterpret_cast<char*>(remote.bytes), sizeof remote.bytes);
    const auto handshake =
        via::ShmHandshake::join(port_, server_place(remote).here, terms_, std::as_bytes(std::span(&description_, 1)),
                                Deadline::after_ns(Clock::steady(), 5'000'000'000));
    if (handshake->run(Deadline::never(), [] { return false; }) != via::Handshake::Step::done) return false;
    channel_ = handshake->take().channel;
    return true;
  }

  via::Channel& channel() { return *channel_; }
  void hang_up() { channel_.reset(); }

  bool say(std::uint32_t word, std::vector<std::byte> bytes, bool more = false) {
    const iovec piece{bytes.data(), bytes.size()};
    return channel_->try_send({&piece, 1}, word, more) == via::Sent::taken;
  }
  template <class Header>
  bool say(std::uint32_t word, const Header& header, std::size_t extra = 0, bool more = false) {
    std::vector<std::byte> bytes(sizeof header + extra);
    std::memcpy(bytes.data(), &header, sizeof header);
    return say(word, std::move(bytes), more);
  }

 private:
  const std::shared_ptr<via::Port> port_;
  Description description_{};
  via::Terms terms_;
  std::unique_ptr<via::Channel> channel_;
};

}  // namespace viaduct::vipl::testing
