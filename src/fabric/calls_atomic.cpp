// fi_atomic, fi_fetch_atomic, fi_compare_atomic and their kin: all become one request to the owner of the memory.
#include <rdma/fi_errno.h>

#include <span>
#include <vector>

#include "fabric/atomics.hpp"
#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace calls {

namespace {

using Elements = std::span<const fi_ioc>;

struct Wanted {
  RemoteKind kind = RemoteKind::atomic;
  Elements operand{}, compare{}, result{};
  fi_addr_t peer = FI_ADDR_UNSPEC;
  std::uint64_t address = 0, key = 0;
  fi_datatype type = FI_UINT8;
  fi_op op = FI_MIN;
  void* context = nullptr;
  std::uint64_t flags = 0;
  bool silent = false;
};

std::size_t elements_in(Elements pieces) {
  std::size_t count = 0;
  for (const fi_ioc& piece : pieces) count += piece.count;
  return count;
}

void append(std::vector<std::byte>& bytes, Elements pieces, std::size_t size) {
  for (const fi_ioc& piece : pieces) {
    const auto* const from = static_cast<const std::byte*>(piece.addr);
    bytes.insert(bytes.end(), from, from + piece.count * size);
  }
}

ssize_t ask(fid_ep* ep, const Wanted& wanted) {
  if (!is_possible(wanted.type, wanted.op, wanted.kind)) return -FI_EOPNOTSUPP;
  const std::size_t size = size_of(wanted.type);
  const bool fetches = wanted.kind != RemoteKind::atomic;
  const std::size_t count = wanted.op == FI_ATOMIC_READ ? elements_in(wanted.result) : elements_in(wanted.operand);
  if (count == 0 || count > most_elements(wanted.type, wanted.op)) return -FI_EINVAL;
  if (fetches && elements_in(wanted.result) != count) return -FI_EINVAL;
  if (wanted.kind == RemoteKind::compare && elements_in(wanted.compare) != count) return -FI_EINVAL;
  Endpoint::Remote remote{.kind = wanted.kind,
                          .peer = wanted.peer,
                          .address = wanted.address,
                          .key = wanted.key,
                          .length = count * size,
                          .datatype = wanted.type,
                          .op = wanted.op,
                          .context = wanted.context,
                          .flags = wanted.flags,
                          .silent = wanted.silent};
  if (wanted.op != FI_ATOMIC_READ) append(remote.operands, wanted.operand, size);
  if (wanted.kind == RemoteKind::compare) append(remote.operands, wanted.compare, size);
  std::vector<iovec> into;
  for (const fi_ioc& piece : wanted.result) into.push_back({piece.addr, piece.count * size});
  remote.pieces = into;
  return Endpoint::of(ep).reach(remote);
}

Wanted from_message(RemoteKind kind, const fi_msg_atomic* msg, std::uint64_t flags) {
  return {.kind = kind,
          .operand = {msg->msg_iov, msg->iov_count},
          .peer = msg->addr,
          .address = msg->rma_iov[0].addr,
          .key = msg->rma_iov[0].key,
          .type = msg->datatype,
          .op = msg->op,
          .context = msg->context,
          .flags = flags};
}

ssize_t writev(fid_ep* ep, const fi_ioc* pieces, void**, std::size_t count, fi_addr_t peer, std::uint64_t address,
               std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return ask(ep, {.operand = {pieces, count},
                  .peer = peer,
                  .address = address,
                  .key = key,
                  .type = type,
                  .op = op,
                  .context = context,
                  .flags = Endpoint::of(ep).send_flags()});
}
ssize_t write(fid_ep* ep, const void* buffer, std::size_t count, void*, fi_addr_t peer, std::uint64_t address,
              std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  const fi_ioc piece{const_cast<void*>(buffer), count};
  return writev(ep, &piece, nullptr, 1, peer, address, key, type, op, context);
}
ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, std::uint64_t flags) {
  if (msg->rma_iov_count != 1) return -FI_EINVAL;
  return ask(ep, from_message(RemoteKind::atomic, msg, flags));
}
ssize_t inject(fid_ep* ep, const void* buffer, std::size_t count, fi_addr_t peer, std::uint64_t address,
               std::uint64_t key, fi_datatype type, fi_op op) {
  const fi_ioc piece{const_cast<void*>(buffer), count};
  return ask(
      ep,
      {.operand = {&piece, 1}, .peer = peer, .address = address, .key = key, .type = type, .op = op, .silent = true});
}

