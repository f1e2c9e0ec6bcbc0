// Memory of the program's that partners reach, and theirs.
#include "mx/core.hpp"

namespace viaduct::mx {

using Began = via::Reach::Began;

Memory Core::expose(const void* address, std::size_t length, std::uint64_t rights) {
  const std::uint64_t enables =
      ((rights & kRemoteWrite) != 0 ? via::kRdmaWrite : 0ul) | ((rights & kRemoteRead) != 0 ? via::kRdmaRead : 0ul);
  return {port_->registrations().add(address, length, kConnectionTag, enables)};
}

void Core::withdraw(Memory memory, const void* address) {
  if (!port_->registrations().remove(memory.key, address)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  port_->settle();
  const Guard guard(*this);
  for (const auto& partner : partners_)
    for (const auto& link : partner->links) {
      if (!link->is_local()) continue;
      for (via::ShmReach::Looks looks; link->connection.shared->peer_copies(looks);) ::sched_yield();
    }
}

Request* Core::move(Completion::Kind kind, Partner* partner, std::span<const iovec> pieces, std::uint32_t key,
                    std::uint64_t address, void* context) {
  const Guard guard(*this);
  Request* const request = new_request(kind, partner, context);
  if (request == nullptr) return nullptr;
  request->pieces.set(pieces);
  request->length = request->limit = request->pieces.length();
  request->key = key;
  request->remote_address = address;
  request->stage = Request::Stage::moving;
  if (partner->is_self) {
    via::Registration found;
    const std::uint64_t right = kind == Completion::Kind::get ? via::kRdmaRead : via::kRdmaWrite;
    const bool allowed = port_->registrations().view().find(key, found) && found.covers(address, request->length) &&
                         (found.enables & right) != 0;
    if (!allowed) return finish(*request, Status::bad_window), request;
    Pieces there;
    const iovec piece{reinterpret_cast<void*>(address), request->length};
    there.set({&piece, 1});
    kind == Completion::Kind::get ? copy_pieces(there, request->pieces) : copy_pieces(request->pieces, there);
    request->progress = request->length;
    finish(*request, Status::success);
    return request;
  }
  partner->requests.append(*request);
  if (partner->out == nullptr) {
    partner->getters.push_back(request);
    begin_to_connect(*partner, Clock::steady().now_ns() + kConnectNs);
  } else {
    go_on_moving(*request);
  }
  return request;
}

// One operation of the reach for each call: pieces may be many, the place there is one.
void Core::go_on_moving(Request& request) {
  Partner& partner = *request.partner;
  if (partner.out == nullptr || partner.out->over) return;  // ends with its partner
  via::Reach& reach = *partner.out->connection.reach;
  const via::RemoteBytes there{request.key, request.remote_address, request.length};
  const Began began = request.kind == Completion::Kind::get ? reach.get(request.pieces.all(), there, request.number)
                                                            : reach.put(request.pieces.all(), there, request.number);
  if (began == Began::under_way) {
    request.gets_under_way = 1;
  } else if (began == Began::full) {
    partner.getters.push_back(&request);
  } else {
    move_ended(request, began);
  }
}

void Core::move_ended(Request& request, Began how) {
  switch (how) {
    case Began::done:
      request.progress = request.length;
      return finish(request, Status::success);
    case Began::no_way:
      return finish(request, Status::no_resources);
    case Began::gone:
      if (request.partner->out != nullptr) look_again_at(*request.partner->out);
      return;  // ends with its partner
    default:
      return finish(request, Status::bad_window);
  }
}

}  // namespace viaduct::mx
