// Registered memory and jobs. A job is posted with one message and costs the program no system call while the server is
// awake.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "memnet/client/call.hpp"

using namespace viaduct;
using namespace viaduct::memnet;

namespace {

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;
constexpr int kReceiveFlags = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL;

struct Submission {
  Job* job = nullptr;
  int error = 0;
};

bool within(const Client::Memory& memory, std::size_t offset, std::size_t length) {
  return offset <= memory.length && length <= memory.length - offset && length <= kMostTransfer;
}

// What every job needs; 0 or why not. The lock is held.
int check_for_sending(ClientSocket& socket, int flags, std::size_t parts) {
  if ((flags & ~kSendFlags) != 0) return EOPNOTSUPP;
  if (socket.error != 0 && !socket.connecting) return std::exchange(socket.error, 0);
  if (socket.output_over || socket.failed || (!socket.connected && !socket.connecting)) return EPIPE;
  if (socket.line == nullptr) return ECONNRESET;
  return socket.send_jobs + parts > kMostJobs ? EAGAIN : 0;
}

Submission begin_send(SocketCall& call, std::span<const memnet_piece> pieces, int flags) {
  ClientSocket& socket = call.socket();
  Client& client = call.client();
  if (pieces.empty()) return {nullptr, EINVAL};
  if (const int error = check_for_sending(socket, flags, pieces.size()); error != 0) return {nullptr, error};
  for (const memnet_piece& piece : pieces) {
    const Client::Memory* const memory = client.find_memory(piece.memory);
    if (memory == nullptr) return {nullptr, EINVAL};
    if (!within(*memory, piece.offset, piece.length)) return {nullptr, EFAULT};
  }
  Job* const job = client.jobs().take(Job::Kind::send, socket.line, call.shared());
  if (job == nullptr) return {nullptr, EAGAIN};
  job->parts = static_cast<std::uint32_t>(pieces.size());
  ++socket.send_jobs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Client::Memory& memory = *client.find_memory(pieces[i].memory);
    ++memory.users;
    job->memories.push_back(static_cast<std::uint32_t>(pieces[i].memory));
    const int more = i + 1 < pieces.size() ? MSG_MORE : 0;
    socket.line->post_words(
        Ask::send_memory, socket.number,
        JobWords{job->number, memory.key, reinterpret_cast<std::uint64_t>(memory.address) + pieces[i].offset,
                 static_cast<std::uint32_t>(pieces[i].length), flags | more});
  }
  return {job, 0};
}

Submission begin_receive(SocketCall& call, memnet_mem_t handle, std::size_t offset, std::size_t length, int flags,
                         Effects& effects) {
  ClientSocket& socket = call.socket();
  Client& client = call.client();
  if ((flags & ~kReceiveFlags) != 0) return {nullptr, EOPNOTSUPP};
  if (socket.listening || (!socket.connected && !socket.connecting && !socket.failed)) return {nullptr, ENOTCONN};
  Client::Memory* const memory = client.find_memory(handle);
  if (memory == nullptr) return {nullptr, EINVAL};
  if (!within(*memory, offset, length)) return {nullptr, EFAULT};
  if (socket.posted + socket.held.size() >= kMostJobs) return {nullptr, EAGAIN};
  Job* const job = client.jobs().take(Job::Kind::receive, socket.line, call.shared());
  if (job == nullptr) return {nullptr, EAGAIN};
  ++memory->users;
  job->memory = static_cast<std::uint32_t>(handle);
  job->offset = offset;
  job->length = length;
  job->flags = flags;
  socket.held.push_back(job);
  client.press_receives(socket, effects);
  return {job, 0};
}

Submission begin_accept(SocketCall& call, Effects& effects) {
  ClientSocket& socket = call.socket();
  if (!socket.listening) return {nullptr, EINVAL};
  if (socket.accepts.size() >= kMostJobs) return {nullptr, EAGAIN};
  Job* const job = call.client().jobs().take(Job::Kind::accept, socket.line, call.shared());
  if (job == nullptr) return {nullptr, EAGAIN};
  socket.accepts.push_back(job);
  call.client().press_accepts(socket, effects);
  return {job, 0};
}

