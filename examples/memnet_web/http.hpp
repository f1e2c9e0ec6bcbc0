// HTTP/1.0 and 1.1 as far as a static web server needs it: requests from bytes, answers to bytes. Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace memnet_web {

// A file, read once; its bytes stay where they are.
struct File {
  const char* bytes = nullptr;
  std::size_t length = 0;
  std::string type;
  std::string modified;
};

// The files below a folder. The bytes are in memory that `allocate` gives, so that they can be registered.
class Site {
 public:
  using Allocate = void* (*)(std::size_t);
  Site(const std::string& folder, Allocate allocate);
  const File* find(const std::string& path) const;

  char* memory() const { return memory_; }
  std::size_t length() const { return length_; }

 private:
  std::map<std::string, File> files_;
  char* memory_ = nullptr;
  std::size_t length_ = 0;
};

struct Answer {
  std::string head;            // with the body of an error
  const char* body = nullptr;  // of a file
  std::size_t length = 0;
  bool close = false;  // the connection ends with it
};

enum class Parsed { answer, more, nonsense };

// The first request of `bytes`, if it is whole: `used` bytes of it, and what to say to it. Nonsense has an answer too.
Parsed answer_first(std::string_view bytes, const Site& site, std::size_t& used, Answer& answer);

constexpr std::size_t kLongestHead = 16 << 10;

}  // namespace memnet_web
