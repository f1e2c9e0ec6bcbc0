#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/config.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {
namespace {

constexpr const char* kPaths[] = {"processors",
                                  "caches",
                                  "numa",
                                  "kernel",
                                  "membarrier",
                                  "memfd-seals",
                                  "memory",
                                  "huge-pages-2m",
                                  "huge-pages-1g",
                                  "transparent-huge-pages",
                                  "shmem-huge-pages",
                                  "locked-memory",
                                  "open-files",
                                  "process-vm-readv",
                                  "io-uring",
                                  "userfaultfd",
                                  "packet-socket",
                                  "xdp-socket",
                                  "tap",
                                  "udp-gso",
                                  "udp-gro",
                                  "hosts-udp",
                                  "hosts-packet",
                                  "gpu-copy",
                                  "libfabric"};

TEST(Info, PrintsEveryPathAndEverySetting) {
  const Outcome outcome = run_command({"info"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* path : kPaths)
    EXPECT_NE(outcome.out.find(std::string("\n") + path + " "), std::string::npos) << path << " in\n" << outcome.out;
  for (const Setting& setting : settings())
    EXPECT_NE(outcome.out.find("\n" + std::string(setting.name) + " "), std::string::npos) << setting.name;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "colours where nobody looks";
  EXPECT_EQ(outcome.out.find(" \n"), std::string::npos) << "trailing spaces";
}

TEST(Info, JsonHasTheDocumentedKeys) {
  const Outcome outcome = run_command({"info", "--json"}, {{"VIADUCT_SPIN_US", "77"}});
  EXPECT_EQ(outcome.code, 0);
  const auto info = nlohmann::json::parse(outcome.out);
  EXPECT_TRUE(info.at("viaduct").is_string());
  const auto& machine = info.at("machine");
  for (const char* key : {"host", "kernel", "architecture"}) EXPECT_TRUE(machine.at(key).is_string()) << key;
  for (const char* key : {"memory_bytes", "cores", "numa_nodes"}) EXPECT_GT(machine.at(key).get<double>(), 0) << key;
  EXPECT_FALSE(machine.at("processors").empty());
  for (const auto& cache : machine.at("caches"))
    for (const char* key : {"level", "bytes", "processors"}) EXPECT_TRUE(cache.contains(key)) << key;

  std::set<std::string> names;
  for (const auto& path : info.at("paths")) {
    names.insert(path.at("name"));
    const std::string state = path.at("state");
    EXPECT_TRUE(state == "yes" || state == "partly" || state == "no") << state;
    EXPECT_TRUE(path.at("detail").is_string());
    // What is missing is explained; what is there needs no explanation.
    EXPECT_EQ(path.at("why").get<std::string>().empty(), state == "yes") << path;
    EXPECT_EQ(path.at("next").get<std::string>().empty(), state == "yes") << path;
  }
  EXPECT_EQ(names, std::set<std::string>(std::begin(kPaths), std::end(kPaths)));

  bool found = false;
  for (const auto& setting : info.at("settings")) {
    for (const char* key : {"name", "value", "source", "accepts", "meaning"}) EXPECT_TRUE(setting.contains(key)) << key;
    if (setting.at("name") != "VIADUCT_SPIN_US") continue;
    found = true;
    EXPECT_EQ(setting.at("value"), "77");
    EXPECT_EQ(setting.at("source"), "environment");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace viaduct::cli
