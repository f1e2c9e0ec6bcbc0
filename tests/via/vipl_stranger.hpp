// A peer that connects like any other and then says what it likes: the raw channel behind a VI.
#pragma once

#include "via/connection.hpp"
#include "via/vipl_memory.hpp"
#include "via/vipl_message.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {

class Stranger {
 public:
  explicit Stranger(VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY)
      : table_(std::move(*Registrations::make())) {
    hello_.max_transfer = 65536;
    hello_.reliability = level;
    hello_.enable_write = hello_.enable_read = 1;
  }
  Hello& hello() { return hello_; }
  Registrations& table() { return *table_; }
  // By cross-memory attach: others can read and write what it offers.
  void be_reachable() {
    hello_.token = token_;
    hello_.token_address = reinterpret_cast<std::uint64_t>(&token_);
  }
  // Memory that it lets others read and write, as far as its table says.
  void offer(std::uint64_t address, std::size_t length, VIP_MEM_HANDLE* handle) {
    *handle = table_->add(reinterpret_cast<void*>(address), length, hello_.tag, kRdmaWrite | kRdmaRead);
  }

  // To a server of that name.
  bool connect(Program&, const std::string& name) { return connect(name); }
  bool connect(const std::string& name) {
    WireAddress remote{};
    remote.discriminator_length = static_cast<std::uint16_t>(name.size());
    name.copy(reinterpret_cast<char*>(remote.bytes), sizeof remote.bytes);
    for (int attempt = 0; attempt < 10'000; ++attempt) {
      auto socket = meeting::connect_at(server_name(remote));
      if (!socket) {
        ::usleep(500);
        continue;
      }
      auto handshake = Handshake::join(std::move(*socket), hello_, table_->segment().fd());
      if (!handshake) return false;
      if ((*handshake)->run(Deadline::never(), [] { return false; }) != Handshake::Step::done) return false;
      channel_ = (*handshake)->take_channel();
      return true;
    }
    return false;
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
  const std::uint64_t token_ = 0x1234'5678'9abc'def0;
  std::unique_ptr<Registrations> table_;
  Hello hello_{};
  std::unique_ptr<via::Channel> channel_;
};

}  // namespace viaduct::vipl::testing