ssize_t readwritev(fid_ep* ep, const fi_ioc* pieces, void**, std::size_t count, fi_ioc* results, void**,
                   std::size_t result_count, fi_addr_t peer, std::uint64_t address, std::uint64_t key, fi_datatype type,
                   fi_op op, void* context) {
  return ask(ep, {.kind = RemoteKind::fetch,
                  .operand = {pieces, count},
                  .result = {results, result_count},
                  .peer = peer,
                  .address = address,
                  .key = key,
                  .type = type,
                  .op = op,
                  .context = context,
                  .flags = Endpoint::of(ep).send_flags()});
}
ssize_t readwrite(fid_ep* ep, const void* buffer, std::size_t count, void*, void* result, void*, fi_addr_t peer,
                  std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  const fi_ioc piece{const_cast<void*>(buffer), count};
  fi_ioc back{result, count};
  return readwritev(ep, &piece, nullptr, 1, &back, nullptr, 1, peer, address, key, type, op, context);
}
ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* results, void**, std::size_t result_count,
                     std::uint64_t flags) {
  if (msg->rma_iov_count != 1) return -FI_EINVAL;
  Wanted wanted = from_message(RemoteKind::fetch, msg, flags);
  wanted.result = {results, result_count};
  return ask(ep, wanted);
}

ssize_t compwritev(fid_ep* ep, const fi_ioc* pieces, void**, std::size_t count, const fi_ioc* compares, void**,
                   std::size_t compare_count, fi_ioc* results, void**, std::size_t result_count, fi_addr_t peer,
                   std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return ask(ep, {.kind = RemoteKind::compare,
                  .operand = {pieces, count},
                  .compare = {compares, compare_count},
                  .result = {results, result_count},
                  .peer = peer,
                  .address = address,
                  .key = key,
                  .type = type,
                  .op = op,
                  .context = context,
                  .flags = Endpoint::of(ep).send_flags()});
}
ssize_t compwrite(fid_ep* ep, const void* buffer, std::size_t count, void*, const void* compare, void*, void* result,
                  void*, fi_addr_t peer, std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op,
                  void* context) {
  const fi_ioc piece{const_cast<void*>(buffer), count}, against{const_cast<void*>(compare), count};
  fi_ioc back{result, count};
  return compwritev(ep, &piece, nullptr, 1, &against, nullptr, 1, &back, nullptr, 1, peer, address, key, type, op,
                    context);
}
ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compares, void**, std::size_t compare_count,
                     fi_ioc* results, void**, std::size_t result_count, std::uint64_t flags) {
  if (msg->rma_iov_count != 1) return -FI_EINVAL;
  Wanted wanted = from_message(RemoteKind::compare, msg, flags);
  wanted.compare = {compares, compare_count};
  wanted.result = {results, result_count};
  return ask(ep, wanted);
}

template <RemoteKind kind>
int valid(fid_ep*, fi_datatype type, fi_op op, std::size_t* count) {
  if (!is_possible(type, op, kind)) return -FI_EOPNOTSUPP;
  *count = most_elements(type, op);
  return 0;
}

}  // namespace

}  // namespace calls

fi_ops_atomic Endpoint::kAtomicOps = {
    .size = sizeof(fi_ops_atomic),
    .write = calls::write,
    .writev = calls::writev,
    .writemsg = calls::writemsg,
    .inject = calls::inject,
    .readwrite = calls::readwrite,
    .readwritev = calls::readwritev,
    .readwritemsg = calls::readwritemsg,
    .compwrite = calls::compwrite,
    .compwritev = calls::compwritev,
    .compwritemsg = calls::compwritemsg,
    .writevalid = calls::valid<RemoteKind::atomic>,
    .readwritevalid = calls::valid<RemoteKind::fetch>,
    .compwritevalid = calls::valid<RemoteKind::compare>,
};

}  // namespace viaduct::fabric
