#include "cli/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace viaduct::cli {

namespace {

constexpr std::uint64_t kLargestPart = std::uint64_t{64} << 20;

#if defined(__x86_64__)
constexpr std::uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kThisMachine = EM_AARCH64;
#else
constexpr std::uint16_t kThisMachine = EM_NONE;
#endif

template <class T>
T structure(const std::string& bytes, std::size_t at) {
  T value{};
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string text_at(const std::string& strings, std::uint64_t at) {
  if (at >= strings.size()) return {};
  return {strings.data() + at, ::strnlen(strings.data() + at, strings.size() - at)};
}

}  // namespace

Result<ElfFile> ElfFile::open(const std::string& path) {
  ElfFile elf;
  elf.file_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!elf.file_) return Error::from_errno(path);
  const std::string start = elf.bytes(0, sizeof(Elf64_Ehdr));
  const auto header = structure<Elf64_Ehdr>(start, 0);
  if (start.size() < sizeof(Elf32_Ehdr) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return Error(ENOEXEC, fmt::format("{} is not a program in the ELF format", path));
  elf.wide_ = header.e_ident[EI_CLASS] == ELFCLASS64;
  elf.machine_ = header.e_machine;  // at the same place in both classes
  if (!elf.wide_) return elf;
  elf.read_interpreter(header.e_phoff, header.e_phentsize, header.e_phnum);
  elf.read_sections(header.e_shoff, header.e_shentsize, header.e_shnum, header.e_shstrndx);
  elf.read_needed();
  elf.read_imports();
  return elf;
}

std::string ElfFile::bytes(std::uint64_t offset, std::uint64_t size) const {
  std::string part(static_cast<std::size_t>(std::min(size, kLargestPart)), '\0');
  std::size_t filled = 0;
  while (filled < part.size()) {
    const ssize_t got =
        ::pread(file_.get(), part.data() + filled, part.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  part.resize(filled);
  return part;
}

void ElfFile::read_interpreter(std::uint64_t offset, std::uint16_t size, std::uint16_t count) {
  const std::string headers = bytes(offset, std::uint64_t{size} * count);
  for (std::size_t i = 0; size >= sizeof(Elf64_Phdr) && i < count; ++i) {
    const auto segment = structure<Elf64_Phdr>(headers, i * size);
    if (segment.p_type != PT_INTERP) continue;
    interpreter_ = text_at(bytes(segment.p_offset, std::min<std::uint64_t>(segment.p_filesz, 4096)), 0);
    return;
  }
}

void ElfFile::read_sections(std::uint64_t offset, std::uint16_t size, std::uint16_t count, std::uint16_t names) {
  if (size < sizeof(Elf64_Shdr)) return;
  const std::string headers = bytes(offset, std::uint64_t{size} * count);
  const auto index = structure<Elf64_Shdr>(headers, std::size_t{names} * size);
  const std::string strings = bytes(index.sh_offset, index.sh_size);
  for (std::size_t i = 0; i < count && (i + 1) * size <= headers.size(); ++i) {
    const auto section = structure<Elf64_Shdr>(headers, i * size);
    sections_.push_back(
        {text_at(strings, section.sh_name), section.sh_type, section.sh_offset, section.sh_size, section.sh_link});
  }
}

std::string ElfFile::linked_strings(const Section& section) const {
  if (section.link >= sections_.size()) return {};
  return bytes(sections_[section.link].offset, sections_[section.link].size);
}

void ElfFile::read_needed() {
  for (const Section& section : sections_) {
    if (section.type != SHT_DYNAMIC) continue;
    const std::string entries = bytes(section.offset, section.size), strings = linked_strings(section);
    for (std::size_t at = 0; at + sizeof(Elf64_Dyn) <= entries.size(); at += sizeof(Elf64_Dyn)) {
      const auto entry = structure<Elf64_Dyn>(entries, at);
      if (entry.d_tag == DT_NEEDED) needed_.push_back(text_at(strings, entry.d_un.d_val));
    }
  }
}

void ElfFile::read_imports() {
  for (const Section& section : sections_) {
    if (section.type != SHT_DYNSYM) continue;
    const std::string symbols = bytes(section.offset, section.size), strings = linked_strings(section);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
      const auto symbol = structure<Elf64_Sym>(symbols, at);
      if (symbol.st_shndx == SHN_UNDEF) imports_.push_back(text_at(strings, symbol.st_name));
    }
  }
  std::sort(imports_.begin(), imports_.end());
}

bool ElfFile::is_for_this_machine() const {
  return machine_ == kThisMachine;
}

bool ElfFile::needs(std::string_view library) const {
  return std::any_of(needed_.begin(), needed_.end(),
                     [&](const std::string& name) { return name.substr(name.rfind('/') + 1).starts_with(library); });
}

bool ElfFile::imports(std::string_view function) const {
  return std::binary_search(imports_.begin(), imports_.end(), function);
}

bool ElfFile::has_section(std::string_view name) const {
  return std::any_of(sections_.begin(), sections_.end(), [&](const Section& section) { return section.name == name; });
}

std::optional<std::string> ElfFile::section_text(std::string_view name) const {
  for (const Section& section : sections_)
    if (section.name == name) return text_at(bytes(section.offset, std::min<std::uint64_t>(section.size, 4096)), 0);
  return std::nullopt;
}

}  // namespace viaduct::cli
