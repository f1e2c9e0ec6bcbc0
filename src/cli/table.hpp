// Tables for the terminal: aligned columns, the last one wrapped to the width, no trailing spaces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace viaduct::cli {

enum class Tone { plain, good, warning, bad, faint, heading };

// Where text goes and what it may look like there.
struct Screen {
  std::size_t width = 80;
  bool colours = false;

  // A terminal's own width; colours unless NO_COLOR is set or TERM is dumb. Anything else: 80 columns, no colours.
  static Screen standard_output();
};

std::string painted(std::string_view text, Tone tone, const Screen& screen);

// Control characters become '?': text of other processes must not steer the terminal. Line breaks stay where allowed.
std::string printable(std::string_view text, bool keep_line_breaks = false);

struct Column {
  std::string head;
  enum class Align { left, right } align = Align::left;
};

struct Cell {
  Cell(std::string content, Tone look = Tone::plain) : text(std::move(content)), tone(look) {}  // NOLINT: implicit
  Cell(const char* content, Tone look = Tone::plain) : text(content), tone(look) {}             // NOLINT: implicit

  std::string text;  // in the last column, line breaks start a new line
  Tone tone;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  std::string text(const Screen& screen) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Words of `text` in lines of at most `width` characters; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace viaduct::cli
