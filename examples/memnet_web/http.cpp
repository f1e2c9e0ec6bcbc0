#include "http.hpp"

#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace memnet_web {

namespace {

std::string type_of(const std::string& path) {
  const auto dot = path.rfind('.');
  const std::string ending = dot == std::string::npos ? "" : path.substr(dot + 1);
  if (ending == "html" || ending == "htm") return "text/html; charset=utf-8";
  if (ending == "txt" || ending == "md") return "text/plain; charset=utf-8";
  if (ending == "css") return "text/css";
  if (ending == "js") return "text/javascript";
  if (ending == "json") return "application/json";
  if (ending == "png") return "image/png";
  if (ending == "jpg" || ending == "jpeg") return "image/jpeg";
  if (ending == "svg") return "image/svg+xml";
  return "application/octet-stream";
}

std::string date_of(time_t when) {
  char text[64];
  tm parts{};
  ::gmtime_r(&when, &parts);
  ::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<std::string> decode(std::string_view path) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      text += path[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= path.size()) return std::nullopt;
    const auto [end, fault] = std::from_chars(path.data() + i + 1, path.data() + i + 3, value, 16);
    if (fault != std::errc{} || end != path.data() + i + 3 || value == 0) return std::nullopt;
    text += static_cast<char>(value);
    i += 2;
  }
  return text;
}

bool number(std::string_view text, std::size_t& value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc{} && end == text.data() + text.size() && !text.empty();
}

enum class Range { none, one, unsatisfiable };

// bytes=A-B, bytes=A-, bytes=-N. Several ranges, and what is no range, count as none.
Range range_of(std::string_view text, std::size_t length, std::size_t& from, std::size_t& to) {
  if (!text.starts_with("bytes=") || text.find(',') != text.npos) return Range::none;
  text.remove_prefix(6);
  const auto dash = text.find('-');
  if (dash == text.npos) return Range::none;
  const std::string_view first = trim(text.substr(0, dash)), last = trim(text.substr(dash + 1));
  if (first.empty()) {
    std::size_t count;
    if (!number(last, count)) return Range::none;
    if (count == 0 || length == 0) return Range::unsatisfiable;
    from = count < length ? length - count : 0;
    to = length - 1;
    return Range::one;
  }
  if (!number(first, from)) return Range::none;
  to = length == 0 ? 0 : length - 1;
  if (!last.empty()) {
    std::size_t end;
    if (!number(last, end) || end < from) return Range::none;
    if (end < to) to = end;
  }
  return from >= length ? Range::unsatisfiable : Range::one;
}

struct Request {
  std::string_view method, target, range;
  bool http11 = false;
  bool keep = false;
  bool host = false;
  std::size_t body = 0;
  bool chunked = false;
};

bool parse(std::string_view head, Request& request) {
  auto end = head.find("\r\n");
  const std::string_view line = head.substr(0, end);
  const auto space = line.find(' '), last = line.rfind(' ');
  if (space == line.npos || last == space) return false;
  request.method = line.substr(0, space);
  request.target = line.substr(space + 1, last - space - 1);
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  request.http11 = request.keep = version == "HTTP/1.1";
  while (end != head.npos) {
    head.remove_prefix(end + 2);
    end = head.find("\r\n");
    const std::string_view field = head.substr(0, end);
    if (field.empty()) continue;
    const auto colon = field.find(':');
    if (colon == field.npos || colon == 0 || field[colon - 1] == ' ') return false;
    const std::string_view name = field.substr(0, colon), value = trim(field.substr(colon + 1));
    if (same(name, "connection")) {
      if (same(value, "close")) request.keep = false;
      if (same(value, "keep-alive")) request.keep = true;
    } else if (same(name, "range")) {
      request.range = value;
    } else if (same(name, "host")) {
      request.host = true;
    } else if (same(name, "content-length")) {
      if (!number(value, request.body)) return false;
    } else if (same(name, "transfer-encoding")) {
      request.chunked = true;
    }
  }
  return true;
}

Answer short_answer(const char* status, bool close, bool with_body, const std::string& more = "") {
  const std::string body = std::string(status) + "\n";
  Answer answer;
  answer.close = close;
  answer.head = std::string("HTTP/1.1 ") + status + "\r\nServer: memnet_web\r\nDate: " + date_of(::time(nullptr)) +
                "\r\nContent-Type: text/plain\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
                (close ? "\r\nConnection: close\r\n\r\n" : "\r\nConnection: keep-alive\r\n\r\n") +
                (with_body ? body : "");
  return answer;
}

