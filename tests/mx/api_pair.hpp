// Two endpoints of the MX interface in one process, which one thread drives.
#pragma once

#include <gtest/gtest.h>
#include <viaduct/mx_extensions.h>
#include <viaduct/myriexpress.h>

#include <chrono>
#include <string>
#include <vector>

#include "mx/boards.hpp"
#include "mx/endpoint_pair.hpp"

namespace viaduct::mx::testing {

// The loopback interface is the last board.
inline std::uint32_t loopback_board() {
  return static_cast<std::uint32_t>(boards().size() - 1);
}

inline std::uint64_t loopback_nic() {
  return boards().back().nic;
}

// Tests run side by side: each takes numbers that are free.
inline mx_endpoint_t open_endpoint(std::uint32_t key = 0, std::vector<mx_param_t> parameters = {},
                                   std::uint32_t number = MX_ANY_ENDPOINT) {
  mx_endpoint_t endpoint = nullptr;
  EXPECT_EQ(mx_open_endpoint(loopback_board(), number, key, parameters.empty() ? nullptr : parameters.data(),
                             static_cast<std::uint32_t>(parameters.size()), &endpoint),
            MX_SUCCESS);
  return endpoint;
}

inline std::uint32_t number_of(mx_endpoint_t endpoint) {
  mx_endpoint_addr_t address;
  std::uint32_t number = 0;
  EXPECT_EQ(mx_get_endpoint_addr(endpoint, &address), MX_SUCCESS);
  EXPECT_EQ(mx_decompose_endpoint_addr(address, nullptr, &number), MX_SUCCESS);
  return number;
}

class Mx : public ::testing::Test {
 protected:
  void SetUp() override {
    mx_set_error_handler(MX_ERRORS_RETURN);
    ASSERT_EQ(mx_init(), MX_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(mx_finalize(), MX_SUCCESS); }

  void open_both(std::vector<mx_param_t> parameters = {}) {
    a = open_endpoint(0, parameters);
    b = open_endpoint(0, parameters);
    ASSERT_EQ(mx_connect(a, loopback_nic(), number_of(b), 0, 10000, &to_b), MX_SUCCESS);
    ASSERT_EQ(mx_connect(b, loopback_nic(), number_of(a), 0, 10000, &to_a), MX_SUCCESS);
  }

  static mx_request_t send(mx_endpoint_t from, mx_endpoint_addr_t to, Buffer& buffer, std::uint64_t match,
                           void* context = nullptr) {
    mx_segment_t segment{buffer.bytes.data(), static_cast<std::uint32_t>(buffer.bytes.size())};
    mx_request_t request = nullptr;
    EXPECT_EQ(mx_isend(from, &segment, 1, to, match, context, &request), MX_SUCCESS);
    return request;
  }
  static mx_request_t send_until_matched(mx_endpoint_t from, mx_endpoint_addr_t to, Buffer& buffer,
                                         std::uint64_t match) {
    mx_segment_t segment{buffer.bytes.data(), static_cast<std::uint32_t>(buffer.bytes.size())};
    mx_request_t request = nullptr;
    EXPECT_EQ(mx_issend(from, &segment, 1, to, match, nullptr, &request), MX_SUCCESS);
    return request;
  }
  static mx_request_t receive(mx_endpoint_t at, Buffer& buffer, std::uint64_t match,
                              std::uint64_t mask = MX_MATCH_MASK_NONE, void* context = nullptr) {
    mx_segment_t segment{buffer.bytes.data(), static_cast<std::uint32_t>(buffer.bytes.size())};
    mx_request_t request = nullptr;
    EXPECT_EQ(mx_irecv(at, &segment, 1, match, mask, context, &request), MX_SUCCESS);
    return request;
  }
  static mx_status_t wait(mx_endpoint_t at, mx_request_t request, std::uint32_t timeout = 20000) {
    mx_status_t status{};
    std::uint32_t result = 0;
    EXPECT_EQ(mx_wait(at, &request, timeout, &status, &result), MX_SUCCESS);
    EXPECT_EQ(result, 1u);
    if (result == 0) status.code = MX_STATUS_PENDING;
    return status;
  }
  static mx_status_t probe(mx_endpoint_t at, std::uint64_t match, std::uint64_t mask = MX_MATCH_MASK_NONE) {
    mx_status_t status{};
    std::uint32_t result = 0;
    EXPECT_EQ(mx_probe(at, 20000, match, mask, &status, &result), MX_SUCCESS);
    EXPECT_EQ(result, 1u);
    return status;
  }
  static bool is_address(mx_endpoint_addr_t one, mx_endpoint_addr_t other) {
    return one.stuff[0] == other.stuff[0] && one.stuff[1] == other.stuff[1];
  }

  mx_endpoint_t a = nullptr, b = nullptr;
  mx_endpoint_addr_t to_a{}, to_b{};
};

}  // namespace viaduct::mx::testing
