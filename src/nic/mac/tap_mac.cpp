// The MAC `tap`: an interface of the kernel's own stack (/dev/net/tun). What the kernel sends there is received here,
// and the other way round. One system call moves one frame.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.hpp"
#include "nic/mac/counts.hpp"
#include "nic/mac/interface.hpp"
#include "nic/mac/macs.hpp"

namespace viaduct::nic {

namespace {

constexpr const char* kDevice = "/dev/net/tun";
constexpr std::uint32_t kSlots = 256;
constexpr std::uint32_t kTag = 4;  // a VLAN's, which the MTU does not count

class TapMac final : public Mac {
 public:
  TapMac(Fd device, Fd control, Interface interface)
      : device_(std::move(device)),
        control_(std::move(control)),
        interface_(std::move(interface)),
        stride_(((interface_.mtu + kEthernetHeader + kTag + 63) & ~63u) + 64),
        bytes_(new std::byte[std::size_t{kSlots} * stride_]) {}

  std::string name() const override { return "tap:" + interface_.name; }
  // The far end of a cable has an address of its own.
  MacAddress address() const override {
    MacAddress other = interface_.address;
    other.back() ^= 1;
    return other;
  }
  std::uint32_t max_frame() const override { return interface_.mtu + kEthernetHeader; }
  Link link() const override { return link_of(control_.get(), interface_.index); }
  MacCounters counters() const override { return counts_.read(); }
  Capabilities capabilities() const override {
    return {.max_frame = std::min(max_frame(), frame_now(control_.get(), interface_.index, max_frame())),
            .probes_path_mtu = true,
            .privilege = "CAP_NET_ADMIN"};
  }
  std::size_t transmit(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Frame> frames) override;
  void release(std::size_t count) override { head_ += count; }
  int fd() const override { return gone_.load(std::memory_order_relaxed) ? -1 : device_.get(); }

 private:
  const Fd device_;
  const Fd control_;  // a socket of the interface's namespace, to ask about it
  const Interface interface_;
  const std::size_t stride_;
  const std::unique_ptr<std::byte[]> bytes_;
  std::uint64_t head_ = 0, tail_ = 0;  // slots given out, the receive half's
  std::atomic<bool> gone_{false};
  MacCounts counts_;
};

std::size_t TapMac::transmit(std::span<const Frame> frames) {
  std::size_t taken = 0;
  for (const Frame& frame : frames) {
    const bool fits = frame.length <= max_frame();
    const ssize_t written = fits ? ::write(device_.get(), frame.data, frame.length) : -1;
    if (written >= 0) {
      counts_.sent(1);
    } else {
      if (fits && errno == EAGAIN) break;
      counts_.refused(1);
    }
    ++taken;
  }
  return taken;
}

std::size_t TapMac::receive(std::span<Frame> frames) {
  std::size_t count = 0;
  while (count < frames.size() && tail_ - head_ < kSlots) {
    std::byte* const slot = bytes_.get() + tail_ % kSlots * stride_;
    const ssize_t length = ::read(device_.get(), slot, stride_);
    if (length < 0) {
      if (errno == EBADFD || errno == ENODEV) gone_.store(true, std::memory_order_relaxed);
      break;
    }
    frames[count++] = {slot, static_cast<std::uint32_t>(length)};
    ++tail_;
  }
  counts_.received(count);
  return count;
}

Result<std::string> attach(int device, const std::string& name) {
  ifreq request{};
  if (name.empty() || name.size() >= IFNAMSIZ)
    return Error(EINVAL,
                 fmt::format("'{}' cannot be the name of an interface: 1 to {} characters", name, IFNAMSIZ - 1));
  std::memcpy(request.ifr_name, name.data(), name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (::ioctl(device, TUNSETIFF, &request) == 0) return std::string(request.ifr_name);
  if (errno == EBUSY) return Error(EBUSY, fmt::format("the interface {} is in use by another program", name));
  if (errno == EINVAL) return Error(EINVAL, fmt::format("{} is there already and is no tap interface", name));
  return refused(errno, fmt::format("make the interface {}", name), "CAP_NET_ADMIN");
}

}  // namespace

Result<std::unique_ptr<Mac>> open_tap_mac(const TapMacOptions& options) {
  Fd device(::open(kDevice, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!device && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
    return Error(errno,
                 fmt::format("{} is missing (as root: modprobe tun; in a container: --device {})", kDevice, kDevice));
  if (!device && errno == EACCES)
    return Error(EACCES, fmt::format("{} may not be opened by this user (as root: chmod 666 {})", kDevice, kDevice));
  if (!device) return Error::from_errno(kDevice);
  VIADUCT_TRY(const std::string name, attach(device.get(), options.interface));

  Fd control(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return Error::from_errno("open a socket to ask about interfaces");
  VIADUCT_TRY(Interface interface, find_interface(control.get(), name));
  if (interface.mtu != options.mtu) {
    VIADUCT_CHECK(
        set_mtu(control.get(), name, options.mtu)
            .because(fmt::format("{} has an MTU of {}, not the adapter's {}", name, interface.mtu, options.mtu)));
    interface.mtu = options.mtu;
  }
  if (options.bring_up) VIADUCT_CHECK(bring_up(control.get(), name));
  return std::unique_ptr<Mac>(std::make_unique<TapMac>(std::move(device), std::move(control), std::move(interface)));
}

}  // namespace viaduct::nic