Submission begin_send_file(SocketCall& call, int file, off_t offset, std::size_t length, int flags) {
  ClientSocket& socket = call.socket();
  struct stat info {};
  if (offset < 0) return {nullptr, EINVAL};
  if (::fstat(file, &info) != 0) return {nullptr, errno};
  if (!S_ISREG(info.st_mode)) return {nullptr, EINVAL};
  if (const int error = check_for_sending(socket, flags, 1); error != 0) return {nullptr, error};
  if (socket.line->far()) return {nullptr, EXDEV};  // memnet_sendfile() reads it here
  Job* const job = call.client().jobs().take(Job::Kind::send, socket.line, call.shared());
  if (job == nullptr) return {nullptr, EAGAIN};
  job->parts = 1;
  ++socket.send_jobs;
  socket.line->post_words(Ask::send_file, socket.number,
                          FileWords{job->number, file, info.st_ino, info.st_dev, static_cast<std::uint64_t>(offset),
                                    static_cast<std::uint32_t>(std::min<std::size_t>(length, kMostTransfer)),
                                    static_cast<std::uint32_t>(flags)});
  return {job, 0};
}

int tell(const Submission& made, memnet_job_t* job) {
  if (job != nullptr) *job = made.job != nullptr ? made.job->number : 0;
  return made.job != nullptr ? 0 : fail(made.error);
}

// The lock is held; the job is over.
memnet_result take_result(Client& client, Job& job) {
  const memnet_result result{job.number, static_cast<ssize_t>(job.bytes), job.error, job.context};
  client.jobs().give_back(job);
  return result;
}

// 1, 0 or -1 as memnet_job_wait.
int collect(memnet_job_t number, Deadline deadline, bool may_wait, memnet_result* result) {
  Client* const client = process_client_if_any();
  if (client == nullptr) return fail(EINVAL);
  const auto look = [&](bool& known) {
    Job* const job = client->jobs().find(number);
    known = job != nullptr;
    if (job == nullptr || job->state != Job::State::ended) return false;
    const memnet_result taken = take_result(*client, *job);
    if (result != nullptr) *result = taken;
    return true;
  };
  bool known = true;
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const std::lock_guard held(client->lock);
      if (look(known)) return 1;
    }
    if (!known) return fail(EINVAL);
    if (attempt == 0) client->poll();
  }
  if (!may_wait) return 0;
  bool ended = false;
  switch (client->wait(deadline, [&] { return (ended = look(known)) || !known; })) {
    case Client::Waited::timeout:
      return 0;
    case Client::Waited::interrupted:
      return fail(EINTR);
    case Client::Waited::ready:
      break;
  }
  return ended ? 1 : fail(EINVAL);
}

// A job that the caller waits for; its end is the call's.
ssize_t see_through(memnet_job_t job, Deadline deadline) {
  memnet_result result{};
  for (;;) {
    const int ended = collect(job, deadline, true, &result);
    if (ended == 1) break;
    if (ended < 0 && errno == EINTR) continue;  // the memory is in use until it has ended
    if (ended < 0) return -1;
    (void)memnet_job_cancel(job);  // the time is up: what has not begun is given up
    deadline = Deadline::never();
  }
  if (result.bytes >= 0) return result.bytes;
  return fail(result.error == ECANCELED ? EAGAIN : result.error);
}

}  // namespace

int memnet_register_mem(void* buffer, size_t length, memnet_mem_t* memory) {
  Client* const client = process_client();
  if (client == nullptr) return -1;
  if (memory == nullptr) return fail(EFAULT);
  const int error = client->register_memory(buffer, length, *memory);
  return error == 0 ? 0 : fail(error);
}

