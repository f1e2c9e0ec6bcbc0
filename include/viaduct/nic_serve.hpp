// nic_serve.hpp: one process owns an adapter and serves its endpoints to others over shared memory.
//
//   auto server = nic::Server::create("eth1", config, std::move(mac), why);       // needs whatever the MAC needs
//   auto endpoint = nic::open_served_endpoint("eth1", {.endpoint = {.id = 7}}, why);  // in any process: nothing
//
// The user of an endpoint sends and receives as with any other (nic_endpoint.hpp): the rings are in memory that the two
// processes share, and a system call is made only to wake somebody who sleeps. What the protocol is, and what is
// checked: docs/formats/nic-serve.md.
#pragma once

#include <viaduct/nic_endpoint.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace viaduct::nic {

// Where frames name their endpoint unless something else is said: right behind the header, in frames of the EtherType
// that is free for local use.
constexpr EndpointPlace kServedPlace{.ether_type = 0x88b5, .offset = 14};

class [[gnu::visibility("default")]] Server {
 public:
  // The adapter is made here, of a partition that is not inlined. Users find it by name, in the same network namespace;
  // same user only, unless VIADUCT_PEERS says otherwise on both sides. Nothing: `why` says why not; EADDRINUSE:
  // somebody serves that name.
  static std::unique_ptr<Server> create(std::string name, Config config, std::unique_ptr<Mac> mac, Failure & why);
  virtual ~Server() = default;  // its users notice

  virtual Adapter& adapter() = 0;

  struct Counters {
    std::uint64_t endpoints = 0;  // open now
    std::uint64_t opened = 0;     // of all time
    std::uint64_t refused = 0;    // asked for what cannot be, or were not permitted
  };
  virtual Counters counters() const = 0;  // from any thread
};

// Where the process of an endpoint runs.
enum class Binding {
  no,     // wherever it does
  core,   // on the processor that moves the endpoint's frames
  cache,  // on one that shares a cache with it
};
VIADUCT_API Binding binding_by_setting();  // VIADUCT_MX_BIND
// Binds the calling thread, and those it starts. False: it stays where it is, because it may not run everywhere already
// (somebody has bound it), or there is no such place.
VIADUCT_API bool bind_near(int core, Binding how);

struct ServedOptions {
  EndpointOptions endpoint{};
  std::optional<Binding> bind{};  // none: as VIADUCT_MX_BIND says
};
// The server may end and come back: meanwhile mac().link() is down, frames to send are lost and counted, and the
// endpoint looks for it whenever it is used. Packets that are out stay. Nothing: `why` says why not; ECONNREFUSED:
// nobody serves that name.
VIADUCT_API std::unique_ptr<Endpoint> open_served_endpoint(std::string_view server, const ServedOptions& options,
                                                           Failure& why);

}  // namespace viaduct::nic
