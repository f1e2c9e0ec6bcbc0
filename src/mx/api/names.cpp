// Boards, hosts, and what is known of them.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/counters.hpp"
#include "mx/api/handles.hpp"
#include "mx/boards.hpp"

namespace viaduct::mx {

namespace {

constexpr const char* kCounters[] = {"mx.connections", "mx.messages_got", "mx.messages_pushed"};
constexpr std::uint32_t kMostRequests = 1u << 20;
constexpr std::uint32_t kInsideALine = 44;

struct Answer {
  void* out;
  std::uint32_t length;

  template <class Value>
  mx_return_t operator()(Value value) const {
    if (length < sizeof value) return MX_BAD_INFO_LENGTH;
    std::memcpy(out, &value, sizeof value);
    return MX_SUCCESS;
  }
  mx_return_t text(const std::string& value) const {
    if (length < value.size() + 1) return MX_BAD_INFO_LENGTH;
    std::memcpy(out, value.c_str(), value.size() + 1);
    return MX_SUCCESS;
  }
};

mx_return_t counters(mx_get_info_key_t key, const Answer& answer) {
  const std::size_t each = key == MX_COUNTERS_LABELS ? MX_MAX_STR_LEN : sizeof(std::uint32_t);
  if (answer.length < each * std::size(kCounters)) return MX_BAD_INFO_LENGTH;
  auto* at = static_cast<char*>(answer.out);
  for (const char* const name : kCounters) {
    std::memset(at, 0, each);
    if (key == MX_COUNTERS_LABELS) {
      std::strncpy(at, name, each - 1);
    } else {
      const auto value = static_cast<std::uint32_t>(counter(name).get());
      std::memcpy(at, &value, sizeof value);
    }
    at += each;
  }
  return MX_SUCCESS;
}

mx_return_t of_a_board(mx_get_info_key_t key, const Board& board, const Answer& answer) {
  switch (key) {
    case MX_PRODUCT_CODE:
      return answer.text("viaduct");
    case MX_PART_NUMBER:
      return answer.text(board.interface);
    case MX_SERIAL_NUMBER:
      return answer(static_cast<std::uint32_t>(board.nic));
    case MX_PORT_COUNT:
      return answer(std::uint32_t{1});
    case MX_NUMA_NODE:
      return answer(std::uint32_t{0});
    case MX_NET_TYPE:
      return answer(std::uint32_t{MX_NET_ETHER});
    case MX_LINE_SPEED:
      return answer(std::uint32_t{MX_SPEED_UNKNOWN});
    case MX_COUNTERS_COUNT:
      return answer(static_cast<std::uint32_t>(std::size(kCounters)));
    default:
      return counters(key, answer);
  }
}

mx_return_t of_all(mx_get_info_key_t key, const std::vector<Board>& all, const Answer& answer) {
  switch (key) {
    case MX_NIC_COUNT:
      return answer(static_cast<std::uint32_t>(all.size()));
    case MX_NIC_IDS: {
      const std::size_t room = answer.length / sizeof(std::uint64_t);
      if (room < all.size()) return MX_BAD_INFO_LENGTH;
      for (std::size_t i = 0; i < std::min(room, all.size() + 1); ++i) {
        const std::uint64_t nic = i < all.size() ? all[i].nic : 0;
        std::memcpy(static_cast<char*>(answer.out) + i * sizeof nic, &nic, sizeof nic);
      }
      return MX_SUCCESS;
    }
    case MX_MAX_NATIVE_ENDPOINTS:
      return answer(kMostEndpoints);
    case MX_NATIVE_REQUESTS:
      return answer(kMostRequests);
    case MX_PIO_SEND_MAX:
      return answer(kInsideALine);
    case MX_COPY_SEND_MAX:
      return answer(static_cast<std::uint32_t>(kEagerMost));
    default:
      return MX_BAD_INFO_KEY;
  }
}

bool is_of_all(mx_get_info_key_t key) {
  return (key >= MX_NIC_COUNT && key <= MX_NATIVE_REQUESTS) || key == MX_PIO_SEND_MAX || key == MX_COPY_SEND_MAX;
}

}  // namespace

}  // namespace viaduct::mx

using namespace viaduct::mx;

mx_return_t mx_get_info(mx_endpoint_t endpoint, mx_get_info_key_t key, void* in_val, uint32_t in_len, void* out_val,
                        uint32_t out_len) {
  constexpr const char* kCall = "mx_get_info";
  if (!is_initialized()) return fails(nullptr, MX_NOT_INITIALIZED, kCall);
  if (endpoint != nullptr && !is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (key < MX_NIC_COUNT || key > MX_LINE_SPEED) return fails(endpoint, MX_BAD_INFO_KEY, kCall);
  if (out_val == nullptr) return fails(endpoint, MX_BAD_INFO_VAL, kCall);
  const auto all = boards();
  const Answer answer{out_val, out_len};
  mx_return_t result;
  if (is_of_all(key)) {
    result = of_all(key, all, answer);
  } else {
    std::uint32_t board = 0;
    if (in_val == nullptr) return fails(endpoint, MX_BAD_INFO_VAL, kCall);
    if (in_len < sizeof board) return fails(endpoint, MX_BAD_INFO_LENGTH, kCall);
    std::memcpy(&board, in_val, sizeof board);
    if (board >= all.size()) return fails(endpoint, MX_BOARD_UNKNOWN, kCall);
    result = of_a_board(key, all[board], answer);
  }
  return result == MX_SUCCESS ? result : fails(endpoint, result, kCall);
}

mx_return_t mx_hostname_to_nic_id(char* hostname, uint64_t* nic_id) {
  if (hostname == nullptr || nic_id == nullptr) return fails(nullptr, MX_BAD_HOSTNAME_ARGS, "mx_hostname_to_nic_id");
  std::uint64_t nic = 0;
  if (!nic_of_host(hostname, nic)) return fails(nullptr, MX_HOST_NOT_FOUND, "mx_hostname_to_nic_id");
  *nic_id = nic;
  return MX_SUCCESS;
}

mx_return_t mx_nic_id_to_hostname(uint64_t nic_id, char* hostname) {
  if (hostname == nullptr) return fails(nullptr, MX_BAD_HOSTNAME_ARGS, "mx_nic_id_to_hostname");
  std::string name;
  if (!host_of_nic(nic_id, name)) return fails(nullptr, MX_NIC_NOT_FOUND, "mx_nic_id_to_hostname");
  std::memset(hostname, 0, MX_MAX_HOSTNAME_LEN);
  name.copy(hostname, MX_MAX_HOSTNAME_LEN - 1);
  return MX_SUCCESS;
}

mx_return_t mx_board_number_to_nic_id(uint32_t board_number, uint64_t* nic_id) {
  const auto all = boards();
  const std::size_t board = board_number == MX_ANY_NIC ? 0 : board_number;
  if (board >= all.size() || nic_id == nullptr) return fails(nullptr, MX_BOARD_UNKNOWN, "mx_board_number_to_nic_id");
  *nic_id = all[board].nic;
  return MX_SUCCESS;
}

mx_return_t mx_nic_id_to_board_number(uint64_t nic_id, uint32_t* board_number) {
  const auto all = boards();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Board& one) { return one.nic == nic_id; });
  if (found == all.end() || board_number == nullptr)
    return fails(nullptr, MX_NIC_NOT_FOUND, "mx_nic_id_to_board_number");
  *board_number = static_cast<uint32_t>(found - all.begin());
  return MX_SUCCESS;
}
