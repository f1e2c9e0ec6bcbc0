// From the client to the network. What the kernel takes at once is never copied here; what it does not take waits in
// its turn, and no other socket waits with it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "memnet/server/line.hpp"
#include "memnet/server/worker.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::size_t kPiece = 128 << 10;      // of memory that is fetched, at once
constexpr std::size_t kMostInOneGo = 1 << 20;  // of one socket, before others have their turn
constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;

}  // namespace

// ---- bytes in the message

void Line::send(ServedSocket& socket, std::span<const std::byte> bytes, bool more) {
  if (bytes.size() > kSendWindow - socket.bytes_queued) return break_off("send: more than the window");
  if (socket.sends.empty() && (socket.writable || !socket.connecting)) {
    const ssize_t sent = ::send(socket.fd.get(), bytes.data(), bytes.size(), kSendFlags | (more ? MSG_MORE : 0));
    if (sent < 0 && errno != EAGAIN) {
      credit(socket, bytes.size());
      return fail(socket, errno);
    }
    const std::size_t taken = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    worker_->counts().bytes_out.add(taken);
    credit(socket, taken);
    if (taken == bytes.size()) return;
    socket.writable = false;
    bytes = bytes.subspan(taken);
  }
  SendOperation& waiting = socket.sends.emplace_back();
  waiting.more = more;
  waiting.bytes.assign(bytes.begin(), bytes.end());
  socket.bytes_queued += static_cast<std::uint32_t>(bytes.size());
}

// So many bytes of the window are free again. Told in steps: whoever waits for it waits for less.
void Line::credit(ServedSocket& socket, std::size_t bytes) {
  if (socket.closing) return;
  socket.uncredited += static_cast<std::uint32_t>(bytes);
  if (socket.uncredited < kCreditStep) return;
  tell_words(Tell::credit, socket.number, CountWords{std::exchange(socket.uncredited, 0)});
}

// ---- registered memory

void Line::send_memory(ServedSocket& socket, const JobWords& words) {
  if (words.length > kMostTransfer || socket.send_jobs >= kMostJobs) return break_off("send: too much under way");
  SendOperation made;
  made.kind = SendOperation::Kind::memory;
  made.is_job = true;
  made.more = (words.flags & MSG_MORE) != 0;
  made.job = words.job;
  made.left = words.length;
  made.key = words.key;
  made.address = words.address;
  const via::RemoteBytes there{words.key, words.address, words.length};
  if (shared_ != nullptr && words.length > 0) made.mapped = shared_->map(there, via::kRdmaRead, made.held);
  ++socket.send_jobs;
  socket.sends.push_back(std::move(made));
  if (socket.sends.size() == 1 && !socket.connecting) pump_sends(*worker_, socket);
}

