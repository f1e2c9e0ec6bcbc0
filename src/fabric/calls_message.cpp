// fi_send, fi_recv and their kin.
#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace calls {

namespace {

Endpoint& at(fid_ep* ep) {
  return Endpoint::of(ep);
}

ssize_t recvmsg(fid_ep* ep, const fi_msg* msg, std::uint64_t flags) {
  return at(ep).receive(
      {.into = {msg->msg_iov, msg->iov_count}, .from = msg->addr, .context = msg->context, .flags = flags});
}
ssize_t recvv(fid_ep* ep, const iovec* pieces, void**, std::size_t count, fi_addr_t from, void* context) {
  return at(ep).receive({.into = {pieces, count}, .from = from, .context = context, .flags = at(ep).receive_flags()});
}
ssize_t recv(fid_ep* ep, void* buffer, std::size_t length, void*, fi_addr_t from, void* context) {
  const iovec piece{buffer, length};
  return recvv(ep, &piece, nullptr, 1, from, context);
}

ssize_t sendmsg(fid_ep* ep, const fi_msg* msg, std::uint64_t flags) {
  return at(ep).send({.bytes = {msg->msg_iov, msg->iov_count},
                      .to = msg->addr,
                      .has_data = (flags & FI_REMOTE_CQ_DATA) != 0,
                      .data = msg->data,
                      .context = msg->context,
                      .flags = flags});
}
ssize_t sendv(fid_ep* ep, const iovec* pieces, void**, std::size_t count, fi_addr_t to, void* context) {
  return at(ep).send({.bytes = {pieces, count}, .to = to, .context = context, .flags = at(ep).send_flags()});
}
ssize_t send(fid_ep* ep, const void* buffer, std::size_t length, void*, fi_addr_t to, void* context) {
  const iovec piece{const_cast<void*>(buffer), length};
  return sendv(ep, &piece, nullptr, 1, to, context);
}
ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t length, void*, std::uint64_t data, fi_addr_t to,
                 void* context) {
  const iovec piece{const_cast<void*>(buffer), length};
  return at(ep).send({.bytes = {&piece, 1},
                      .to = to,
                      .has_data = true,
                      .data = data,
                      .context = context,
                      .flags = at(ep).send_flags()});
}
ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to) {
  const iovec piece{const_cast<void*>(buffer), length};
  return at(ep).send({.bytes = {&piece, 1}, .to = to, .silent = true});
}
ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data, fi_addr_t to) {
  const iovec piece{const_cast<void*>(buffer), length};
  return at(ep).send({.bytes = {&piece, 1}, .to = to, .has_data = true, .data = data, .silent = true});
}

}  // namespace

}  // namespace calls

fi_ops_msg Endpoint::kMessageOps = {
    .size = sizeof(fi_ops_msg),
    .recv = calls::recv,
    .recvv = calls::recvv,
    .recvmsg = calls::recvmsg,
    .send = calls::send,
    .sendv = calls::sendv,
    .sendmsg = calls::sendmsg,
    .inject = calls::inject,
    .senddata = calls::senddata,
    .injectdata = calls::injectdata,
};

}  // namespace viaduct::fabric
