// The message that goes out: in fragments, as far as there is room.
//
// Owns how far it has got. Under the VI's lock.
#pragma once

#include <span>

#include "via/vipl/link.hpp"
#include "via/vipl/message.hpp"
#include "via/vipl/work_queue.hpp"

namespace viaduct::vipl {

enum class Pushed { all, full, lost };

class Outgoing {
 public:
  struct Body {
    const VIP_DATA_SEGMENT* segments = nullptr;
    std::size_t count = 0;
    std::size_t length = 0;
  };
  enum class Owner { nobody, item, reply };  // whose message did not all fit

  explicit Outgoing(Link& link) : link_(link) {}
  void connected() { owner = Owner::nobody, begun_ = false, sent_ = 0; }

  Owner owner = Owner::nobody;
  bool begun() const { return begun_; }  // half a message cannot be taken back

  // Goes on where the last call was refused.
  Pushed push_message(std::uint32_t word, std::span<const std::byte> header, const Body& body);
  // A header and nothing else, of one fragment.
  Pushed push_control(std::uint32_t kind, std::span<const std::byte> header) { return push_message(kind, header, {}); }
  Pushed push_send(const WorkItem& item);
  // Of few segments, and so short that every channel takes it as one fragment or not at all.
  static constexpr std::uint32_t kPlainSend = 1024;
  static constexpr std::uint16_t kPlainSegments = 4;
  bool push_plain_send(const WorkItem& item);

 private:
  Link& link_;
  bool begun_ = false;
  std::size_t sent_ = 0;
};

}  // namespace viaduct::vipl
