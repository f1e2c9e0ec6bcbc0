#include "cli/endpoint_list.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/compact.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using mx::EndpointReading;
using mx::Number;
using mx::PartnerReading;
using Way = mx::Statistics::Way;

std::uint64_t value(const mx::NumbersRead& numbers, Number which) {
  return numbers[static_cast<std::size_t>(which)];
}

const char* over(Way way) {
  switch (way) {
    case Way::memory:
      return "memory";
    case Way::network:
      return "network";
    case Way::itself:
      return "itself";
    case Way::none:
      break;
  }
  return "none";
}

std::string both(const mx::NumbersRead& numbers, Number out, Number in) {
  return fmt::format("{}/{}", compact(static_cast<double>(value(numbers, out))),
                     compact(static_cast<double>(value(numbers, in))));
}

Json amounts(const mx::NumbersRead& numbers) {
  return {{"messages_sent", value(numbers, Number::messages_sent)},
          {"messages_received", value(numbers, Number::messages_received)},
          {"bytes_sent", value(numbers, Number::bytes_sent)},
          {"bytes_received", value(numbers, Number::bytes_received)}};
}

}  // namespace

std::string endpoints_in_table(const std::vector<EndpointReading>& endpoints, const Screen& screen) {
  constexpr auto kRight = Column::Align::right;
  constexpr auto kLeft = Column::Align::left;
  Table table({{"PROCESS"},
               {"PID", kRight},
               {"ENDPOINT"},
               {"PARTNER"},
               {"OVER", kLeft, 4},
               {"MESSAGES OUT/IN", kRight, 2},
               {"BYTES OUT/IN", kRight, 3},
               {"IN LINE", kRight, 1},
               {"POSTED", kRight, 5},
               {"UNEXPECTED", kRight},
               {"BYTES", kRight, 6}});
  for (const EndpointReading& endpoint : endpoints) {
    const std::string command = printable(endpoint.command), pid = std::to_string(endpoint.pid);
    table.add({command, pid, endpoint.name, "all", "",
               both(endpoint.numbers, Number::messages_sent, Number::messages_received),
               both(endpoint.numbers, Number::bytes_sent, Number::bytes_received), "",
               std::to_string(value(endpoint.numbers, Number::posted)),
               std::to_string(value(endpoint.numbers, Number::unexpected)),
               compact(static_cast<double>(value(endpoint.numbers, Number::unexpected_bytes)))});
    for (const PartnerReading& partner : endpoint.partners) {
      if (partner.way == Way::itself && value(partner.numbers, Number::messages_sent) == 0) continue;
      table.add({command, pid, endpoint.name, partner.name, over(partner.way),
                 both(partner.numbers, Number::messages_sent, Number::messages_received),
                 both(partner.numbers, Number::bytes_sent, Number::bytes_received),
                 std::to_string(value(partner.numbers, Number::sending)), "", "", ""});
    }
  }
  return table.empty() ? "" : table.text(screen);
}

Json endpoints_in_json(const std::vector<EndpointReading>& endpoints) {
  Json list = Json::array();
  for (const EndpointReading& endpoint : endpoints) {
    Json partners = Json::array();
    for (const PartnerReading& partner : endpoint.partners) {
      Json one = {{"partner", partner.name}, {"over", over(partner.way)}};
      one.update(amounts(partner.numbers));
      one["in_line"] = value(partner.numbers, Number::sending);
      partners.push_back(std::move(one));
    }
    Json one = {{"process", endpoint.command}, {"pid", endpoint.pid}, {"endpoint", endpoint.name}};
    one.update(amounts(endpoint.numbers));
    one["posted"] = value(endpoint.numbers, Number::posted);
    one["unexpected"] = value(endpoint.numbers, Number::unexpected);
    one["unexpected_bytes"] = value(endpoint.numbers, Number::unexpected_bytes);
    one["partners"] = std::move(partners);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace viaduct::cli
