// Many sockets: poll, events, and sleeping on one descriptor.
#include <poll.h>

#include "memnet/client/call.hpp"

using namespace viaduct;
using namespace viaduct::memnet;

int memnet_poll(pollfd* entries, unsigned long count, int timeout_ms) {
  if (entries == nullptr && count > 0) return fail(EFAULT);
  Client* const client = process_client();
  if (client == nullptr) return -1;
  int ready = 0;
  const auto look = [&] {
    ready = 0;
    for (unsigned long i = 0; i < count; ++i) {
      pollfd& entry = entries[i];
      entry.revents = 0;
      if (entry.fd < 0) continue;
      const auto socket = client->find(entry.fd);
      const int wanted = entry.events | POLLERR | POLLHUP;
      entry.revents =
          socket == nullptr ? static_cast<short>(POLLNVAL) : static_cast<short>(client->ready_events(*socket) & wanted);
      if (entry.revents != 0) ++ready;
    }
    return ready > 0;
  };
  client->poll();
  {
    const std::lock_guard held(client->lock);
    if (look() || timeout_ms == 0) return ready;
  }
  if (client->wait(deadline_of(timeout_ms), look) == Client::Waited::interrupted) return fail(EINTR);
  return ready;
}

int memnet_watch(int descriptor, void* context) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  ClientSocket& socket = call.socket();
  socket.watched = true;
  socket.context = context;
  if (call.client().ready_events(socket) == 0 || socket.in_events) return 0;
  Effects effects;
  call.client().changed(socket, effects);
  call.unlock();
  call.client().deliver(effects);
  return 0;
}

int memnet_unwatch(int descriptor) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  call.socket().watched = false;
  return 0;
}

int memnet_events(memnet_event* events, int most, int timeout_ms) {
  Client* const client = process_client();
  if (client == nullptr) return -1;
  if (events == nullptr || most <= 0) return fail(EINVAL);
  int count = 0;
  const auto take = [&] {
    auto& changed = client->events();
    while (count < most && !changed.empty()) {
      const std::shared_ptr<ClientSocket> socket = changed.front().lock();
      changed.pop_front();
      if (socket == nullptr) continue;
      socket->in_events = false;
      if (!socket->watched || socket->descriptor < 0) continue;
      const short ready = client->ready_events(*socket);
      if (ready != 0) events[count++] = {socket->descriptor, ready, socket->context};
    }
    return count > 0;
  };
  client->poll();
  {
    const std::lock_guard held(client->lock);
    if (take() || timeout_ms == 0) return count;
  }
  if (client->wait(deadline_of(timeout_ms), take) == Client::Waited::interrupted) return fail(EINTR);
  return count;
}

int memnet_wait(int timeout_ms) {
  Client* const client = process_client();
  if (client == nullptr) return -1;
  const auto look = [&] { return !client->events().empty() || client->jobs().first_ended() != nullptr; };
  client->poll();
  {
    const std::lock_guard held(client->lock);
    if (look()) return 1;
  }
  if (timeout_ms == 0) return 0;
  switch (client->wait(deadline_of(timeout_ms), look)) {
    case Client::Waited::timeout:
      return 0;
    case Client::Waited::interrupted:
      return fail(EINTR);
    case Client::Waited::ready:
      break;
  }
  return 1;
}

int memnet_descriptor(void) {
  Client* const client = process_client();
  if (client == nullptr) return -1;
  const int descriptor = client->descriptor();
  return descriptor >= 0 ? descriptor : fail(EMFILE);
}

int memnet_prepare(void) {
  Client* const client = process_client();
  if (client == nullptr) return -1;
  return client->prepare() ? 1 : 0;
}
