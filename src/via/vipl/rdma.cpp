#include "via/vipl/rdma.hpp"

#include <utility>

#include "base/copy_loop.hpp"
#include "base/counters.hpp"

namespace viaduct::vipl {

// ---- the initiator

// The connection breaks with the code that says so, on both sides.
void Rdma::refused(WorkItem& item) {
  const bool write = item.operation() == VIP_CONTROL_OP_RDMAWRITE;
  item.finish(VIP_STATUS_RDMA_PROT_ERROR | item.send_operation());
  link_.fail(write ? VIP_ERROR_RDMAW_PROT : VIP_ERROR_RDMAR_PROT, Link::Tell::reason, item.descriptor,
             item.send_operation());
}

// It was permitted, and yet the memory is not there.
void Rdma::failed(WorkItem& item) {
  item.finish(VIP_STATUS_TRANSPORT_ERROR | item.send_operation());
  link_.fail(VIP_ERROR_RDMA_TRANSPORT, Link::Tell::reason, item.descriptor, item.send_operation());
}

Pushed Rdma::push(WorkItem& item) {
  const bool write = item.operation() == VIP_CONTROL_OP_RDMAWRITE;
  if (item.moved) return push_done(item);
  if (outgoing_.begun()) return write ? push_write(item) : push_read(item);
  if (item.length == 0) {
    item.moved = true;
    return push_done(item);
  }
  if (!(write ? link_.peer.EnableRdmaWrite : link_.peer.EnableRdmaRead)) return refused(item), Pushed::all;
  iovec pieces[kMostSegments];
  std::size_t count = 0;
  for (std::uint16_t i = 0; i < item.segments; ++i)
    pieces[count++] = {item.data()[i].Data.Address, item.data()[i].Length};
  const via::RemoteBytes there{item.remote().Handle, item.remote().Data.AddressBits, item.length};
  const std::uint64_t cookie = queues_.send.position_of_first_waiting();
  switch (write ? link_.reach->put({pieces, count}, there, cookie) : link_.reach->get({pieces, count}, there, cookie)) {
    case via::Reach::Began::done:
      item.moved = true;
      return push_done(item);
    case via::Reach::Began::under_way:
      item.moved = item.under_way = true;
      if (!write) {
        item.read_under_way = true;
        ++reads_under_way_;
      }
      return push_done(item);
    case via::Reach::Began::full:
      return Pushed::full;
    case via::Reach::Began::refused:
      return refused(item), Pushed::all;
    case via::Reach::Began::no_way: {
      static Counter by_message = counter("via.rdma_by_message");
      by_message.add();
      return write ? push_write(item) : push_read(item);
    }
    case via::Reach::Began::failed:
      return failed(item), Pushed::all;
    case via::Reach::Began::gone:
      break;
  }
  return Pushed::lost;
}

// The bytes are where they belong: what remains is the immediate data, which takes a receive descriptor there.
Pushed Rdma::push_done(WorkItem& item) {
  if (item.operation() == VIP_CONTROL_OP_RDMAREAD || (item.control & VIP_CONTROL_IMMEDIATE) == 0) {
    if (!item.under_way) item.finish(item.send_operation());
    return Pushed::all;
  }
  const RdmaDoneHeader header{item.length, item.descriptor->CS.ImmediateData};
  const Pushed pushed = outgoing_.push_control(kRdmaDone, bytes_of(header));
  if (pushed == Pushed::all) account_.sent(item);
  return pushed;
}

bool Rdma::transfer_ended(const via::Reach::End& end, Effects& effects) {
  WorkItem* const item = queues_.send.started_at(end.cookie);
  if (item == nullptr || !item->under_way) return false;
  item->under_way = false;
  if (std::exchange(item->read_under_way, false)) --reads_under_way_;
  switch (end.how) {
    case via::Reach::Began::done: {
      // One with immediate data is also a message, and complete when that is acknowledged.
      const bool message_too = link_.acknowledged() && item->sequence > account_.acknowledged();
      if (!message_too) item->finish(item->send_operation());
      queues_.complete(false, effects);
      return queues_.send.has_waiting();  // a fence may have kept them back
    }
    case via::Reach::Began::refused:
      refused(*item);
      return false;
    case via::Reach::Began::failed:
      failed(*item);
      return false;
    default:
      link_.lost(VIP_ERROR_CONN_LOST);
      return false;
  }
}

// ---- by message, where there is no other way

Pushed Rdma::push_write(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const WriteHeader header{item.remote().Data.AddressBits, item.remote().Handle, item.length,
                           item.descriptor->CS.ImmediateData, 0};
  const Pushed pushed = outgoing_.push_message(kWrite | (immediate ? kWithImmediate : 0), bytes_of(header),
                                               {item.data(), item.segments, item.length});
  if (pushed == Pushed::all) account_.sent(item);
  return pushed;
}

Pushed Rdma::push_read(WorkItem& item) {
  if (reads_under_way_ == kMostReadsUnderWay) return Pushed::full;  // until a reply has come
  const ReadHeader header{item.remote().Data.AddressBits, item.remote().Handle, item.length};
  const Pushed pushed = outgoing_.push_control(kRead, bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  item.read_under_way = true;
  ++reads_under_way_;
  return Pushed::all;
}

WorkItem* Rdma::oldest_read() {
  WorkItem* oldest = nullptr;
  queues_.send.for_each_started([&](WorkItem& item) {
    if (item.read_under_way) oldest = &item;
    return oldest == nullptr;
  });
  return oldest;
}

bool Rdma::start_reply(const via::Fragment& fragment, PartialMessage& in, std::size_t& header_size) {
  ReplyHeader header;
  const WorkItem* const item = oldest_read();
  if (item == nullptr || !read_header(fragment, header) || header.length != item->length) return false;
  header_size = sizeof header;
  in.length = header.length;
  return true;
}

// Checked for each fragment: the program may deregister while they come.
void Rdma::place_reply(std::span<const std::byte> bytes, const PartialMessage& in) {
  WorkItem& item = *oldest_read();
  if (queues_.still_allowed(item, false)) return Receives::place(item, in.have, bytes);
  item.finish(VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_OP_RDMA_READ);
  link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::reason, item.descriptor, VIP_STATUS_OP_RDMA_READ);
}

void Rdma::end_of_reply(Effects& effects) {
  WorkItem& item = *oldest_read();
  item.read_under_way = false;
  --reads_under_way_;
  item.finish(VIP_STATUS_OP_RDMA_READ);
  queues_.complete(false, effects);
}

// ---- the library whose memory it is

bool Rdma::own_memory_allows(std::uint32_t memory, std::uint64_t address, std::uint64_t length, Enable enable) const {
  const bool enabled = enable == kRdmaWrite ? link_.attributes.EnableRdmaWrite : link_.attributes.EnableRdmaRead;
  return enabled && link_.registrations.view().allows(memory, address, length, link_.tag, enable);
}

bool Rdma::start_write(const via::Fragment& fragment, PartialMessage& in, std::size_t& header_size) {
  WriteHeader header;
  if (!read_header(fragment, header) || header.length > kMostTransfer) return false;
  header_size = sizeof header;
  in.length = header.length;
  in.immediate = header.immediate;
  in.handle = header.handle;
  in.address = header.address;
  return true;
}

// Checked for each fragment: the program may deregister while they come.
void Rdma::place_write(std::span<const std::byte> bytes, const PartialMessage& in) {
  const std::uint64_t address = in.address + in.have;
  if (!own_memory_allows(in.handle, in.address, in.length, kRdmaWrite))
    return link_.fail(VIP_ERROR_RDMAW_PROT, Link::Tell::reason, nullptr, VIP_STATUS_OP_REMOTE_RDMA_WRITE);
  copy_through_ring(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
}

bool Rdma::take_read(const via::Fragment& fragment) {
  ReadHeader header;
  if (!fragment.last || !read_header(fragment, header)) return false;
  if (replies_.size() == kMostReadsUnderWay || header.length > kMostTransfer) return false;
  if (!own_memory_allows(header.handle, header.address, header.length, kRdmaRead))
    return link_.fail(VIP_ERROR_RDMAR_PROT, Link::Tell::reason, nullptr, VIP_STATUS_OP_RDMA_READ), true;
  replies_.push_back(header);
  return true;
}

Pushed Rdma::push_reply() {
  const ReadHeader& asked = replies_.front();
  if (!own_memory_allows(asked.handle, asked.address, asked.length, kRdmaRead)) return Pushed::lost;
  VIP_DATA_SEGMENT segment{};
  segment.Data.AddressBits = asked.address;
  segment.Length = asked.length;
  const ReplyHeader header{asked.length, 0};
  outgoing_.owner = Outgoing::Owner::reply;
  const Pushed pushed = outgoing_.push_message(kReadReply, bytes_of(header), {&segment, 1, asked.length});
  if (pushed == Pushed::full && outgoing_.begun()) return pushed;
  outgoing_.owner = Outgoing::Owner::nobody;
  if (pushed == Pushed::all) replies_.pop_front();
  return pushed;
}

}  // namespace viaduct::vipl
