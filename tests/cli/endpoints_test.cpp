// Message endpoints in `viaduct ls`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <viaduct/mx.hpp>

#include <nlohmann/json.hpp>

#include "cli/run_command.hpp"
#include "mx/endpoint_pair.hpp"

namespace viaduct::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ListedEndpoints : public mx::testing::Pair {};

TEST_F(ListedEndpoints, WithTheirPartnersAndQueues) {
  mx::testing::Buffer out(1000, 1), in(1000);
  for (int i = 0; i < 3; ++i) (void)complete(*a, send(*a, to_b, out, 1));
  ASSERT_TRUE(until([&] { return b->view().unexpected == 3; }));
  (void)complete(*b, receive(*b, in, 1));
  (void)receive(*b, in, 7);
  const auto name = [](const mx::Endpoint& one) { return "127.0.0.1/" + std::to_string(one.name().endpoint); };
  const Outcome listed = run_command({"ls", "--json", std::to_string(::getpid())});
  ASSERT_EQ(listed.code, 0) << listed.err;
  const json all = json::parse(listed.out)["endpoints"];
  json sender, receiver;
  for (const json& one : all) (one["endpoint"] == name(*a) ? sender : receiver) = one;
  EXPECT_EQ(sender["messages_sent"], 3);
  EXPECT_EQ(sender["bytes_sent"], 3000);
  EXPECT_EQ(receiver["endpoint"], name(*b));
  EXPECT_EQ(receiver["messages_received"], 1);
  EXPECT_EQ(receiver["unexpected"], 2);
  EXPECT_GE(receiver["unexpected_bytes"], 2000);
  EXPECT_EQ(receiver["posted"], 1);
  json partner;
  for (const json& one : sender["partners"])
    if (one["partner"] == name(*b)) partner = one;
  EXPECT_EQ(partner["over"], "memory");
  EXPECT_EQ(partner["messages_sent"], 3);
  EXPECT_EQ(partner["in_line"], 0);

  const std::string table = run_command({"ls", std::to_string(::getpid())}).out;
  for (const std::string& part : {std::string("ENDPOINT"), std::string("UNEXPECTED"), name(*a), name(*b)})
    EXPECT_THAT(table, HasSubstr(part));
}

}  // namespace
}  // namespace viaduct::cli
