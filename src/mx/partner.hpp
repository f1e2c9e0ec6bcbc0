// A partner and the connections to it. There is one; or two, where both sides began to connect at the same time and
// neither saw the other in time: each side sends on the first it had, and receives from all.
#pragma once

#include <viaduct/via.hpp>

#include <deque>
#include <memory>
#include <vector>

#include "mx/request.hpp"
#include "mx/statistics.hpp"
#include "via/port/handshake.hpp"
#include "via/port/net_reach.hpp"
#include "via/port/shm_reach.hpp"

namespace viaduct::mx {

class Core;

struct Link {
  Partner* partner = nullptr;
  via::Connection connection;
  std::uint32_t slot = 0;
  bool attended = false;  // in the ready queue
  bool leftover = false;  // in the list of those to look at again
  bool stalled = false;   // its next message has to wait: there is no room for what nobody receives
  bool over = false;      // nothing will come any more
  bool failed = false;    // the peer is gone, or talks nonsense
  via::CloseReason why = via::CloseReason::open;

  // The message that is coming in fragments.
  std::uint32_t immediate = 0;  // 0: none
  Request* receiver = nullptr;
  Message* message = nullptr;
  std::uint64_t have = 0;
  std::uint64_t length = 0;

  via::Channel& channel() const { return *connection.channel; }
  bool is_local() const { return connection.shared != nullptr; }
};

struct ControlMessage {
  std::uint32_t immediate;
  std::vector<std::byte> bytes;
};

class Partner {
 public:
  Core* core = nullptr;
  Name name;
  std::uint32_t key = 0;
  std::uint32_t index = 0;
  std::uint32_t session = 0;
  std::uint32_t handle = 0;  // in the table of all partners of this process
  void* context = nullptr;
  bool is_self = false;
  PartnerEntry* shown = nullptr;  // its numbers, where others read them

  std::vector<std::unique_ptr<Link>> links;
  Link* out = nullptr;  // what is sent goes there

  std::unique_ptr<via::Handshake> handshake;  // connecting
  std::uint32_t handshake_slot = 0;
  std::uint64_t connect_until = 0;
  std::uint64_t ask_again_at = 0;  // not before

  std::deque<ControlMessage> controls;
  Chain<Request, &Request::in_line> line;
  bool in_the_middle = false;  // of a message in fragments: nothing goes in between
  bool blocked = false;        // in the list of those that wait for room
  Chain<Request, &Request::with_partner> requests;
  Chain<Message, &Message::of_partner> messages;  // that are not all here
  std::vector<Request*> getters;                  // whose next get has to wait
};

}  // namespace viaduct::mx
