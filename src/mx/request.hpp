// Requests, and messages that wait for a receive. Each has a number that the peer is told; numbers that come from the
// peer are looked up, and what they find is checked.
#pragma once

#include <viaduct/mx.hpp>

#include <deque>
#include <memory>
#include <vector>

#include "mx/matcher.hpp"
#include "mx/pieces.hpp"
#include "mx/wire.hpp"

namespace viaduct::mx {

class Message;
struct Link;

class Request : public Posted {
 public:
  enum class Stage : std::uint8_t {
    free,
    // sends
    queued,     // in the partner's line: nothing, or a part, has gone
    announced,  // the receiver gets it, or will say that it wants it pushed
    pushing,    // in the line again
    sent,       // until it is matched
    // receives
    posted,
    arriving,  // in fragments
    getting,   // from the sender's memory
    wanted,    // the sender pushes
    // others
    connecting,
    moving,  // a get or a put of the program's
    done,
  };
  using Kind = Completion::Kind;

  Kind kind = Kind::send;
  Stage stage = Stage::free;
  bool until_matched = false;
  bool has_data = false;
  bool forgotten = false;
  bool buffered = false;       // the bytes of a send are in use no more
  std::uint32_t number = 0;    // generation << 20 | index
  Partner* partner = nullptr;  // of a send, or whose message it is
  void* context = nullptr;
  std::uint64_t data = 0;
  Pieces pieces;
  std::uint64_t progress = 0;  // bytes that have gone, or come
  std::uint64_t limit = 0;     // so much of it
  std::uint64_t length = 0;    // of the message
  std::uint64_t deadline = UINT64_MAX;
  std::uint32_t peer_number = 0;     // the other side's number for it
  std::vector<std::uint32_t> keys;   // under which a long send is lent
  std::vector<PlaceOfBytes> places;  // of a message that is being got
  std::uint32_t gets_under_way = 0;  // that the reach has not ended
  std::uint32_t key = 0;             // of a get or put
  std::uint64_t remote_address = 0;
  Status status = Status::pending;
  std::uint64_t finished_match = 0;  // of the message that came
  Message* to_self = nullptr;        // a send to ourselves that waits
  Link* link = nullptr;              // through which its bytes are reached

  ChainHook<Request> in_line;       // of what goes to a partner
  ChainHook<Request> with_partner;  // all that end when it does
  ChainHook<Request> finished;      // done, and not taken
  ChainHook<Request> timed;
};

class Message : public Arrived {
 public:
  bool has_data = false;
  bool until_matched = false;
  bool announced = false;  // it is still at the sender's
  bool complete = false;   // all bytes are here
  bool claimed = false;
  Status lost = Status::success;  // why the rest of it will not come
  std::uint64_t data = 0;
  std::uint64_t length = 0;
  std::uint64_t have = 0;
  std::uint32_t peer_number = 0;
  std::vector<PlaceOfBytes> places;
  std::unique_ptr<std::byte[]> bytes;
  Link* link = nullptr;         // by which it comes
  Request* sender = nullptr;    // to ourselves
  Request* receiver = nullptr;  // waits for the rest of it
  ChainHook<Message> of_partner;
};

class RequestPool {
 public:
  Request* take() {
    if (free_.empty()) {
      if (all_.size() >= kMost) return nullptr;
      all_.emplace_back();
      all_.back().number = static_cast<std::uint32_t>(all_.size() - 1);
      free_.push_back(&all_.back());
    }
    Request* const request = free_.back();
    free_.pop_back();
    return request;
  }
  // Its number means nothing any more.
  void give_back(Request& request) {
    request.pieces.clear();
    request.keys.clear();
    request.places.clear();
    request.stage = Request::Stage::free;
    request.number += kMost;
    free_.push_back(&request);
  }
  Request* find(std::uint32_t number) {
    const std::size_t index = number & (kMost - 1);
    if (index >= all_.size() || all_[index].number != number) return nullptr;
    return all_[index].stage == Request::Stage::free ? nullptr : &all_[index];
  }
  std::size_t in_use() const { return all_.size() - free_.size(); }
  bool owns(const Request* request) {
    return (request->number & (kMost - 1)) < all_.size() && &all_[request->number & (kMost - 1)] == request;
  }

 private:
  static constexpr std::uint32_t kMost = 1u << 20;
  std::deque<Request> all_;
  std::vector<Request*> free_;
};

}  // namespace viaduct::mx
