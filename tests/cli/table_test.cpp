#include "cli/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace viaduct::cli {
namespace {

using testing::ElementsAre;

TEST(Wrapped, BreaksBetweenWordsAtTheWidth) {
  EXPECT_THAT(wrapped("one two three four", 9), ElementsAre("one two", "three", "four"));
  EXPECT_THAT(wrapped("exactly fits", 12), ElementsAre("exactly fits"));
}

TEST(Wrapped, GivesALongWordItsOwnLine) {
  EXPECT_THAT(wrapped("a /very/long/path b", 6), ElementsAre("a", "/very/long/path", "b"));
}

TEST(Wrapped, KeepsLineBreaksAndDropsSurplusSpaces) {
  EXPECT_THAT(wrapped("one\ntwo   three ", 40), ElementsAre("one", "two three"));
  EXPECT_THAT(wrapped("", 40), ElementsAre(""));
}

TEST(Table, AlignsColumns) {
  Table table({{"NAME"}, {"COUNT", Column::Align::right}, {"NOTE"}});
  table.add({"a", "5", "first"});
  table.add({"longer", "12345678", "second"});
  EXPECT_EQ(table.text({80, false}),
            "NAME       COUNT  NOTE\n"
            "a              5  first\n"
            "longer  12345678  second\n");
}

TEST(Table, WrapsTheLastColumnUnderItself) {
  Table table({{"NAME"}, {"DETAIL"}});
  table.add({"path", "words that do not fit into what is left of it"});
  EXPECT_EQ(table.text({34, false}),
            "NAME  DETAIL\n"
            "path  words that do not fit into\n"
            "      what is left of it\n");
}

TEST(Table, KeepsEveryRowOnOneLineWhereNothingBoundsIt) {
  Table table({{"NAME"}, {"DETAIL"}});
  const std::string words = "many words that would not fit into any terminal that anybody has in front of him today";
  table.add({std::string(70, 'x'), words});
  const std::string text = table.text({});
  EXPECT_NE(text.find(std::string(70, 'x') + "  " + words + "\n"), std::string::npos) << text;
}

Table with_sacrifices() {
  Table table({{"NAME"}, {"FIRST", Column::Align::left, 1}, {"SECOND", Column::Align::right, 2}, {"WHY"}},
              Table::Last::beneath);
  table.add({"one", "1111", "2222", "a few words"});
  table.add({"two", "1", "2", ""});
  return table;
}

TEST(Table, SacrificesColumnsUntilTheRestFits) {
  const Table table = with_sacrifices();
  EXPECT_EQ(table.text({32, false}),
            "NAME  FIRST  SECOND  WHY\n"
            "one   1111     2222  a few words\n"
            "two   1           2\n");
  EXPECT_EQ(table.text({31, false}),
            "NAME  SECOND  WHY\n"
            "one     2222  a few words\n"
            "two        2\n");
  EXPECT_EQ(table.text({20, false}),
            "NAME  WHY\n"
            "one   a few words\n"
            "two\n");
}

TEST(Table, PutsItsLastColumnBeneathTheRowWhereNoSacrificeHelps) {
  Table table = with_sacrifices();
  table.add({"three", "1", "2", "more words than fit beside a name of any row"});
  EXPECT_EQ(table.text({34, false}),
            "NAME   FIRST  SECOND\n"
            "one    1111     2222\n"
            "    a few words\n"
            "two    1           2\n"
            "three  1           2\n"
            "    more words than fit beside a\n"
            "    name of any row\n");
  EXPECT_EQ(table.text({15, false}).substr(0, 15), "NAME   SECOND\no");
}

TEST(Table, LeavesNoTrailingSpaces) {
  Table table({{"A"}, {"B"}, {"C"}});
  table.add({"long enough", "", ""});
  table.add({"", "middle", "a\n\nb"});
  for (const bool colours : {false, true}) {
    const std::string text = table.text({80, colours});
    EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
  }
}

TEST(Table, RunsOverTheEdgeBeforeItsLastColumnIsUnreadable) {
  Table table({{"NAME"}, {"DETAIL"}});
  table.add({std::string(70, 'x'), "some words to read"});
  EXPECT_EQ(table.text({40, false}),
            "NAME" + std::string(68, ' ') + "DETAIL\n" + std::string(70, 'x') + "  some words to read\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"A"}, {"B"}});
  table.add({"\xC3\xA4\xC3\xB6", "x"});
  table.add({"ao", "y"});
  EXPECT_EQ(table.text({80, false}), "A   B\n\xC3\xA4\xC3\xB6  x\nao  y\n");
}

TEST(Table, PaintsOnlyWhereColoursAreWanted) {
  Table table({{"A"}, {"B"}});
  table.add({{"yes", Tone::good}, "x"});
  EXPECT_EQ(table.text({80, false}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.text({80, true}).find("\x1b[32myes\x1b[0m  x\n"), std::string::npos);
}

TEST(Table, DoesNotPassControlCharactersOn) {
  Table table({{"A"}, {"B"}});
  table.add({"evil\x1b[2J\n", "tab\there"});
  const std::string text = table.text({80, false});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("evil?[2J?  tab?here\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace viaduct::cli
