// The check of what a room includes really fails, and says which file did it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "house/program.hpp"

namespace viaduct::house {
namespace {

using testing::HasSubstr;

constexpr const char* kDoors = "viaduct/adma.h=copy;viaduct/copy.hpp=copy;bench/bench.hpp=bench";

class RoomCheck : public testing::Test {
 protected:
  // Checks a file of the room `copy`, which knows base only.
  Outcome check(const std::string& text, const std::string& knows = "base") {
    write(file(), text);
    return run({VIADUCT_CMAKE, "-DROOM=copy", "-DKNOWS=" + knows, std::string("-DDOORS=") + kDoors,
                "-DFILES=" + file().string(), "-DSTAMP=" + stamp().string(), "-P",
                (source_dir() / "cmake/CheckRoom.cmake").string()});
  }

  void expect_refused(const std::string& text, const std::string& why) {
    const Outcome checked = check(text);
    EXPECT_NE(checked.code, 0) << text;
    EXPECT_THAT(checked.output, HasSubstr("crafted.cpp"));
    EXPECT_THAT(checked.output, HasSubstr(why));
    EXPECT_FALSE(fs::exists(stamp())) << "the build would go on";
  }

  fs::path file() const { return folder_ / "crafted.cpp"; }
  fs::path stamp() const { return folder_ / "checked"; }
  Folder folder_;
};

TEST_F(RoomCheck, PassesOwnFilesBaseAndKnownDoors) {
  const Outcome checked = check(
      "#include <viaduct/adma.h>\n#include <fmt/format.h>\n#include <vector>\n"
      "#include \"base/segment.hpp\"\n#include \"copy/engine.hpp\"\n#include \"bench/bench.hpp\"\n",
      "base;bench");
  EXPECT_EQ(checked.code, 0) << checked.output;
  EXPECT_TRUE(fs::exists(stamp()));
}

TEST_F(RoomCheck, RefusesTheInsideOfANeighbour) {
  expect_refused("#include \"bench/suite.hpp\"\n", "inside of bench");
}

TEST_F(RoomCheck, RefusesTheInsideOfARoomItKnows) {
  const Outcome checked = check("#include \"bench/suite.hpp\"\n", "base;bench");
  EXPECT_NE(checked.code, 0);
  EXPECT_THAT(checked.output, HasSubstr("crafted.cpp"));
}

TEST_F(RoomCheck, RefusesTheDoorOfARoomItDoesNotKnow) {
  expect_refused("#include \"bench/bench.hpp\"\n", "does not know bench");
}

TEST_F(RoomCheck, RefusesClimbing) {
  expect_refused("#include \"../base/segment.hpp\"\n", "..");
  expect_refused("#include \"copy/../cli/command.hpp\"\n", "..");
}

TEST_F(RoomCheck, RefusesBaseWhereItIsNotNamed) {
  const Outcome checked = check("#include \"base/fd.hpp\"\n", "");
  EXPECT_NE(checked.code, 0);
  EXPECT_THAT(checked.output, HasSubstr("crafted.cpp"));
}

TEST_F(RoomCheck, SeesThroughBlanksAndBrackets) {
  expect_refused("  #  include   <cli/command.hpp>\n", "inside of cli");
}

TEST_F(RoomCheck, AFolderOfTheSystemMayHaveTheNameOfARoom) {
  ASSERT_TRUE(fs::exists(source_dir() / "src/net"));
  const Outcome checked = check("#include <net/if.h>\n");
  EXPECT_EQ(checked.code, 0) << checked.output;
}

TEST_F(RoomCheck, NamesEveryFault) {
  const Outcome checked = check("#include \"cli/command.hpp\"\n#include \"bench/bench.hpp\"\n");
  EXPECT_NE(checked.code, 0);
  EXPECT_THAT(checked.output, HasSubstr("cli/command.hpp"));
  EXPECT_THAT(checked.output, HasSubstr("bench/bench.hpp"));
}

// A room declared early must not include the door of one declared later.
TEST_F(RoomCheck, EveryRoomIsToldOfEveryDoor) {
  std::ifstream rules(build_dir() / "build.ninja");
  if (!rules) GTEST_SKIP() << "this build was not made by Ninja";
  int checks = 0;
  for (std::string line; std::getline(rules, line);) {
    if (line.find("CheckRoom.cmake") == std::string::npos || line.find("-DROOM=") == std::string::npos) continue;
    ++checks;
    EXPECT_THAT(line, HasSubstr("viaduct/copy.hpp=copy"));
    EXPECT_THAT(line, HasSubstr("bench/bench.hpp=bench"));
  }
  EXPECT_GE(checks, 4);
}

// The build checks every folder of src: one that nobody declared would be free of rules.
TEST_F(RoomCheck, EveryFolderIsARoomOrTheLibrary) {
  const std::string declarations = text_of(source_dir() / "CMakeLists.txt");
  for (const auto& folder : fs::directory_iterator(source_dir() / "src")) {
    const std::string name = folder.path().filename().string();
    if (name == "library") continue;
    EXPECT_THAT(declarations, HasSubstr("viaduct_room(" + name + " "));
  }
}

}  // namespace
}  // namespace viaduct::house
