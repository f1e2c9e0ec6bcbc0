// An ELF file, as far as it tells whether and how a program can be interposed. The file is anybody's: everything is
// bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::cli {

class ElfFile {
 public:
  // ENOEXEC: not an ELF file.
  static Result<ElfFile> open(const std::string& path);

  bool is_64_bit() const { return wide_; }
  bool is_for_this_machine() const;
  // The dynamic loader it asks for; none: statically linked, or a library.
  const std::optional<std::string>& interpreter() const { return interpreter_; }
  const std::vector<std::string>& needed() const { return needed_; }
  bool needs(std::string_view library) const;  // by the start of its name
  bool imports(std::string_view function) const;
  bool has_section(std::string_view name) const;
  std::optional<std::string> section_text(std::string_view name) const;

 private:
  struct Section {
    std::string name;
    std::uint32_t type;
    std::uint64_t offset, size;
    std::uint32_t link;
  };

  std::string bytes(std::uint64_t offset, std::uint64_t size) const;
  void read_interpreter(std::uint64_t offset, std::uint16_t size, std::uint16_t count);
  void read_sections(std::uint64_t offset, std::uint16_t size, std::uint16_t count, std::uint16_t names);
  void read_needed();
  void read_imports();
  std::string linked_strings(const Section& section) const;

  Fd file_;
  bool wide_ = false;
  std::uint16_t machine_ = 0;
  std::optional<std::string> interpreter_;
  std::vector<Section> sections_;
  std::vector<std::string> needed_;
  std::vector<std::string> imports_;  // sorted
};

}  // namespace viaduct::cli
