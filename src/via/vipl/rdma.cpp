// RDMA: the initiator looks at the peer's registrations, and then writes or reads the peer's memory itself. Only where
// there is no way into that memory does it ask the library there, which answers from its program's next call.
#include <cstring>

#include "base/copy_loop.hpp"
#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

// ---- the initiator

// The connection breaks with the code that says so, on both sides.
void Vi::rdma_refused(WorkItem& item, Effects& effects) {
  const bool write = item.operation() == VIP_CONTROL_OP_RDMAWRITE;
  finish(item, VIP_STATUS_RDMA_PROT_ERROR | item.send_operation());
  fail(write ? VIP_ERROR_RDMAW_PROT : VIP_ERROR_RDMAR_PROT, effects, Tell::reason, item.descriptor,
       item.send_operation());
}

// It was permitted, and yet the memory is not there.
void Vi::rdma_failed(WorkItem& item, Effects& effects) {
  finish(item, VIP_STATUS_TRANSPORT_ERROR | item.send_operation());
  fail(VIP_ERROR_RDMA_TRANSPORT, effects, Tell::reason, item.descriptor, item.send_operation());
}

Vi::Pushed Vi::rdma(WorkItem& item, Effects& effects) {
  const bool write = item.operation() == VIP_CONTROL_OP_RDMAWRITE;
  if (item.moved) return push_rdma_done(item);
  if (out_.begun) return write ? push_write(item) : push_read(item);
  if (item.length == 0) {
    item.moved = true;
    return push_rdma_done(item);
  }
  if (!(write ? peer_.EnableRdmaWrite : peer_.EnableRdmaRead)) return rdma_refused(item, effects), Pushed::all;
  iovec pieces[kMostSegments];
  std::size_t count = 0;
  for (std::uint16_t i = 0; i < item.segments; ++i)
    pieces[count++] = {item.data()[i].Data.Address, item.data()[i].Length};
  const via::RemoteBytes there{item.remote().Handle, item.remote().Data.AddressBits, item.length};
  const std::uint64_t cookie = send_.position_of_first_waiting();
  switch (write ? reach_->put({pieces, count}, there, cookie) : reach_->get({pieces, count}, there, cookie)) {
    case via::Reach::Began::done:
      item.moved = true;
      return push_rdma_done(item);
    case via::Reach::Began::under_way:
      item.moved = item.under_way = true;
      if (!write) {
        item.read_under_way = true;
        ++reads_under_way_;
      }
      return push_rdma_done(item);
    case via::Reach::Began::full:
      return Pushed::full;
    case via::Reach::Began::refused:
      return rdma_refused(item, effects), Pushed::all;
    case via::Reach::Began::no_way: {
      static Counter by_message = counter("via.rdma_by_message");
      by_message.add();
      return write ? push_write(item) : push_read(item);
    }
    case via::Reach::Began::failed:
      return rdma_failed(item, effects), Pushed::all;
    case via::Reach::Began::gone:
      break;
  }
  return Pushed::lost;
}

// The bytes are where they belong: what remains is the immediate data, which takes a receive descriptor there.
Vi::Pushed Vi::push_rdma_done(WorkItem& item) {
  if (item.operation() == VIP_CONTROL_OP_RDMAREAD || (item.control & VIP_CONTROL_IMMEDIATE) == 0) {
    if (!item.under_way) finish(item, item.send_operation());
    return Pushed::all;
  }
  const RdmaDoneHeader header{item.length, item.descriptor->CS.ImmediateData};
  const Pushed pushed = push_control(kRdmaDone, bytes_of(header));
  if (pushed == Pushed::all) sent(item);
  return pushed;
}

// ---- by message, where there is no other way

Vi::Pushed Vi::push_write(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const WriteHeader header{item.remote().Data.AddressBits, item.remote().Handle, item.length,
                           item.descriptor->CS.ImmediateData, 0};
  const Pushed pushed = push_message(kWrite | (immediate ? kWithImmediate : 0), bytes_of(header),
                                     {item.data(), item.segments, item.length});
  if (pushed == Pushed::all) sent(item);
  return pushed;
}

