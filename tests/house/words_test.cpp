// What is written down is there: manual pages, links between documents, pages that the code names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "house/program.hpp"

namespace viaduct::house {
namespace {

using testing::HasSubstr;

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

// Every match of the first group, in every file.
struct Mention {
  std::string what;
  fs::path where;
};
std::vector<Mention> mentions(const std::vector<fs::path>& files, const std::regex& pattern) {
  std::vector<Mention> found;
  for (const fs::path& file : files) {
    const std::string text = text_of(file);
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
      found.push_back({(*match)[1].str(), file});
  }
  return found;
}

std::vector<fs::path> sources() {
  std::vector<fs::path> files = files_below(source_dir() / "src");
  for (const fs::path& header : files_below(source_dir() / "include")) files.push_back(header);
  return files;
}

std::vector<fs::path> documents() {
  std::vector<fs::path> files = files_below(source_dir() / "docs");
  files.push_back(source_dir() / "README.md");
  files.push_back(source_dir() / "CONTRIBUTING.md");
  return files;
}

std::set<std::string> subcommands() {
  std::istringstream help(run({VIADUCT_COMMAND, "--help"}).output);
  std::set<std::string> names;
  bool among_them = false;
  for (std::string line; std::getline(help, line);) {
    if (line.starts_with("Subcommands:"))
      among_them = true;
    else if (line.empty())
      among_them = false;
    else if (among_them && line.starts_with("  ") && line[2] != ' ')
      names.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(Words, TheManualPageDescribesEveryCommand) {
  const auto names = subcommands();
  ASSERT_TRUE(names.contains("demo") && names.contains("bench"));
  const std::string page = text_of(source_dir() / "man/viaduct.1");
  const std::string document = text_of(source_dir() / "docs/command.md");
  for (const std::string& name : names) {
    EXPECT_THAT(page, HasSubstr("\n.SS " + name + "\n"));
    EXPECT_THAT(document, HasSubstr("`" + name + "`"));
  }
}

TEST(Words, TheManualPageDescribesEveryFunction) {
  const std::string page = text_of(source_dir() / "man/adma.3");
  const auto functions =
      mentions({source_dir() / "include/viaduct/adma.h"}, std::regex("VIADUCT_API [^(]*?(adma_[a-z_]+)\\("));
  ASSERT_GE(functions.size(), 26u);
  for (const Mention& function : functions) EXPECT_THAT(page, HasSubstr(function.what + "("));
  const auto constants = mentions({source_dir() / "include/viaduct/adma.h"}, std::regex("\\b(ADMA_[A-Z]+) ="));
  for (const Mention& constant : constants) EXPECT_THAT(page, HasSubstr(constant.what));
}

TEST(Words, TheManualPageDescribesEveryFunctionOfVipl) {
  const std::string page = text_of(source_dir() / "man/vipl.3");
  const auto functions =
      mentions({source_dir() / "include/viaduct/vipl.h"}, std::regex("VIADUCT_API VIP_RETURN (Vip[A-Za-z]+)\\("));
  ASSERT_EQ(functions.size(), 41u);
  for (const Mention& function : functions) EXPECT_THAT(page, HasSubstr("VIP_RETURN " + function.what + "("));
}

TEST(Words, TheManualPageDescribesEveryFunctionOfMx) {
  const std::string page = text_of(source_dir() / "man/mx.3");
  const auto functions =
      mentions({source_dir() / "include/viaduct/myriexpress.h", source_dir() / "include/viaduct/mx_extensions.h"},
               std::regex("VIADUCT_API [^(;]*?\\b(mx_[a-z0-9_]+)\\("));
  ASSERT_EQ(functions.size(), 45u);
  for (const Mention& function : functions) EXPECT_THAT(page, HasSubstr(function.what + "("));
}

TEST(Words, TheManualPageDescribesEveryFunctionOfMemNet) {
  const std::string page = text_of(source_dir() / "man/memnet.3");
  const auto functions =
      mentions({source_dir() / "include/memnet.h"}, std::regex("VIADUCT_API [^(]*?(memnet_[a-z0-9_]+)\\("));
  ASSERT_GE(functions.size(), 40u);
  for (const Mention& function : functions) EXPECT_THAT(page, HasSubstr(function.what + "("));
}

TEST(Words, NothingInTheCodeIsLeftForLater) {
  for (const Mention& word : mentions(sources(), std::regex("\\b(TODO|FIXME)\\b")))
    ADD_FAILURE() << word.where << ": " << word.what;
}

TEST(Words, LinksBetweenDocumentsLeadSomewhere) {
  for (const Mention& link : mentions(documents(), std::regex("\\]\\(([^)#:]+)(#[^)]*)?\\)")))
    EXPECT_TRUE(fs::exists(link.where.parent_path() / link.what)) << link.where << ": " << link.what;
}

TEST(Words, PagesThatTheCodeNamesExist) {
  for (const Mention& page : mentions(sources(), std::regex("\\b(docs/[A-Za-z0-9_/-]+\\.md)\\b")))
    EXPECT_TRUE(fs::exists(source_dir() / page.what)) << page.where << ": " << page.what;
}

TEST(Words, TheIndexListsEveryDocument) {
  const fs::path docs = source_dir() / "docs";
  const std::string index = text_of(docs / "README.md");
  for (const fs::path& document : files_below(docs)) {
    if (document == docs / "README.md" || document.extension() != ".md") continue;
    EXPECT_THAT(index, HasSubstr("(" + document.lexically_relative(docs).string() + ")"));
  }
}

// An installed page or a document must not depend on who wrote it where.
TEST(Words, DocumentsNameNoFolderOfADeveloper) {
  for (const Mention& path : mentions(documents(), std::regex("(/(?:home|root|work)/[a-z]+)")))
    ADD_FAILURE() << path.where << ": " << path.what;
}

}  // namespace
}  // namespace viaduct::house
