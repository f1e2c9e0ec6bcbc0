// Send Data Ready: descriptors of packets are here; move each packet's fragments into the transmit buffer, one after
// the other, and tell the MAC to send it when they have arrived.
//
// Descriptors are hostile: a packet with a fragment of no bytes or outside the registered memory, shorter than an
// Ethernet header, longer than the MAC carries, or of too many fragments is counted and skipped, and its descriptors
// are consumed in their turn.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

struct GatheredPacket {
  enum class State { whole, incomplete, bad } state = State::incomplete;
  std::uint32_t fragments = 0;
  std::uint32_t length = 0;
  bool ended = true;  // bad only: its end was found
};

// Looks at the descriptors from the cursor to the end of one packet.
template <Hardware H>
GatheredPacket gather(Firmware<H>& nic) {
  GatheredPacket packet;
  bool good = true;
  for (std::uint32_t at = nic.send.cursor; at != nic.send.producer; ++at) {
    const SendDescriptor& descriptor = nic.send_ring[at % kSendRing];
    const std::uint32_t room = nic.settings.max_frame - packet.length;
    ++packet.fragments;
    if (good && descriptor.length - 1 < room && nic.hw.reachable(descriptor.address, descriptor.length))
      packet.length += descriptor.length;
    else
      good = false;
    if ((descriptor.flags & SendDescriptor::kEnd) != 0) {
      good &= packet.length >= kEthernetHeader && !nic.send.skipping;
      packet.state = good ? GatheredPacket::State::whole : GatheredPacket::State::bad;
      return packet;
    }
    if (packet.fragments == kMostFragments) {
      packet.state = GatheredPacket::State::bad;
      packet.ended = false;
      return packet;
    }
  }
  return packet;
}

template <Hardware H>
void skip_packet(Firmware<H>& nic, Processor& cpu, const GatheredPacket& packet) {
  if (!nic.send.skipping) bump(nic.statistics.send.bad_packets);
  nic.send.skipping = !packet.ended;
  nic.send.cursor += packet.fragments;
  nic.hw.read(cpu, {0, nullptr, 0, Transfer::bad_packet, 0, nic.send.cursor});
}

template <Hardware H>
void move_packet(Firmware<H>& nic, Processor& cpu, const GatheredPacket& packet, std::byte* buffer) {
  std::byte* to = buffer;
  for (std::uint32_t i = 1; i <= packet.fragments; ++i) {
    const SendDescriptor& descriptor = nic.send_ring[nic.send.cursor++ % kSendRing];
    const Transfer what = i == packet.fragments ? Transfer::packet : Transfer::fragment;
    nic.hw.read(cpu, {descriptor.address, to, descriptor.length, what, 0, nic.send.cursor});
    to += descriptor.length;
  }
  nic.hw.charge(cpu, Event::send_data_ready, Work::fragment, packet.fragments);
  nic.hw.transmit(cpu, buffer, packet.length);
}

template <Hardware H>
unsigned send_data_ready(Firmware<H>& nic, Processor& cpu) {
  std::uint64_t packets = 0, bytes = 0;
  unsigned done = 0;
  for (; done < nic.settings.batch; ++done) {
    const GatheredPacket packet = gather(nic);
    if (packet.state == GatheredPacket::State::incomplete) break;
    if (nic.hw.read_space() < packet.fragments) {
      nic.send.stalled |= bit(Event::send_data_ready);
      break;
    }
    if (packet.state == GatheredPacket::State::bad) {
      skip_packet(nic, cpu, packet);
      continue;
    }
    std::byte* const buffer = nic.hw.transmit_buffer(packet.length);
    if (buffer == nullptr) break;
    move_packet(nic, cpu, packet, buffer);
    ++packets, bytes += packet.length;
  }
  nic.hw.charge(cpu, Event::send_data_ready, Work::item, done);
  bump(nic.statistics.send.packets, packets);
  bump(nic.statistics.send.bytes, bytes);
  if (done == nic.settings.batch) nic.hw.raise(cpu, Event::send_data_ready);
  return done;
}

}  // namespace viaduct::nic