int memnet_deregister_mem(memnet_mem_t memory) {
  Client* const client = process_client_if_any();
  if (client == nullptr) return fail(EINVAL);
  const int error = client->deregister_memory(memory);
  return error == 0 ? 0 : fail(error);
}

int memnet_async_send(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags, memnet_job_t* job) {
  const memnet_piece piece{memory, offset, length};
  return memnet_async_sendv(socket, &piece, 1, flags, job);
}

int memnet_async_sendv(int socket, const memnet_piece* pieces, int count, int flags, memnet_job_t* job) {
  SocketCall call(socket);
  if (!call) return fail(EBADF);
  if (count <= 0 || count > static_cast<int>(kMostJobs)) return fail(EINVAL);
  return tell(begin_send(call, {pieces, static_cast<std::size_t>(count)}, flags), job);
}

int memnet_async_recv(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags, memnet_job_t* job) {
  SocketCall call(socket);
  if (!call) return fail(EBADF);
  Effects effects;
  const int result = tell(begin_receive(call, memory, offset, length, flags, effects), job);
  call.unlock();
  call.client().deliver(effects);
  return result;
}

int memnet_async_accept(int socket, memnet_job_t* job) {
  SocketCall call(socket);
  if (!call) return fail(EBADF);
  Effects effects;
  const int result = tell(begin_accept(call, effects), job);
  call.unlock();
  call.client().deliver(effects);
  return result;
}

int memnet_async_sendfile(int socket, int file, off_t offset, size_t length, int flags, memnet_job_t* job) {
  SocketCall call(socket);
  if (!call) return fail(EBADF);
  return tell(begin_send_file(call, file, offset, length, flags), job);
}

// ---- the same, seen through

ssize_t memnet_send_direct(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags) {
  const memnet_piece piece{memory, offset, length};
  return memnet_sendv_direct(socket, &piece, 1, flags);
}

ssize_t memnet_sendv_direct(int socket, const memnet_piece* pieces, int count, int flags) {
  memnet_job_t job;
  Deadline deadline = Deadline::never();
  {
    SocketCall call(socket);
    if (!call) return fail(EBADF);
    if (count <= 0 || count > static_cast<int>(kMostJobs)) return fail(EINVAL);
    if (call.socket().nonblocking) flags |= MSG_DONTWAIT;
    deadline = call.send_deadline();
    if (tell(begin_send(call, {pieces, static_cast<std::size_t>(count)}, flags), &job) != 0) return -1;
  }
  return see_through(job, deadline);
}

ssize_t memnet_recv_direct(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags) {
  memnet_job_t job;
  Deadline deadline = Deadline::never();
  Client* client;
  Effects effects;
  {
    SocketCall call(socket);
    if (!call) return fail(EBADF);
    client = &call.client();
    if (call.socket().nonblocking) flags |= MSG_DONTWAIT;
    deadline = call.receive_deadline();
    if (tell(begin_receive(call, memory, offset, length, flags, effects), &job) != 0) return -1;
  }
  client->deliver(effects);
  return see_through(job, deadline);
}

ssize_t memnet_sendfile(int socket, int file, off_t* offset, size_t length) {
  memnet_job_t job;
  Deadline deadline = Deadline::never();
  off_t from = offset != nullptr ? *offset : ::lseek(file, 0, SEEK_CUR);
  if (from < 0) return -1;
  {
    SocketCall call(socket);
    if (!call) return fail(EBADF);
    deadline = call.send_deadline();
    const Submission made = begin_send_file(call, file, from, length, 0);
    if (made.job == nullptr && made.error != EXDEV) return fail(made.error);
    job = made.job != nullptr ? made.job->number : 0;
  }
  ssize_t sent;
  if (job != 0) {
    sent = see_through(job, deadline);
  } else {
    std::vector<std::byte> bytes(std::min<std::size_t>(length, 256 << 10));
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), from);
    if (got <= 0) return got;
    sent = memnet_send(socket, bytes.data(), static_cast<std::size_t>(got), 0);
  }
  if (sent <= 0) return sent;
  from += sent;
  if (offset != nullptr)
    *offset = from;
  else
    (void)::lseek(file, from, SEEK_SET);
  return sent;
}

