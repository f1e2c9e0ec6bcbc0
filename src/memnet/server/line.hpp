// A line: a client's connection to a worker, and the sockets that the client has over it. All on the worker's thread.
//
//   line.cpp           messages in and out, the end
//   line_calls.cpp     calls that are answered: make, bind, listen, connect, options, names, shutdown
//   line_send.cpp      from the client to the network
//   line_receive.cpp   from the network to the client; connections that are accepted
//
// What the client writes is checked. A client that breaks the rules loses its line, and with it its sockets.
#pragma once

#include <viaduct/via.hpp>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "memnet/server/served_socket.hpp"
#include "via/port/port.hpp"
#include "via/port/shm_reach.hpp"

namespace viaduct::memnet {

class Worker;

class Line {
 public:
  Line(via::Connection connection, std::uint32_t slot, const Hello& hello, std::string peer);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void attach(Worker& worker) { worker_ = &worker; }
  via::Channel& channel() { return *channel_; }
  std::uint32_t slot() const { return slot_; }
  const std::string& peer() const { return peer_; }

  // Takes what the client has sent. True: there is more.
  bool serve();
  // What could not be told, and sockets that waited for room.
  void flush();
  bool over() const { return over_; }
  bool wants_room() const { return wants_room_; }
  // Every socket is closed as the kernel closes those of a program that ends.
  void let_sockets_go();
  static void abandon(ServedSocket& socket);  // its client has gone
  std::size_t sockets() const { return count_; }

  // The kernel says something of a socket.
  void happened(ServedSocket& socket, std::uint32_t events);
  static void pump_sends(Worker& worker, ServedSocket& socket);
  void pump_receives(ServedSocket& socket);
  void accept_more(ServedSocket& listener);

 private:
  struct Message {
    std::uint32_t immediate;
    std::vector<std::byte> bytes;
  };

  void handle(std::uint32_t immediate, std::span<const std::byte> bytes);
  void handle_of_socket(Ask ask, ServedSocket& socket, std::span<const std::byte> bytes);
  void break_off(const char* why);
  ServedSocket* find(std::uint32_t number) const;

  // ---- telling
  bool try_tell(Tell tell, std::uint32_t socket, std::span<const std::byte> first,
                std::span<const std::byte> second = {});
  void tell(Tell tell, std::uint32_t socket, std::span<const std::byte> first = {},
            std::span<const std::byte> second = {});
  template <class Words>
  void tell_words(Tell what, std::uint32_t socket, const Words& words) {
    tell(what, socket, std::as_bytes(std::span(&words, 1)));
  }
  void reply(std::uint32_t request, int error, std::span<const std::byte> value = {});
  void done(std::uint32_t job, std::int64_t result);
  bool flush_dones();
  void wait_for_room(ServedSocket* socket);
  void tell_room();
  std::uint32_t* room_word(via::SharedEnd::Whose whose) const;

  // ---- calls
  void make(std::uint32_t number, const MakeWords& words);
  void bind(ServedSocket& socket, const AddressWords& words);
  void listen(ServedSocket& socket, const ListenWords& words);
  void connect(ServedSocket& socket, const AddressWords& words);
  void connected(ServedSocket& socket);
  void shut_down(ServedSocket& socket, const ShutdownWords& words);
  void get_option(ServedSocket& socket, const OptionWords& words);
  void set_option(ServedSocket& socket, const OptionWords& words, std::span<const std::byte> value);
  void name(ServedSocket& socket, const NameWords& words);
  void close(ServedSocket& socket);
  bool add_to_epoll(ServedSocket& socket, std::uint32_t events);

  // ---- sending
  void send(ServedSocket& socket, std::span<const std::byte> bytes, bool more);
  void send_memory(ServedSocket& socket, const JobWords& words);
  void send_file(ServedSocket& socket, const FileWords& words);
  enum class Pumped { all, blocked, fetching, failed };
  static Pumped pump(ServedSocket& socket, SendOperation& operation);
  static Pumped pump_bytes(ServedSocket& socket, SendOperation& operation);
  static Pumped pump_memory(ServedSocket& socket, SendOperation& operation);
  static Pumped pump_file(ServedSocket& socket, SendOperation& operation);
  Pumped fetch(ServedSocket& socket, SendOperation& operation);
  void take_transfers();
  static void drop_sends(ServedSocket& socket, int error);
  void credit(ServedSocket& socket, std::size_t bytes);
  void fail(ServedSocket& socket, int error);
  void closing_or_failed(ServedSocket& socket, int error);
  void cancel(ServedSocket& socket, std::uint32_t job);

  // ---- receiving
  void receive_memory(ServedSocket& socket, const JobWords& words);
  void set_mode(ServedSocket& socket, bool push);
  enum class Received { some, nothing, over };
  Received receive_into(ServedSocket& socket, ReceiveOperation& operation);
  Received push_data(ServedSocket& socket);
  bool put(ReceiveOperation& operation, std::vector<std::byte> bytes);

  Worker* worker_ = nullptr;
  const std::uint32_t slot_;  // of the port's table
  const std::string peer_;
  std::unique_ptr<via::Channel> channel_;
  std::unique_ptr<via::Reach> reach_;  // goes before the channel
  via::ShmReach* const shared_;
  bool over_ = false;
  bool wants_room_ = false;
  std::size_t count_ = 0;

  std::vector<std::unique_ptr<ServedSocket>> own_;  // by the client's number
  std::vector<std::unique_ptr<ServedSocket>> accepted_;
  std::vector<std::uint32_t> free_accepted_;
  std::deque<Message> outbox_;
  std::vector<DoneWords> dones_;
  std::vector<ServedSocket*> room_waiters_;

  std::uint64_t next_cookie_ = 1;
  std::unordered_map<std::uint64_t, ServedSocket*> fetches_;           // null: the socket has gone
  std::list<SendOperation> orphans_;                                   // their memory is still written to
  std::unordered_map<std::uint64_t, std::vector<std::byte>> putting_;  // under way
};

}  // namespace viaduct::memnet