Vi::Pushed Vi::push_read(WorkItem& item) {
  if (reads_under_way_ == kMostReadsUnderWay) return Pushed::full;  // until a reply has come
  const ReadHeader header{item.remote().Data.AddressBits, item.remote().Handle, item.length};
  const Pushed pushed = push_control(kRead, bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  item.read_under_way = true;
  ++reads_under_way_;
  return Pushed::all;
}

WorkItem* Vi::oldest_read() {
  WorkItem* oldest = nullptr;
  send_.for_each_started([&](WorkItem& item) {
    if (item.read_under_way) oldest = &item;
    return oldest == nullptr;
  });
  return oldest;
}

bool Vi::start_reply(const via::Fragment& fragment, std::size_t& header_size) {
  ReplyHeader header;
  const WorkItem* const item = oldest_read();
  if (item == nullptr || !read_header(fragment, header) || header.length != item->length) return false;
  header_size = sizeof header;
  in_.length = header.length;
  return true;
}

// Checked for each fragment: the program may deregister while they come.
void Vi::place_reply(std::span<const std::byte> bytes, Effects& effects) {
  WorkItem& item = *oldest_read();
  if (still_allowed(item, false)) return place(item, in_.have, bytes);
  finish(item, VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_OP_RDMA_READ);
  fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, item.descriptor, VIP_STATUS_OP_RDMA_READ);
}

// ---- the library whose memory it is

bool Vi::own_memory_allows(std::uint32_t memory, std::uint64_t address, std::uint64_t length, Enable enable) const {
  const bool enabled = enable == kRdmaWrite ? attributes_.EnableRdmaWrite : attributes_.EnableRdmaRead;
  return enabled && registrations_.view().allows(memory, address, length, tag_, enable);
}

bool Vi::start_write(const via::Fragment& fragment, std::size_t& header_size) {
  WriteHeader header;
  if (!read_header(fragment, header) || header.length > kMostTransfer) return false;
  header_size = sizeof header;
  in_.length = header.length;
  in_.immediate = header.immediate;
  in_.handle = header.handle;
  in_.address = header.address;
  return true;
}

// Checked for each fragment: the program may deregister while they come.
void Vi::place_write(std::span<const std::byte> bytes, Effects& effects) {
  const std::uint64_t address = in_.address + in_.have;
  if (!own_memory_allows(in_.handle, in_.address, in_.length, kRdmaWrite))
    return fail(VIP_ERROR_RDMAW_PROT, effects, Tell::reason, nullptr, VIP_STATUS_OP_REMOTE_RDMA_WRITE);
  copy_through_ring(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
}

bool Vi::start_read(const via::Fragment& fragment, Effects& effects) {
  ReadHeader header;
  if (!fragment.last || !read_header(fragment, header)) return false;
  if (replies_.size() == kMostReadsUnderWay || header.length > kMostTransfer) return false;
  if (!own_memory_allows(header.handle, header.address, header.length, kRdmaRead))
    return fail(VIP_ERROR_RDMAR_PROT, effects, Tell::reason, nullptr, VIP_STATUS_OP_RDMA_READ), true;
  replies_.push_back(header);
  return true;
}

Vi::Pushed Vi::push_reply() {
  const ReadHeader& asked = replies_.front();
  if (!own_memory_allows(asked.handle, asked.address, asked.length, kRdmaRead)) return Pushed::lost;
  VIP_DATA_SEGMENT segment{};
  segment.Data.AddressBits = asked.address;
  segment.Length = asked.length;
  const ReplyHeader header{asked.length, 0};
  out_.owner = Owner::reply;
  const Pushed pushed = push_message(kReadReply, bytes_of(header), {&segment, 1, asked.length});
  if (pushed == Pushed::full && out_.begun) return pushed;
  out_.owner = Owner::nobody;
  if (pushed == Pushed::all) replies_.pop_front();
  return pushed;
}

}  // namespace viaduct::vipl
