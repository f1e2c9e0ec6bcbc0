#include "sockets_view/tcp_table.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace viaduct::sockets_view {
namespace {

TcpTable parsed(const std::string& text) {
  std::istringstream lines(text);
  TcpTable table;
  read_tcp_lines(lines, table);
  return table;
}

constexpr const char* kHead =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

TEST(TcpTable, ReadsConnections) {
  const TcpTable table = parsed(std::string(kHead) +
                                "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0     "
                                "   0 777 1 0000 100 0 0 10 0\n"
                                "   1: 0100007F:18EB 0200A8C0:9C40 01 00000000:00000000 00:00000000 00000000     0     "
                                "   0 778 1 0000 100 0 0 10 0\n"
                                "   2: 00000000000000000000000001000000:0050 0000000000000000FFFF00000100007F:1F90 08 "
                                "00000000:00000000 00:00000000 "
                                "00000000     0        0 779 1 0000 20 4 30 10 -1\n");
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table.at(777).local, "127.0.0.1:6379");
  EXPECT_EQ(table.at(777).state, "LISTEN");
  EXPECT_EQ(table.at(778).peer, "192.168.0.2:40000");
  EXPECT_EQ(table.at(778).state, "ESTAB");
  EXPECT_EQ(table.at(779).local, "[::1]:80");
  EXPECT_EQ(table.at(779).peer, "[::ffff:127.0.0.1]:8080");
  EXPECT_EQ(table.at(779).state, "CLOSE-WAIT");
}

TEST(TcpTable, PassesOverWhatItDoesNotUnderstand) {
  EXPECT_TRUE(parsed("").empty());
  EXPECT_TRUE(parsed(kHead).empty());
  EXPECT_TRUE(parsed("0: 0100007F:18EB 00000000:0000 0A 0 0 0 0\n").empty());
  EXPECT_TRUE(parsed("0: 0100007F 00000000:0000 0A 0:0 0:0 0 0 0 777 1\n").empty());
  EXPECT_TRUE(parsed("0: 0100007Z:18EB 00000000:0000 0A 0:0 0:0 0 0 0 777 1\n").empty());
  EXPECT_TRUE(parsed("0: 0100007F:18EB 00000000:0000 FF 0:0 0:0 0 0 0 777 1\n").empty());
  EXPECT_TRUE(parsed("0: 0100007F:18EB 00000000:0000 0A 0:0 0:0 0 0 0 none 1\n").empty());
}

}  // namespace
}  // namespace viaduct::sockets_view
