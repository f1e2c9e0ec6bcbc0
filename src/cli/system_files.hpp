// Reading what the kernel says about itself in /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace viaduct::cli {

// The first line of a file, without its end; nothing where it cannot be read.
std::optional<std::string> first_line(const std::string& path);
std::optional<std::uint64_t> number_in(const std::string& path);

// "always [madvise] never": the word in brackets.
std::optional<std::string> chosen_word_in(const std::string& path);

// A field of /proc/self/status ("CapEff", "Seccomp").
std::optional<std::string> own_status(const std::string& field);

// `capability` as numbered in <linux/capability.h>, in this process's effective set.
bool have_capability(int capability);

// A seccomp filter is in force, as in most containers: it may refuse calls that the kernel would grant.
bool seccomp_filtered();

// 49152 as "48 KiB".
std::string in_bytes(std::uint64_t bytes);

// {0,1,2,5} as "0-2,5".
std::string in_ranges(const std::vector<int>& numbers);

}  // namespace viaduct::cli