// The client's descriptor is opened anew, with this process's own rights, and compared.
void Line::send_file(ServedSocket& socket, const FileWords& words) {
  if (words.length > kMostTransfer || socket.send_jobs >= kMostJobs) return break_off("send: too much under way");
  if (shared_ == nullptr) return done(words.job, -EXDEV);
  Fd file(::open(fmt::format("/proc/{}/fd/{}", shared_->pid(), words.file).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return done(words.job, -errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || info.st_ino != words.inode || info.st_dev != words.device ||
      !S_ISREG(info.st_mode))
    return done(words.job, -EINVAL);
  SendOperation made;
  made.kind = SendOperation::Kind::file;
  made.is_job = true;
  made.more = (words.flags & MSG_MORE) != 0;
  made.job = words.job;
  made.left = words.length;
  made.offset = words.offset;
  made.file = std::move(file);
  ++socket.send_jobs;
  socket.sends.push_back(std::move(made));
  if (socket.sends.size() == 1 && !socket.connecting) pump_sends(*worker_, socket);
}

// ---- what waits

Line::Pumped Line::pump_bytes(ServedSocket& socket, SendOperation& operation) {
  while (operation.at < operation.bytes.size()) {
    const bool more = operation.more || operation.left > 0;
    const ssize_t sent = ::send(socket.fd.get(), operation.bytes.data() + operation.at,
                                operation.bytes.size() - operation.at, kSendFlags | (more ? MSG_MORE : 0));
    if (sent < 0) return errno == EAGAIN ? Pumped::blocked : Pumped::failed;
    operation.at += static_cast<std::size_t>(sent);
    operation.sent += static_cast<std::uint64_t>(sent);
    if (operation.kind == SendOperation::Kind::bytes) {
      socket.bytes_queued -= static_cast<std::uint32_t>(sent);
      if (socket.line != nullptr) socket.line->credit(socket, static_cast<std::size_t>(sent));
    }
  }
  return Pumped::all;
}

Line::Pumped Line::pump_memory(ServedSocket& socket, SendOperation& operation) {
  std::size_t in_one_go = 0;
  while (operation.mapped != nullptr && operation.left > 0) {
    const ssize_t sent =
        ::send(socket.fd.get(), operation.mapped, operation.left, kSendFlags | (operation.more ? MSG_MORE : 0));
    if (sent < 0) return errno == EAGAIN ? Pumped::blocked : Pumped::failed;
    operation.mapped += sent;
    operation.left -= static_cast<std::uint64_t>(sent);
    operation.sent += static_cast<std::uint64_t>(sent);
    in_one_go += static_cast<std::size_t>(sent);
    if (operation.left > 0 && in_one_go >= kMostInOneGo) return Pumped::fetching;
  }
  for (;;) {  // memory that is not mapped: piece by piece
    if (const Pumped pumped = pump_bytes(socket, operation); pumped != Pumped::all) return pumped;
    if (operation.fetching != 0) return Pumped::fetching;
    if (operation.left == 0) return Pumped::all;
    if (socket.line == nullptr) return errno = EFAULT, Pumped::failed;
    if (const Pumped fetched = socket.line->fetch(socket, operation); fetched != Pumped::all) return fetched;
  }
}

Line::Pumped Line::pump_file(ServedSocket& socket, SendOperation& operation) {
  std::size_t in_one_go = 0;
  while (operation.left > 0) {
    auto offset = static_cast<off_t>(operation.offset);
    const ssize_t sent = ::sendfile(socket.fd.get(), operation.file.get(), &offset, operation.left);
    if (sent < 0) return errno == EAGAIN ? Pumped::blocked : Pumped::failed;
    if (sent == 0) return operation.left = 0, Pumped::all;  // the file is shorter
    operation.offset = static_cast<std::uint64_t>(offset);
    operation.left -= static_cast<std::uint64_t>(sent);
    operation.sent += static_cast<std::uint64_t>(sent);
    in_one_go += static_cast<std::size_t>(sent);
    if (operation.left > 0 && in_one_go >= kMostInOneGo) return Pumped::fetching;
  }
  return Pumped::all;
}

Line::Pumped Line::pump(ServedSocket& socket, SendOperation& operation) {
  switch (operation.kind) {
    case SendOperation::Kind::bytes:
      return pump_bytes(socket, operation);
    case SendOperation::Kind::memory:
      return pump_memory(socket, operation);
    case SendOperation::Kind::file:
      return pump_file(socket, operation);
  }
  return Pumped::failed;
}

void Line::pump_sends(Worker& worker, ServedSocket& socket) {
  while (!socket.sends.empty()) {
    SendOperation& first = socket.sends.front();
    const std::uint64_t before = first.sent;
    const Pumped pumped = pump(socket, first);
    const int error = errno;
    worker.counts().bytes_out.add(first.sent - before);
    if (pumped == Pumped::blocked) return void(socket.writable = false);
    if (pumped == Pumped::fetching) {
      if (first.fetching == 0 && !socket.waits_for_room) worker.look_again(socket);
      return;
    }
    if (pumped == Pumped::failed) {
      if (socket.line != nullptr && !socket.closing) return socket.line->fail(socket, error);
      drop_sends(socket, error);
      break;
    }
    if (first.is_job) --socket.send_jobs;
    if (first.is_job && socket.line != nullptr) socket.line->done(first.job, static_cast<std::int64_t>(first.sent));
    socket.sends.pop_front();
  }
  if (socket.shut_after_sends) (void)::shutdown(socket.fd.get(), SHUT_WR);
  socket.shut_after_sends = false;
}

// What waits is not sent any more. Memory that is still written to stays until that is over.
void Line::drop_sends(ServedSocket& socket, int error) {
  Line* const line = socket.line;
  if (line != nullptr) {
    for (SendOperation& one : socket.sends) {
      if (one.is_job) line->done(one.job, one.sent > 0 ? static_cast<std::int64_t>(one.sent) : -error);
      if (one.fetching != 0) line->fetches_[one.fetching] = nullptr;
    }
    std::erase_if(socket.sends, [](const SendOperation& one) { return one.fetching == 0; });
    line->orphans_.splice(line->orphans_.end(), socket.sends);
  }
  socket.sends.clear();
  socket.send_jobs = 0;
  socket.bytes_queued = 0;
}

// The connection is over, or sending on it is.
void Line::fail(ServedSocket& socket, int error) {
  drop_sends(socket, error);
  tell_words(Tell::failed, socket.number, FailedWords{error});
}

void Line::cancel(ServedSocket& socket, std::uint32_t job) {
  for (auto one = socket.receives.begin(); one != socket.receives.end(); ++one) {
    if (one->job != job) continue;
    one->received > 0 ? done(job, one->received) : done(job, -ECANCELED);
    socket.receives.erase(one);
    return;
  }
  for (auto one = socket.sends.begin(); one != socket.sends.end(); ++one) {
    if (!one->is_job || one->job != job || one->sent > 0 || one->fetching != 0) continue;
    --socket.send_jobs;
    done(job, -ECANCELED);
    socket.sends.erase(one);
    return;
  }
}

// ---- memory that is not mapped here

Line::Pumped Line::fetch(ServedSocket& socket, SendOperation& operation) {
  const std::size_t length = std::min<std::uint64_t>(operation.left, kPiece);
  operation.bytes.resize(length);
  operation.at = 0;
  const iovec into{operation.bytes.data(), length};
  const std::uint64_t cookie = next_cookie_++;
  const auto began = reach_->get({&into, 1}, {operation.key, operation.address, length}, cookie);
  if (began != via::Reach::Began::done && began != via::Reach::Began::under_way) operation.bytes.clear();
  switch (began) {
    case via::Reach::Began::done:
      break;
    case via::Reach::Began::under_way:
      operation.fetching = cookie;
      operation.at = length;  // nothing to send yet
      fetches_[cookie] = &socket;
      return Pumped::fetching;
    case via::Reach::Began::full:
      wait_for_room(&socket);
      return Pumped::fetching;
    case via::Reach::Began::no_way:
      return errno = EOPNOTSUPP, Pumped::failed;
    default:
      return errno = EFAULT, Pumped::failed;
  }
  operation.address += length;
  operation.left -= length;
  return Pumped::all;
}

void Line::take_transfers() {
  via::Reach::End end;
  while (reach_->take_end(end)) {
    if (putting_.erase(end.cookie) > 0) continue;
    const auto found = fetches_.find(end.cookie);
    if (found == fetches_.end()) continue;
    ServedSocket* const socket = found->second;
    fetches_.erase(found);
    if (socket == nullptr) {
      std::erase_if(orphans_, [&](const SendOperation& one) { return one.fetching == end.cookie; });
      continue;
    }
    SendOperation& operation = socket->sends.front();  // only the first is fetched
    operation.fetching = 0;
    if (end.how != via::Reach::Began::done) {
      operation.bytes.clear();
      closing_or_failed(*socket, EFAULT);
      continue;
    }
    operation.at = 0;
    operation.address += operation.bytes.size();
    operation.left -= operation.bytes.size();
    pump_sends(*worker_, *socket);
  }
}

void Line::closing_or_failed(ServedSocket& socket, int error) {
  socket.closing ? drop_sends(socket, error) : fail(socket, error);
}

}  // namespace viaduct::memnet
