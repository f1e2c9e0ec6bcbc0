#include "cli/table.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

namespace viaduct::cli {

namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastLastColumn = 24;  // narrower than this reads worse than running over the edge
constexpr std::size_t kIndentBeneath = 4;

// Characters, not bytes: what continues a UTF-8 sequence takes no place.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string_view code_of(Tone tone) {
  switch (tone) {
    case Tone::plain:
      return "";
    case Tone::good:
      return "\x1b[32m";
    case Tone::warning:
      return "\x1b[33m";
    case Tone::bad:
      return "\x1b[31m";
    case Tone::faint:
      return "\x1b[2m";
    case Tone::heading:
      return "\x1b[1m";
  }
  return "";
}

std::string aligned(const Cell& cell, Column::Align align, std::size_t width, const Screen& screen) {
  const std::string room(width - std::min(width, columns_of(cell.text)), ' ');
  const std::string text = painted(cell.text, cell.tone, screen);
  return align == Column::Align::right ? room + text : text + room;
}

void end_line(std::string& out) {
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out += '\n';
}

}  // namespace

Screen Screen::standard_output() {
  Screen screen;
  if (::isatty(STDOUT_FILENO) == 0) return screen;
  winsize size{};
  const bool told = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  screen.width = told ? size.ws_col : 80;
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  screen.colours = !dumb && (no_color == nullptr || *no_color == 0);
  return screen;
}

std::string painted(std::string_view text, Tone tone, const Screen& screen) {
  if (!screen.colours || tone == Tone::plain || text.empty()) return std::string(text);
  return std::string(code_of(tone)).append(text).append("\x1b[0m");
}

std::string printable(std::string_view text, bool keep_line_breaks) {
  std::string result(text);
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 || byte == 0x7F) && !(c == '\n' && keep_line_breaks)) c = '?';
  }
  return result;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view paragraph = text.substr(at, end - at);
    std::string line;
    while (!paragraph.empty()) {
      const std::size_t space = std::min(paragraph.find(' '), paragraph.size());
      const std::string_view word = paragraph.substr(0, space);
      paragraph.remove_prefix(std::min(space + 1, paragraph.size()));
      if (word.empty()) continue;
      if (!line.empty() && columns_of(line) + 1 + columns_of(word) > width) lines.push_back(std::exchange(line, ""));
      if (!line.empty()) line += ' ';
      line += word;
    }
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

void Table::add(std::vector<Cell> cells) {
  assert(cells.size() == columns_.size());
  for (Cell& cell : cells) cell.text = printable(cell.text, &cell == &cells.back());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_of(columns_[i].head);
    for (const auto& row : rows_)
      for (const std::string& line : wrapped(row[i].text, SIZE_MAX)) width = std::max(width, columns_of(line));
    widths.push_back(width);
  }
  return widths;
}

// The layout with the fewest sacrifices that fits; the one with the most where none does.
Table::Layout Table::layout_for(std::size_t width) const {
  const std::vector<std::size_t> natural = natural_widths();
  const std::size_t last = columns_.size() - 1;
  int most = 0;
  for (const Column& column : columns_) most = std::max(most, column.sacrifice);
  Layout layout;
  for (const bool beneath : {false, true}) {
    if (beneath && last_ == Last::wraps) break;
    for (int given_up = 0; given_up <= most; ++given_up) {
      layout = {{}, {}, beneath};
      std::size_t needed = 0;
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const bool sacrificed = columns_[i].sacrifice != 0 && columns_[i].sacrifice <= given_up;
        if (sacrificed || (beneath && i == last)) continue;
        layout.shown.push_back(i);
        layout.widths.push_back(natural[i]);
        needed += natural[i] + (needed == 0 ? 0 : kGap);
      }
      if (needed <= width) return layout;
    }
  }
  return layout;
}

std::string Table::text(const Screen& screen) const {
  Layout layout = layout_for(screen.width);
  const std::size_t last = layout.shown.size() - 1;
  std::size_t indent = 0;
  for (std::size_t i = 0; i < last; ++i) indent += layout.widths[i] + kGap;
  const std::size_t room =
      layout.beneath ? layout.widths[last] : std::max(screen.width - std::min(screen.width, indent), kLeastLastColumn);
  layout.widths[last] = std::min(layout.widths[last], room);

  std::string out;
  const auto put = [&](const std::vector<Cell>& row) {
    const auto column = [&](std::size_t i) -> const Column& { return columns_[layout.shown[i]]; };
    for (std::size_t i = 0; i < last; ++i)
      out += aligned(row[layout.shown[i]], column(i).align, layout.widths[i], screen) + std::string(kGap, ' ');
    const Cell& final = row[layout.shown[last]];
    bool first = true;
    for (const std::string& line : wrapped(final.text, room)) {
      if (!std::exchange(first, false)) out += std::string(indent, ' ');
      out += aligned({line, final.tone}, column(last).align, layout.widths[last], screen);
      end_line(out);
    }
  };
  const auto put_beneath = [&](const Cell& cell) {
    const std::size_t width = std::max(screen.width, kIndentBeneath + kLeastLastColumn) - kIndentBeneath;
    if (cell.text.empty()) return;
    for (const std::string& line : wrapped(cell.text, width))
      out += std::string(kIndentBeneath, ' ') + painted(line, cell.tone, screen) + '\n';
  };
  std::vector<Cell> heads;
  for (const Column& column : columns_) heads.emplace_back(column.head, Tone::heading);
  put(heads);
  for (const auto& row : rows_) {
    put(row);
    if (layout.beneath) put_beneath(row.back());
  }
  return out;
}

}  // namespace viaduct::cli
