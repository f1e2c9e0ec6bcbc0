// Reading and writing memory of peers. The key that a program names is looked up at its owner once, and what it stands
// for is remembered; then the endpoint below moves the bytes. Where it has no way there, and for atomics, the owner is
// asked to do it.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "fabric/endpoint.hpp"
#include "fabric/info.hpp"

namespace viaduct::fabric {

namespace {

std::uint64_t flags_of(RemoteKind kind) {
  switch (kind) {
    case RemoteKind::read:
      return FI_RMA | FI_READ;
    case RemoteKind::write:
      return FI_RMA | FI_WRITE;
    case RemoteKind::atomic:
      return FI_ATOMIC | FI_WRITE;
    default:
      return FI_ATOMIC | FI_READ;
  }
}

// `count` bytes from the pieces, `skip` bytes behind their beginning.
std::vector<std::byte> gather(std::span<const iovec> pieces, std::size_t skip, std::size_t count) {
  std::vector<std::byte> bytes;
  for (const iovec& piece : pieces) {
    const std::size_t over = std::min(skip, piece.iov_len);
    skip -= over;
    const std::size_t part = std::min(piece.iov_len - over, count - bytes.size());
    const auto* const from = static_cast<const std::byte*>(piece.iov_base) + over;
    bytes.insert(bytes.end(), from, from + part);
  }
  return bytes;
}

void scatter(std::span<const iovec> pieces, std::size_t skip, std::span<const std::byte> bytes) {
  for (const iovec& piece : pieces) {
    const std::size_t over = std::min(skip, piece.iov_len);
    skip -= over;
    const std::size_t part = std::min(piece.iov_len - over, bytes.size());
    std::copy_n(bytes.begin(), part, static_cast<std::byte*>(piece.iov_base) + over);
    bytes = bytes.subspan(part);
  }
}

}  // namespace

ssize_t Endpoint::reach(const Remote& wanted) {
  if (!enabled_) return -FI_EOPBADSTATE;
  if (wanted.pieces.size() > kMostPieces) return -FI_EINVAL;
  mx::Partner* const peer = partner_at(wanted.peer);
  if (peer == nullptr) return -FI_EINVAL;
  const bool inject = wanted.silent || (wanted.flags & FI_INJECT) != 0;
  if (wanted.length > (inject ? kInjectSize : kMostMessage)) return -FI_EMSGSIZE;
  Operation* const operation = begin(Operation::Kind::remote, wanted.context, flags_of(wanted.kind));
  if (operation == nullptr) {
    progress();
    return -FI_EAGAIN;
  }
  operation->tells = !wanted.silent && (!send_selects_ || (wanted.flags & FI_COMPLETION) != 0);
  operation->remote = wanted.kind;
  operation->partner = peer;
  operation->has_data = wanted.has_data;
  operation->data = wanted.data;
  operation->key = wanted.key;
  operation->address = wanted.address;
  operation->length = wanted.length;
  operation->datatype = static_cast<std::uint8_t>(wanted.datatype);
  operation->op = static_cast<std::uint8_t>(wanted.op);
  operation->operands = wanted.operands;
  if (inject && wanted.kind == RemoteKind::write) {
    operation->copy = gather(wanted.pieces, 0, wanted.length);
    operation->pieces = {{operation->copy.data(), operation->copy.size()}};
  } else {
    operation->pieces.assign(wanted.pieces.begin(), wanted.pieces.end());
  }
  const bool by_owner = wanted.kind != RemoteKind::read && wanted.kind != RemoteKind::write;
  by_owner ? ask_owner(*operation) : go_to(*operation);
  return 0;
}

void Endpoint::finish(Operation& operation, int error) {
  {
    const std::lock_guard lock(lock_);
    over(operation);
  }
  tell_reached(operation, error);
  free(operation);
}

void Endpoint::tell_reached(Operation& operation, int error) {
  const bool reads = operation.remote == RemoteKind::read || operation.remote == RemoteKind::fetch ||
                     operation.remote == RemoteKind::compare;
  count(reads ? kReads : kWrites, error == 0);
  if (send_queue_ == nullptr || (error == 0 && !operation.tells)) return;
  send_queue_->write({.entry = {operation.context, operation.flags, 0, nullptr, 0, 0}, .error = error});
}

// ---- keys

void Endpoint::go_to(Operation& operation) {
  Known known;
  bool ask = false;
  {
    const std::lock_guard lock(lock_);
    Known& entry = keys_[{operation.partner, operation.key}];
    if (entry.key == 0) {
      entry.waiting.push_back(&operation);
      ask = !std::exchange(entry.asked, true);
    } else {
      known.key = entry.key;
      known.address = entry.address;
      known.length = entry.length;
    }
  }
  if (ask) return say(operation.partner, RemoteWord::key_wanted, with_head(KeyWanted{operation.key}));
  if (known.key == 0) return;  // somebody has asked
  const bool inside = operation.length <= known.length && operation.address <= known.length - operation.length;
  if (!inside) return finish(operation, FI_EINVAL);
  go_there(operation, known.key, known.address + operation.address);
}

void Endpoint::go_there(Operation& operation, std::uint32_t key, std::uint64_t address) {
  mx::Request* const request = operation.remote == RemoteKind::read
                                   ? below_->get(operation.partner, operation.pieces, key, address, &operation)
                                   : below_->put(operation.partner, operation.pieces, key, address, &operation);
  if (request == nullptr) finish(operation, FI_ENOMEM);
}

void Endpoint::reached(Operation& operation, const mx::Completion& completion) {
  switch (completion.status) {
    case mx::Status::success:
      write_notice(operation);
      return finish(operation, 0);
    case mx::Status::bad_window:  // perhaps the owner has given the key to another region since
      if (std::exchange(operation.asked_again, true)) return finish(operation, FI_EACCES);
      {
        const std::lock_guard lock(lock_);
        const auto known = keys_.find({operation.partner, operation.key});
        if (known != keys_.end() && known->second.waiting.empty()) keys_.erase(known);
      }
      return go_to(operation);
    case mx::Status::no_resources:
      return ask_owner(operation);
    default:
      return finish(operation, error_of(completion.status));
  }
}

void Endpoint::hear_key(mx::Partner* partner, std::span<const std::byte> bytes) {
  const auto told = take_head<Key>(bytes);
  if (!told) return;
  std::vector<Operation*> waiting;
  {
    const std::lock_guard lock(lock_);
    const auto known = keys_.find({partner, told->key});
    if (known == keys_.end() || !known->second.asked) return;
    waiting = std::exchange(known->second.waiting, {});
    if (told->exposed == 0)
      keys_.erase(known);
    else
      known->second = {true, told->exposed, told->address, told->length, {}};
  }
  for (Operation* const one : waiting) told->exposed == 0 ? finish(*one, FI_EACCES) : go_to(*one);
}

// ---- by the owner

void Endpoint::ask_owner(Operation& operation) {
  const std::size_t left = operation.length - operation.moved;
  const bool in_one = operation.remote != RemoteKind::read && operation.remote != RemoteKind::write;
  const std::size_t part = in_one ? left : std::min(left, kMostAsked);
  Ask ask{.number = 0,
          .key = operation.key,
          .offset = operation.address + operation.moved,
          .length = static_cast<std::uint32_t>(part),
          .kind = static_cast<std::uint8_t>(operation.remote),
          .datatype = operation.datatype,
          .op = operation.op,
          .unused = 0};
  {
    const std::lock_guard lock(lock_);
    ask.number = operation.number;
    asked_[operation.number] = &operation;
  }
  std::vector<std::byte> bytes = operation.operands;
  if (operation.remote == RemoteKind::write) bytes = gather(operation.pieces, operation.moved, part);
  say(operation.partner, RemoteWord::ask, with_head(ask, bytes));
}

void Endpoint::hear_answer(mx::Partner* partner, std::span<const std::byte> bytes) {
  const auto answer = take_head<Answer>(bytes);
  if (!answer) return;
  Operation* operation = nullptr;
  {
    const std::lock_guard lock(lock_);
    const auto found = asked_.find(answer->number);
    if (found == asked_.end() || found->second->partner != partner) return;
    operation = found->second;
    asked_.erase(found);
  }
  const std::size_t left = operation->length - operation->moved;
  const bool reads = operation->remote != RemoteKind::write && operation->remote != RemoteKind::atomic;
  const std::size_t part = reads && operation->remote != RemoteKind::read ? left : std::min(left, kMostAsked);
  if (answer->error != 0) return finish(*operation, static_cast<int>(answer->error));
  if (reads && bytes.size() != part) return finish(*operation, FI_EIO);
  if (reads) scatter(operation->pieces, operation->moved, bytes);
  operation->moved += operation->remote == RemoteKind::atomic ? left : part;
  if (operation->moved < operation->length) return ask_owner(*operation);
  write_notice(*operation);
  finish(*operation, 0);
}

// The bytes are there before this is: it is sent when the write is complete.
void Endpoint::write_notice(const Operation& operation) {
  if (!operation.has_data || operation.remote != RemoteKind::write) return;
  say(operation.partner, RemoteWord::notice, with_head(Notice{operation.data, operation.length}));
}

void Endpoint::fail_all_with(mx::Partner* partner, int error) {
  std::vector<Operation*> failed;
  {
    const std::lock_guard lock(lock_);
    for (auto known = keys_.begin(); known != keys_.end();) {
      if (known->first.first != partner) {
        ++known;
        continue;
      }
      failed.insert(failed.end(), known->second.waiting.begin(), known->second.waiting.end());
      known = keys_.erase(known);
    }
    for (auto asked = asked_.begin(); asked != asked_.end();) {
      if (asked->second->partner != partner) {
        ++asked;
        continue;
      }
      failed.push_back(asked->second);
      asked = asked_.erase(asked);
    }
    std::erase_if(unsaid_, [&](const Words& words) { return words.partner == partner; });
  }
  for (Operation* const one : failed) finish(*one, error);
}

// ---- words

void Endpoint::say(mx::Partner* partner, RemoteWord word, std::vector<std::byte> bytes) {
  bool waits = false;
  {
    const std::lock_guard lock(lock_);
    waits = !unsaid_.empty();
  }
  if (!waits && below_->send_control(partner, static_cast<std::uint32_t>(word), bytes)) return;
  const std::lock_guard lock(lock_);
  unsaid_.push_back({partner, word, std::move(bytes)});
}

void Endpoint::say_what_waits() {
  for (;;) {
    Words words;
    {
      const std::lock_guard lock(lock_);
      if (unsaid_.empty()) return;
      words = std::move(unsaid_.front());
      unsaid_.pop_front();
    }
    if (below_->send_control(words.partner, static_cast<std::uint32_t>(words.word), words.bytes)) continue;
    const std::lock_guard lock(lock_);
    return unsaid_.push_front(std::move(words));
  }
}

}  // namespace viaduct::fabric
