// Something that a program asked an endpoint to do, until its completion is told. Its `this` is the context of the
// request below.
//
// It belongs to the endpoint, whose lock guards `number`, `request` and its place in the list. Everything else is
// written before the request is made, and by whoever completes it.
#pragma once

#include <rdma/fabric.h>
#include <viaduct/mx.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace viaduct::fabric {

// The wire's part of what is asked of the owner of memory, and of what it answers (docs/formats/fabric.md).
enum class RemoteKind : std::uint8_t { read = 1, write = 2, atomic = 3, fetch = 4, compare = 5 };

struct Operation {
  enum class Kind : std::uint8_t { send, receive, several, remote, discard };

  Kind kind = Kind::send;
  bool tells = false;           // a completion is written to the queue
  void* context = nullptr;      // the program's
  std::uint64_t flags = 0;      // of the completion
  void* buffer = nullptr;       // as completions of receives say it
  std::size_t length = 0;       // of the memory, or of what is to move
  std::vector<std::byte> copy;  // of what was injected

  // Kind::several: a buffer for many messages.
  std::size_t used = 0;

  // Kind::remote
  RemoteKind remote = RemoteKind::read;
  bool asked_again = false;  // the key was looked up a second time
  bool has_data = false;
  std::uint8_t datatype = 0, op = 0;
  mx::Partner* partner = nullptr;
  std::uint64_t data = 0;
  std::uint64_t key = 0, address = 0;  // as the program said
  std::vector<iovec> pieces;           // local: what is written, or where to what is read goes
  std::size_t moved = 0;               // by message
  std::vector<std::byte> operands;     // of an atomic: what is put in, then what is compared with

  std::uint64_t number = 0;  // of this use
  mx::Request* request = nullptr;
  Operation* next = nullptr;
  Operation* previous = nullptr;
};

}  // namespace viaduct::fabric
