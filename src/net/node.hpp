// A node: a station on a real network. It has a UDP socket of its own, and while it offers names it shares the
// well-known port with every other process of this host that does (SO_REUSEPORT): whichever of them gets a hello hands
// it to the process that offers the name, which answers from its own socket. Nothing has to run beforehand.
//
// A node has no thread: whoever uses it calls progress() and sleep(). One thread at a time.
#pragma once

#include <viaduct/nic_macs.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "net/route.hpp"
#include "net/station.hpp"
#include "net/statistics.hpp"

namespace viaduct::net {

struct NodeOptions {
  StationOptions station{};
  std::uint16_t well_known_port = kWellKnownPort;
  std::optional<std::string> key_file{};  // nothing: as VIADUCT_KEY_FILE says; empty: none
  std::uint32_t largest_frame = 9000;     // of what an Ethernet frame carries; the way to a peer may carry less
  bool others_listen = false;             // over(): a hello that is not for this node is for another one
};

class Node {
 public:
  static Result<std::unique_ptr<Node>> open(const NodeOptions& options, RegisteredMemory& memory);
  // Over a link that leads to one other node: a cable. Hosts mean nothing there.
  static Result<std::unique_ptr<Node>> over(std::unique_ptr<nic::Mac> mac, const NodeOptions& options,
                                            RegisteredMemory& memory);
  ~Node();  // says nothing: drain() and forget() first, or peers hear of it only by the silence

  // From now on peers can connect to `name` at this host. A name belongs to one process at a time.
  Status offer(const std::string& name);
  void withdraw(const std::string& name);

  // The number of the session to be; its event says `connected` or `failed`.
  Result<std::uint64_t> connect(const Route& way, const std::string& name, std::uint64_t within_ns);
  // "HOST", "HOST:PORT" or "[HOST]:PORT": how the kernel would send there. Looks the name up, which may block. Any
  // thread.
  Result<Route> route_to(const std::string& host) const;

  // Frames in, what is due, frames out. False: nothing moved.
  bool progress();
  // Frames out, without looking for any: what was just taken leaves at once.
  bool flush() { return send_frames(); }
  // Everything that is owed goes out first. Until a frame comes, something is due, or so much time has passed.
  void sleep(std::uint64_t most_ns);
  // The same in parts: what is owed goes out; then sleep until the descriptor is readable, or that moment.
  void prepare_to_sleep();
  int descriptor() const { return watched_.get(); }
  bool tells_of_frames() const { return mac_->fd() >= 0; }        // by the descriptor; else it has to be looked at
  void watch(int descriptor) { watch(descriptor, false, true); }  // one more that ends the sleep
  std::uint64_t next_deadline() const;

  bool take_event(StationEvent& event);
  Session* use(std::uint64_t session) { return station_.use(session); }
  const Session* look(std::uint64_t session) const { return station_.look(session); }
  std::string name_of(std::uint64_t session) const;  // the peer's address
  void forget(std::uint64_t session);
  // Sends what was taken and hears that it came: for whoever is about to end. False: not within the time.
  bool drain(std::uint64_t within_ns);

  const Station& station() const { return station_; }
  bool is_quiet() const { return station_.quiet() && !blocked(); }
  bool is_same_process(std::uint64_t one, std::uint64_t other) const;
  Path path_of(std::uint64_t session) const;
  nic::MacCounters counters() const { return mac_->counters(); }
  std::string carrier() const { return switch_ != nullptr ? "udp" : mac_->name(); }

 private:
  static constexpr std::size_t kBatch = 64;
  static constexpr std::uint32_t kTurnsBetweenHellos = 32;
  static constexpr std::size_t kEthernet = nic::kEthernetHeader;

  Node(const NodeOptions& options, RegisteredMemory& memory, std::unique_ptr<nic::Mac> mac, nic::UdpSwitch* udp);

  bool receive_own();
  bool receive_hellos();
  bool receive_hellos_of(nic::UdpSwitch& shared);
  bool receive_handed();
  bool send_frames();
  void take_hello(const sockaddr_storage& from, std::uint32_t length, std::span<const std::byte> frame);
  void send_hello(const Place& to, std::span<const std::byte> bytes) const;
  void join_group();
  void watch(int descriptor, bool also_writable, bool is_new);
  bool blocked() const { return sent_ < outgoing_.size(); }

  const NodeOptions options_;
  std::unique_ptr<nic::Mac> mac_;
  nic::UdpSwitch* const switch_;                         // the same, where it is one
  std::vector<std::unique_ptr<nic::UdpSwitch>> shared_;  // at the well-known port, while names are offered
  std::map<std::string, Fd> names_;                      // whose hellos others hand over here
  Fd hand_over_;                                         // to others
  const std::unique_ptr<Statistics> statistics_;         // what others see; none: they do not
  Station station_;
  std::map<std::uint64_t, Place> kept_;  // sessions' places in the switch's table
  std::vector<std::byte> buffers_;       // frames on their way out
  std::vector<nic::Frame> outgoing_;
  std::size_t sent_ = 0;  // of outgoing_
  std::uint32_t turns_ = 0;
  Fd watched_;  // an epoll set: what a sleeper waits for
  bool watches_room_ = false;
};

}  // namespace viaduct::net
