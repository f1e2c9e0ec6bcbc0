#include "nic/mac/xdp_program.hpp"

#include <linux/bpf.h>
#include <linux/if_link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "nic/mac/interface.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint32_t kQueues = 64;
constexpr std::uint32_t kHasFrags = 1u << 5;  // BPF_F_XDP_HAS_FRAGS: newer than some kernels' headers

// A description with everything unsaid zero, as bpf() demands: braces would leave the union's rest as it was.
bpf_attr blank() {
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  return attributes;
}

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

constexpr const char* kCapabilities = "CAP_NET_ADMIN and CAP_BPF of the machine's own namespace";

Result<Fd> make_map() {
  bpf_attr attributes = blank();
  attributes.map_type = BPF_MAP_TYPE_XSKMAP;
  attributes.key_size = attributes.value_size = 4;
  attributes.max_entries = kQueues;
  Fd map(bpf(BPF_MAP_CREATE, attributes));
  if (!map) return refused(errno, "make a map of AF_XDP sockets", kCapabilities);
  return map;
}

// return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS);
Result<Fd> load(int map, bool frags) {
  const bpf_insn instructions[] = {
      {BPF_LDX | BPF_W | BPF_MEM, BPF_REG_2, BPF_REG_1, offsetof(xdp_md, rx_queue_index), 0},
      {BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map},
      {0, 0, 0, 0, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  bpf_attr attributes = blank();
  attributes.prog_type = BPF_PROG_TYPE_XDP;
  attributes.insns = reinterpret_cast<std::uintptr_t>(instructions);
  attributes.insn_cnt = std::size(instructions);
  attributes.license = reinterpret_cast<std::uintptr_t>("");
  attributes.prog_flags = frags ? kHasFrags : 0;
  Fd program(bpf(BPF_PROG_LOAD, attributes));
  if (!program) return refused(errno, "load a program for AF_XDP", kCapabilities);
  return program;
}

}  // namespace

Result<XdpProgram> XdpProgram::attach(int interface, bool native, bool frags) {
  VIADUCT_TRY(Fd map, make_map());
  VIADUCT_TRY(Fd program, load(map.get(), frags));
  bpf_attr attributes = blank();
  attributes.link_create.prog_fd = static_cast<std::uint32_t>(program.get());
  attributes.link_create.target_ifindex = static_cast<std::uint32_t>(interface);
  attributes.link_create.attach_type = BPF_XDP;
  attributes.link_create.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
  Fd link(bpf(BPF_LINK_CREATE, attributes));
  if (!link) return refused(errno, "attach a program for AF_XDP to the interface", kCapabilities);
  return XdpProgram(std::move(map), std::move(program), std::move(link));
}

Status XdpProgram::serve(std::uint32_t queue, int socket) {
  bpf_attr attributes = blank();
  attributes.map_fd = static_cast<std::uint32_t>(map_.get());
  attributes.key = reinterpret_cast<std::uintptr_t>(&queue);
  attributes.value = reinterpret_cast<std::uintptr_t>(&socket);
  if (bpf(BPF_MAP_UPDATE_ELEM, attributes) == 0) return {};
  return Error::from_errno("hand an AF_XDP socket to its program");
}

}  // namespace viaduct::nic
