// Tables: aligned columns, no trailing spaces. At a terminal they are fitted to its width; elsewhere, where grep and
// awk read, every row is one whole line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace viaduct::cli {

enum class Tone { plain, good, warning, bad, faint, heading };

// Where text goes and what it may look like there.
struct Screen {
  static constexpr std::size_t kUnlimited = SIZE_MAX;
  std::size_t width = kUnlimited;
  bool colours = false;

  // A terminal's own width; colours unless NO_COLOR is set or TERM is dumb. Anything else: no bound, no colours.
  static Screen standard_output();
};

std::string painted(std::string_view text, Tone tone, const Screen& screen);

// Control characters become '?': text of other processes must not steer the terminal. Line breaks stay where allowed.
std::string printable(std::string_view text, bool keep_line_breaks = false);

struct Column {
  std::string head;
  enum class Align { left, right } align = Align::left;
  int sacrifice = 0;  // where the screen is too narrow for all, columns go in this order, from 1; 0: never
};

struct Cell {
  Cell(std::string content, Tone look = Tone::plain) : text(std::move(content)), tone(look) {}  // NOLINT: implicit
  Cell(const char* content, Tone look = Tone::plain) : text(content), tone(look) {}             // NOLINT: implicit

  std::string text;  // in the last column, line breaks start a new line
  Tone tone;
};

class Table {
 public:
  // What becomes of a last column that does not fit beside the others.
  enum class Last {
    wraps,    // under itself
    beneath,  // in lines of their own beneath the row, where no sacrifice makes room for it
  };

  explicit Table(std::vector<Column> columns, Last last = Last::wraps) : columns_(std::move(columns)), last_(last) {}

  // As many cells as columns.
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  std::string text(const Screen& screen) const;

 private:
  struct Layout {
    std::vector<std::size_t> shown;  // indices of columns
    std::vector<std::size_t> widths;
    bool beneath = false;  // the last column is; it is not among those shown
  };
  std::vector<std::size_t> natural_widths() const;
  Layout layout_for(std::size_t width) const;

  std::vector<Column> columns_;
  Last last_;
  std::vector<std::vector<Cell>> rows_;
};

// Words of `text` in lines of at most `width` characters; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace viaduct::cli