Answer answer_to(const Request& request, const Site& site) {
  const bool head_only = request.method == "HEAD";
  const bool close = !request.keep;
  if (request.http11 && !request.host) return short_answer("400 Bad Request", true, true);
  if (request.chunked) return short_answer("501 Not Implemented", true, true);
  if (request.method != "GET" && !head_only)
    return short_answer("405 Method Not Allowed", close, true, "Allow: GET, HEAD\r\n");
  const auto path = decode(request.target.substr(0, request.target.find('?')));
  if (!path || path->empty() || path->front() != '/') return short_answer("400 Bad Request", close, !head_only);
  const File* const file = site.find(path->back() == '/' ? *path + "index.html" : *path);
  if (file == nullptr) return short_answer("404 Not Found", close, !head_only);
  std::size_t from = 0, to = 0;
  const Range range = range_of(request.range, file->length, from, to);
  if (range == Range::unsatisfiable)
    return short_answer("416 Range Not Satisfiable", close, !head_only,
                        "Content-Range: bytes */" + std::to_string(file->length) + "\r\n");
  Answer answer;
  answer.close = close;
  answer.body = file->bytes + from;
  answer.length = range == Range::one ? to - from + 1 : file->length;
  static time_t second = 0;
  static std::string date;
  if (const time_t now = ::time(nullptr); now != second) second = now, date = date_of(now);
  answer.head.reserve(320);
  answer.head += range == Range::one ? "HTTP/1.1 206 Partial Content\r\n" : "HTTP/1.1 200 OK\r\n";
  answer.head += "Server: memnet_web\r\nDate: ";
  answer.head += date;
  answer.head += "\r\nLast-Modified: ";
  answer.head += file->modified;
  answer.head += "\r\nAccept-Ranges: bytes\r\nContent-Type: ";
  answer.head += file->type;
  if (range == Range::one)
    answer.head += "\r\nContent-Range: bytes " + std::to_string(from) + '-' + std::to_string(to) + '/' +
                   std::to_string(file->length);
  answer.head += "\r\nContent-Length: ";
  answer.head += std::to_string(answer.length);
  answer.head += close ? "\r\nConnection: close\r\n\r\n" : "\r\nConnection: keep-alive\r\n\r\n";
  if (head_only) answer.length = 0;
  return answer;
}

}  // namespace

Site::Site(const std::string& folder, Allocate allocate) {
  namespace fs = std::filesystem;
  constexpr std::size_t kPage = 4096;
  std::map<std::string, std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    paths["/" + entry.path().lexically_relative(folder).string()] = entry.path().string();
    length_ += (entry.file_size() + kPage - 1) / kPage * kPage;
  }
  length_ = length_ == 0 ? kPage : length_;
  memory_ = static_cast<char*>(allocate(length_));
  if (memory_ == nullptr) return;
  std::size_t at = 0;
  for (const auto& [name, path] : paths) {
    struct stat info {};
    std::ifstream file(path, std::ios::binary);
    if (::stat(path.c_str(), &info) != 0 || !file) continue;
    const auto size = static_cast<std::size_t>(info.st_size);
    if (size > length_ - at) continue;  // it has grown meanwhile
    file.read(memory_ + at, info.st_size);
    files_[name] = {memory_ + at, static_cast<std::size_t>(file.gcount()), type_of(path), date_of(info.st_mtime)};
    at += (size + kPage - 1) / kPage * kPage;
  }
}

// Only what was there when it began, by its own name: nothing leads out of the folder.
const File* Site::find(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second;
}

Parsed answer_first(std::string_view bytes, const Site& site, std::size_t& used, Answer& answer) {
  std::size_t skipped = 0;  // empty lines before a request
  while (bytes.substr(skipped).starts_with("\r\n")) skipped += 2;
  const auto end = bytes.find("\r\n\r\n", skipped);
  if (end == bytes.npos) {
    if (bytes.size() <= kLongestHead) return Parsed::more;
    answer = short_answer("431 Request Header Fields Too Large", true, true);
    return Parsed::nonsense;
  }
  Request request;
  if (end > kLongestHead || !parse(bytes.substr(skipped, end - skipped), request)) {
    answer = short_answer("400 Bad Request", true, true);
    return Parsed::nonsense;
  }
  if (request.body > (1 << 20)) {
    answer = short_answer("413 Content Too Large", true, true);
    return Parsed::nonsense;
  }
  if (bytes.size() - (end + 4) < request.body) return Parsed::more;
  used = end + 4 + request.body;
  answer = answer_to(request, site);
  return Parsed::answer;
}

}  // namespace memnet_web
