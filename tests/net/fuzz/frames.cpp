// For libFuzzer: whatever comes from the network. The input is cut into frames; each gets a right checksum, so that
// what stands behind it is reached. The first byte of a frame says what becomes of it: to a station as it is, or into a
// session as its next frame.
//
// tests/net/fuzz/run.sh builds and runs it.
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "net/station.hpp"

using namespace viaduct::net;

namespace {

constexpr Place kPeer{2, 0, 0, 0, 0, 1};

class Region final : public RegisteredMemory {
 public:
  Reached reach(std::uint64_t, std::uint64_t tag, std::uint64_t address, std::uint64_t length, Access) override {
    if (tag > 3) return {TransferStatus::no_such_tag};
    if (address > bytes_.size() || length > bytes_.size() - address) return {TransferStatus::out_of_bounds};
    return {TransferStatus::done, bytes_.data() + address};
  }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 16);
};

void drain(Station& station, std::uint64_t now) {
  std::array<std::byte, 9000> room;
  Place to;
  for (int frames = 0; station.next_frame(room, to, now) != 0; ++frames) {
    if (frames > 10'000) std::abort();  // always an end
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Region memory;
  Station station({}, memory, [random = viaduct::Random(1)]() mutable { return random(); });
  station.offer("x");
  std::uint64_t now = 1'000'000;
  // A peer has said hello, and its session is open.
  std::uint64_t session = 0;
  std::uint64_t number = 1;
  {
    std::vector<std::byte> hello(kHeaderSize);
    const auto body = GrowingBytes()
                          .add(std::uint64_t{7})
                          .add(std::uint64_t{8})
                          .add(std::uint16_t{1472})
                          .add(std::uint16_t{0})
                          .add(std::uint8_t{1})
                          .add('x')
                          .take();
    hello.insert(hello.end(), body.begin(), body.end());
    FrameHeader header{};
    header.kind = static_cast<std::uint8_t>(FrameKind::hello);
    seal_frame(hello, header);
    station.receive(kPeer, hello, now);
    std::array<std::byte, 9000> room;
    Place to;
    const std::size_t answer = station.next_frame(room, to, now);
    std::memcpy(&session, room.data() + kHeaderSize, sizeof session);
    if (answer == 0 || session == 0) std::abort();
  }
  while (size >= 3) {
    const std::uint8_t way = data[0];
    const std::size_t length = std::min<std::size_t>(data[1] | data[2] << 8, size - 3);
    std::vector<std::byte> frame(kHeaderSize);
    FrameHeader header{};
    const auto* bytes = reinterpret_cast<const std::byte*>(data + 3);
    if ((way & 3) != 0) {
      header.kind = static_cast<std::uint8_t>(FrameKind::session);
      header.session = session;
      header.number = number++;
      header.span = static_cast<std::uint16_t>(std::min<std::uint64_t>(header.number - 1, 20));
    } else {
      header.kind = static_cast<std::uint8_t>(way >> 2);
      header.session = way & 0x80 ? session : 7;
    }
    frame.insert(frame.end(), bytes, bytes + std::min<std::size_t>(length, 8000));
    seal_frame(frame, header);
    station.receive(kPeer, frame, now);
    if ((way & 0x40) != 0) station.receive(kPeer, {bytes, length}, now);  // and once without a header that is right
    data += 3 + length;
    size -= 3 + length;
    now += (way & 0x30) * 100'000;
    station.tick(now);
    StationEvent event;
    while (station.take_event(event)) {
      Session* open = event.kind == StationEvent::Kind::session ? station.use(event.session) : nullptr;
      if (open == nullptr) continue;
      if (event.event.kind == Event::Kind::asked) open->accept(event.event.flow, {}, {});
      std::span<const std::byte> message;
      while (open->peek(event.event.flow, message)) open->consume(event.event.flow);
    }
    drain(station, now);
    if (const Session* open = station.look(session);
        open != nullptr && open->memory_in_use() > (std::size_t{64} << 20)) {
      std::abort();
    }
  }
  return 0;
}
