// memnet_web: a static web server in one thread, with four ways to talk.
//
//   viaduct tcp-server &
//   memnet_web --way async --port 8080 FOLDER
#include <adma.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "server.hpp"

namespace {

bool stopped = false;

int usage() {
  std::fprintf(stderr,
               "usage: memnet_web [--way kernel|plain|direct|async] [--port N] [--address A] [--server NAME] FOLDER\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using memnet_web::Way;
  const std::map<std::string, Way> ways = {
      {"kernel", Way::kernel}, {"plain", Way::plain}, {"direct", Way::direct}, {"async", Way::async}};
  memnet_web::Options options;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (!word.starts_with("--")) {
      folder = word;
      continue;
    }
    if (value == nullptr) return usage();
    ++i;
    if (word == "--way" && ways.contains(value))
      options.way = ways.at(value);
    else if (word == "--port")
      options.port = static_cast<std::uint16_t>(std::atoi(value));
    else if (word == "--address")
      options.address = value;
    else if (word == "--server")
      options.server = value;
    else
      return usage();
  }
  if (folder.empty()) return usage();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  const memnet_web::Site site(folder, adma_alloc);
  if (site.memory() == nullptr) {
    std::fprintf(stderr, "memnet_web: no memory for the files of %s\n", folder.c_str());
    return 1;
  }
  const auto ready = [](std::uint16_t port) {
    std::printf("serving at port %u\n", port);
    std::fflush(stdout);
  };
  const std::string fault = options.way == Way::kernel ? memnet_web::serve_kernel(options, site, stopped, ready)
                                                       : memnet_web::serve_memnet(options, site, stopped, ready);
  if (fault.empty()) return 0;
  std::fprintf(stderr, "memnet_web: %s\n", fault.c_str());
  return 1;
}
