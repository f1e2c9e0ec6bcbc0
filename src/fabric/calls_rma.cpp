// fi_read, fi_write and their kin.
#include <rdma/fi_errno.h>

#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace calls {

namespace {

std::size_t length_of(const iovec* pieces, std::size_t count) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) length += pieces[i].iov_len;
  return length;
}

struct How {
  std::uint64_t flags = 0;
  bool has_data = false;
  std::uint64_t data = 0;
  bool silent = false;
};

ssize_t reach(fid_ep* ep, RemoteKind kind, const iovec* pieces, std::size_t count, fi_addr_t peer,
              std::uint64_t address, std::uint64_t key, void* context, const How& how) {
  return Endpoint::of(ep).reach({.kind = kind,
                                 .pieces = {pieces, count},
                                 .peer = peer,
                                 .address = address,
                                 .key = key,
                                 .length = length_of(pieces, count),
                                 .has_data = how.has_data,
                                 .data = how.data,
                                 .context = context,
                                 .flags = how.flags,
                                 .silent = how.silent});
}

ssize_t reachmsg(fid_ep* ep, RemoteKind kind, const fi_msg_rma* msg, std::uint64_t flags) {
  if (msg->rma_iov_count != 1 || msg->rma_iov[0].len != length_of(msg->msg_iov, msg->iov_count)) return -FI_EINVAL;
  return reach(ep, kind, msg->msg_iov, msg->iov_count, msg->addr, msg->rma_iov[0].addr, msg->rma_iov[0].key,
               msg->context, {.flags = flags, .has_data = (flags & FI_REMOTE_CQ_DATA) != 0, .data = msg->data});
}

How as_usual(fid_ep* ep) {
  return {.flags = Endpoint::of(ep).send_flags()};
}

ssize_t readv(fid_ep* ep, const iovec* pieces, void**, std::size_t count, fi_addr_t peer, std::uint64_t address,
              std::uint64_t key, void* context) {
  return reach(ep, RemoteKind::read, pieces, count, peer, address, key, context, as_usual(ep));
}
ssize_t read(fid_ep* ep, void* buffer, std::size_t length, void*, fi_addr_t peer, std::uint64_t address,
             std::uint64_t key, void* context) {
  const iovec piece{buffer, length};
  return readv(ep, &piece, nullptr, 1, peer, address, key, context);
}
ssize_t readmsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
  return reachmsg(ep, RemoteKind::read, msg, flags);
}
ssize_t writev(fid_ep* ep, const iovec* pieces, void**, std::size_t count, fi_addr_t peer, std::uint64_t address,
               std::uint64_t key, void* context) {
  return reach(ep, RemoteKind::write, pieces, count, peer, address, key, context, as_usual(ep));
}
ssize_t write(fid_ep* ep, const void* buffer, std::size_t length, void*, fi_addr_t peer, std::uint64_t address,
              std::uint64_t key, void* context) {
  const iovec piece{const_cast<void*>(buffer), length};
  return writev(ep, &piece, nullptr, 1, peer, address, key, context);
}
ssize_t writemsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
  return reachmsg(ep, RemoteKind::write, msg, flags);
}
ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t peer, std::uint64_t address,
               std::uint64_t key) {
  const iovec piece{const_cast<void*>(buffer), length};
  return reach(ep, RemoteKind::write, &piece, 1, peer, address, key, nullptr, {.silent = true});
}
ssize_t writedata(fid_ep* ep, const void* buffer, std::size_t length, void*, std::uint64_t data, fi_addr_t peer,
                  std::uint64_t address, std::uint64_t key, void* context) {
  const iovec piece{const_cast<void*>(buffer), length};
  How how = as_usual(ep);
  how.has_data = true;
  how.data = data;
  return reach(ep, RemoteKind::write, &piece, 1, peer, address, key, context, how);
}
ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data, fi_addr_t peer,
                   std::uint64_t address, std::uint64_t key) {
  const iovec piece{const_cast<void*>(buffer), length};
  return reach(ep, RemoteKind::write, &piece, 1, peer, address, key, nullptr,
               {.has_data = true, .data = data, .silent = true});
}

}  // namespace

}  // namespace calls

fi_ops_rma Endpoint::kRemoteOps = {
    .size = sizeof(fi_ops_rma),
    .read = calls::read,
    .readv = calls::readv,
    .readmsg = calls::readmsg,
    .write = calls::write,
    .writev = calls::writev,
    .writemsg = calls::writemsg,
    .inject = calls::inject,
    .writedata = calls::writedata,
    .injectdata = calls::injectdata,
};

}  // namespace viaduct::fabric
