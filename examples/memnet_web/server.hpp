// Serving a site in one thread, in each of four ways to talk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "http.hpp"

namespace memnet_web {

enum class Way { kernel, plain, direct, async };

struct Options {
  Way way = Way::kernel;
  std::uint16_t port = 8080;
  std::string address = "127.0.0.1";
  std::string server;  // of MemNet; empty: the default one
};

// Until `stopped`, which is asked often. `ready` is told the port. What failed, or nothing.
std::string serve_kernel(const Options& options, const Site& site, const bool& stopped,
                         const std::function<void(std::uint16_t)>& ready);
std::string serve_memnet(const Options& options, const Site& site, const bool& stopped,
                         const std::function<void(std::uint16_t)>& ready);

}  // namespace memnet_web
