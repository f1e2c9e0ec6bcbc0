// No module of a room knows itself by way of others.
//
// A module is a header with the sources that stand behind it: the one of its name, and every one that defines members
// of its classes. It knows what any of these files includes. So a header that only declares a class, while the source
// behind it includes that class's header, counts like one that includes it.
//
// Public headers are not counted: whoever makes what they promise knows all that is behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "house/program.hpp"

namespace viaduct::house {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct File {
  fs::path path;
  std::string module;  // as it is included, without its ending
  bool header;
  std::vector<std::string> includes;  // modules
  std::set<std::string> classes;      // that it has, or whose members it defines
};

// The class that a line begins to define; empty: none.
std::string class_begun_by(std::string line) {
  if (!line.starts_with("class ") && !line.starts_with("struct ")) return {};
  if (line.ends_with(";")) return {};
  line = std::regex_replace(line, std::regex(R"(\[\[.*\]\]|alignas\([^)]*\)|^(class|struct) )"), " ");
  static const std::regex name(R"((\w+)\s*(final\b.*|[:{<].*)?$)");
  std::smatch found;
  return std::regex_search(line, found, name) ? found[1].str() : std::string();
}

// The classes in the qualified name of a function that a line begins to define.
std::vector<std::string> classes_named_by(const std::string& line) {
  if (line.empty() || std::string("} #/\t").find(line[0]) != std::string::npos) return {};
  static const std::regex name(R"(((\w+::)+)~?(\w+|operator[^(]*)$)");
  const std::string before = line.substr(0, line.find('('));
  std::smatch found;
  std::vector<std::string> classes;
  if (before.size() == line.size() || !std::regex_search(before, found, name)) return {};
  std::istringstream parts(found[1].str());
  for (std::string part; std::getline(parts, part, ':');)
    if (!part.empty()) classes.push_back(part);
  return classes;
}

File read(const fs::path& path, const fs::path& root) {
  File file{path, fs::relative(path, root).replace_extension().string(), false, {}, {}};
  file.header = path.extension() == ".hpp" || path.extension() == ".h";
  static const std::regex include(R"(\s*#\s*include\s*[<"]([^>"]+)\.\w+[>"].*)");
  std::ifstream lines(path);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("include") != std::string::npos && std::regex_match(line, found, include))
      file.includes.push_back(found[1]);
    if (file.header) {
      file.classes.insert(class_begun_by(line));
    } else {
      const auto named = classes_named_by(line);
      file.classes.insert(named.begin(), named.end());
    }
  }
  file.classes.erase("");
  return file;
}

// What the modules of a room know, and by which file.
class Modules {
 public:
  Modules(const fs::path& room, const fs::path& sources) {
    std::vector<File> files;
    for (const auto& one : fs::recursive_directory_iterator(room)) {
      const auto ending = one.path().extension();
      if (ending == ".hpp" || ending == ".h" || ending == ".cpp" || ending == ".c")
        files.push_back(read(one.path(), sources));
    }
    std::map<std::string, std::set<std::string>> headers_of;  // by class
    for (const File& file : files) {
      if (!file.header) continue;
      known_[file.module];
      for (const std::string& one : file.classes) headers_of[one].insert(file.module);
    }
    for (const File& file : files) {
      std::set<std::string> owners;
      if (known_.contains(file.module)) owners.insert(file.module);
      if (!file.header)
        for (const std::string& one : file.classes)
          for (const std::string& header : headers_of[one])
            // Names may be used twice: the class is one that this file can see.
            if (headers_of[one].size() == 1 ||
                std::find(file.includes.begin(), file.includes.end(), header) != file.includes.end())
              owners.insert(header);
      for (const std::string& owner : owners)
        for (const std::string& other : file.includes)
          if (known_.contains(other) && other != owner) known_[owner].emplace(other, file.path.filename().string());
    }
  }

  std::size_t count() const { return known_.size(); }

  // One cycle a line, each with the files that make it.
  std::string cycles() {
    for (const auto& [module, known] : known_)
      if (!seen_.contains(module)) visit(module);
    return std::exchange(text_, {});
  }

 private:
  void visit(const std::string& module) {
    seen_.insert(module);
    way_.push_back(module);
    for (const auto& [other, file] : known_[module]) {
      if (const auto begin = std::find(way_.begin(), way_.end(), other); begin != way_.end()) {
        for (auto one = begin; one != way_.end(); ++one) {
          const std::string& next = one + 1 == way_.end() ? *begin : one[1];
          text_ += *one + " -(" + known_[*one][next] + ")-> ";
        }
        text_ += other + '\n';
      } else if (!seen_.contains(other)) {
        visit(other);
      }
    }
    way_.pop_back();
  }

  std::map<std::string, std::map<std::string, std::string>> known_;
  std::set<std::string> seen_;
  std::vector<std::string> way_;
  std::string text_;
};

class Cycles : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Cycles, testing::Values("base", "cli", "copy", "net", "nic", "sockets_view", "via"),
                         [](const auto& room) { return std::string(room.param); });

TEST_P(Cycles, ThereAreNone) {
  Modules modules(source_dir() / "src" / GetParam(), source_dir() / "src");
  EXPECT_GT(modules.count(), 0u);
  EXPECT_THAT(modules.cycles(), IsEmpty());
}

// ---- the check itself

class CycleCheck : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& text) { write(folder_ / name, text); }
  std::string cycles() { return Modules(folder_.path() / "src/room", folder_.path() / "src").cycles(); }
  Folder folder_;
};

TEST_F(CycleCheck, PassesWhatHasAnOrder) {
  add("src/room/low.hpp", "class Low {\n};\n");
  add("src/room/low.cpp", "#include \"room/low.hpp\"\n#include <vector>\n");
  add("src/room/high.hpp", "#include \"room/low.hpp\"\nclass High {\n};\n");
  add("src/room/high.cpp", "#include \"room/high.hpp\"\n#include \"room/low.hpp\"\n");
  EXPECT_THAT(cycles(), IsEmpty());
}

TEST_F(CycleCheck, SeesTheSourceBehindAHeader) {
  add("src/room/low.hpp", "class High;\nclass Low {\n};\n");
  add("src/room/low.cpp", "#include \"room/low.hpp\"\n\n#include \"room/high.hpp\"\n");
  add("src/room/high.hpp", "#include \"room/low.hpp\"\nclass High {\n};\n");
  EXPECT_THAT(cycles(), HasSubstr("room/high -(high.hpp)-> room/low -(low.cpp)-> room/high"));
}

TEST_F(CycleCheck, SeesASourceOfAnotherName) {
  add("src/room/low.hpp", "class High;\nclass [[gnu::visibility(\"default\")]] Low final : public Base {\n};\n");
  add("src/room/more.cpp",
      "#include \"room/high.hpp\"\n#include \"room/low.hpp\"\nstd::vector<int> Low::numbers(int most) {\n}\n");
  add("src/room/high.hpp", "#include \"room/low.hpp\"\nclass High {\n};\n");
  EXPECT_THAT(cycles(), HasSubstr("more.cpp"));
}

}  // namespace
}  // namespace viaduct::house
