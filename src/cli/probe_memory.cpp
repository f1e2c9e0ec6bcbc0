#include <fmt/format.h>
#include <sys/sysinfo.h>

#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

const std::string kTransparent = "/sys/kernel/mm/transparent_hugepage/";

Finding memory() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return {"memory", State::no, "", "sysinfo is refused", "allow sysinfo in the sandbox"};
  const std::uint64_t unit = info.mem_unit;
  return {"memory", State::yes,
          fmt::format("{}, {} of it free; swap {}", in_bytes(info.totalram * unit), in_bytes(info.freeram * unit),
                      in_bytes(info.totalswap * unit))};
}

Finding reserved_pages(const std::string& name, std::uint64_t kib, const std::string& page, const std::string& next) {
  const std::string folder = fmt::format("/sys/kernel/mm/hugepages/hugepages-{}kB/", kib);
  const auto reserved = number_in(folder + "nr_hugepages"), free = number_in(folder + "free_hugepages");
  if (!reserved || !free)
    return {name, State::no, "", fmt::format("this processor or kernel has no pages of {}", page),
            "nothing: other page sizes are used"};
  const std::string detail = fmt::format("{} of {} reserved pages of {} free", *free, *reserved, page);
  if (*reserved == 0) return {name, State::no, detail, "none are reserved", next};
  if (*free == 0) return {name, State::partly, detail, "all are in use", next};
  return {name, State::yes, detail};
}

Finding transparent_pages() {
  const std::string name = "transparent-huge-pages";
  const std::string file = kTransparent + "enabled";
  const auto mode = chosen_word_in(file);
  if (!mode) return {name, State::no, "", "the kernel has none", "use a kernel built with CONFIG_TRANSPARENT_HUGEPAGE"};
  const std::string detail = "private memory: " + *mode;
  if (*mode != "never") return {name, State::yes, detail};
  return {name, State::no, detail, "switched off", fmt::format("as root: echo madvise > {}", file)};
}

Finding transparent_shared_pages() {
  const std::string name = "shmem-huge-pages";
  const std::string file = kTransparent + "shmem_enabled";
  const auto mode = chosen_word_in(file);
  if (!mode)
    return {name, State::no, "", "the kernel has none for shared memory",
            "use a kernel built with CONFIG_TRANSPARENT_HUGEPAGE"};
  const std::string detail = "shared memory: " + *mode;
  if (*mode != "never" && *mode != "deny") return {name, State::yes, detail};
  return {name, State::no, detail, "switched off; segments use reserved huge pages or ordinary ones",
          fmt::format("as root: echo advise > {}", file)};
}

}  // namespace

Findings probe_memory() {
  return {memory(), reserved_pages("huge-pages-2m", 2048, "2 MiB", "as root: sysctl -w vm.nr_hugepages=128 (256 MiB)"),
          reserved_pages("huge-pages-1g", 1048576, "1 GiB",
                         "boot with hugepagesz=1G hugepages=1, or as root: "
                         "echo 1 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
          transparent_pages(), transparent_shared_pages()};
}

}  // namespace viaduct::cli