// ---- ends of jobs

int memnet_job_wait(memnet_job_t job, int timeout_ms, memnet_result* result) {
  return collect(job, deadline_of(timeout_ms), timeout_ms != 0, result);
}

int memnet_job_done(memnet_job_t job, memnet_result* result) {
  return collect(job, Deadline::at_ns(0), false, result);
}

int memnet_job_notify(memnet_job_t number, void (*notify)(void*), void* argument) {
  Client* const client = process_client_if_any();
  if (client == nullptr || notify == nullptr) return fail(EINVAL);
  const std::lock_guard held(client->lock);
  Job* const job = client->jobs().find(number);
  if (job == nullptr) return fail(EINVAL);
  if (job->state == Job::State::ended) return 0;
  job->notify = notify;
  job->notify_argument = argument;
  return 1;
}

int memnet_job_cancel(memnet_job_t number) {
  Client* const client = process_client_if_any();
  if (client == nullptr) return fail(EINVAL);
  Effects effects;
  {
    const std::lock_guard held(client->lock);
    Job* const job = client->jobs().find(number);
    if (job == nullptr) return fail(EINVAL);
    if (job->state == Job::State::ended) return 0;
    ClientSocket& socket = *job->socket;
    const auto among = [&](std::list<Job*>& list) {
      const auto found = std::find(list.begin(), list.end(), job);
      if (found == list.end()) return false;
      list.erase(found);
      return true;
    };
    if (among(socket.held) || among(socket.accepts))
      client->end_job(*job, job->bytes > 0 ? job->bytes : -1, job->bytes > 0 ? 0 : ECANCELED, effects);
    else if (socket.line != nullptr)
      socket.line->post_words(Ask::cancel, socket.number, CountWords{job->number});
  }
  client->deliver(effects);
  return 0;
}

int memnet_submit(memnet_request* requests, int count) {
  if (requests == nullptr || count <= 0) return fail(EINVAL);
  Effects effects;
  Client* client = nullptr;
  int submitted = 0;
  for (; submitted < count; ++submitted) {
    memnet_request& one = requests[submitted];
    one.job = 0;
    SocketCall call(one.socket);
    Submission made;
    if (!call) {
      made.error = EBADF;
    } else {
      client = &call.client();
      switch (one.operation) {
        case MEMNET_SEND: {
          const memnet_piece piece{one.memory, one.offset, one.length};
          made = begin_send(call, {&piece, 1}, one.flags);
          break;
        }
        case MEMNET_RECV:
          made = begin_receive(call, one.memory, one.offset, one.length, one.flags, effects);
          break;
        case MEMNET_ACCEPT:
          made = begin_accept(call, effects);
          break;
        case MEMNET_SENDFILE:
          made = begin_send_file(call, one.file, static_cast<off_t>(one.offset), one.length, one.flags);
          break;
        default:
          made.error = EINVAL;
      }
    }
    if (made.job == nullptr) {
      errno = made.error;
      break;
    }
    made.job->context = one.context;
    one.job = made.job->number;
  }
  const int error = errno;
  if (client != nullptr) client->deliver(effects);
  errno = error;
  return submitted > 0 ? submitted : -1;
}

int memnet_reap(memnet_result* results, int most, int timeout_ms) {
  Client* const client = process_client_if_any();
  if (client == nullptr || results == nullptr || most <= 0) return fail(EINVAL);
  int count = 0;
  const auto take = [&] {
    for (Job* job; count < most && (job = client->jobs().first_ended()) != nullptr;)
      results[count++] = take_result(*client, *job);
    return count > 0;
  };
  client->poll();
  {
    const std::lock_guard held(client->lock);
    if (take()) return count;
  }
  if (timeout_ms == 0) return 0;
  if (client->wait(deadline_of(timeout_ms), take) == Client::Waited::interrupted) return fail(EINTR);
  return count;
}
