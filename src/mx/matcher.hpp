// Which message goes to which receive: receives are looked at in the order of posting, messages in the order of
// arrival.
//
// Receives of one mask form a class. In a class what counts of a message's bits is one number, so both its receives and
// all waiting messages are hashed by it: the cost does not depend on how many wait. Few masks are in use at a time;
// more than kMostClasses share a list that is walked. A number of order says which of two classes' candidates is older.
#pragma once

#include <cstdint>

#include "mx/chain.hpp"
#include "mx/key_table.hpp"

namespace viaduct::mx {

class Partner;

constexpr std::size_t kMostClasses = 8;

struct Posted {
  std::uint64_t match = 0;
  std::uint64_t mask = 0;
  Partner* from = nullptr;  // none: from anybody
  std::uint8_t space = 0;
  std::uint8_t its_class = 0;
  bool is_posted = false;
  std::uint64_t order = 0;
  KeyHook<Posted> hooks[1];
  ChainHook<Posted> line;
};

struct Arrived {
  std::uint64_t match = 0;
  Partner* from = nullptr;
  std::uint8_t space = 0;
  KeyHook<Arrived> hooks[kMostClasses];
  ChainHook<Arrived> line;
};

class Matcher {
 public:
  Matcher();

  void post(Posted& posted);
  void withdraw(Posted& posted);
  // The oldest that takes such a message; it stays posted.
  Posted* receive_for(std::uint64_t match, std::uint8_t space, const Partner* from) const;

  void arrive(Arrived& arrived);
  void remove(Arrived& arrived);
  // The oldest that such a receive takes; it stays.
  Arrived* message_for(std::uint64_t match, std::uint64_t mask, std::uint8_t space, const Partner* from);

  using PostedLine = Chain<Posted, &Posted::line>;
  using ArrivedLine = Chain<Arrived, &Arrived::line>;
  const PostedLine& posted() const { return posted_; }
  const ArrivedLine& arrived() const { return arrived_; }

 private:
  static constexpr std::uint8_t kNoClass = kMostClasses;
  static constexpr std::size_t kFewArrived = 8;  // are looked through one by one

  struct MaskClass {
    std::uint64_t mask = 0;
    bool directed = false;  // who sent it counts
    bool in_use = false;
    std::uint64_t last_use = 0;
    KeyTable<Posted> receives;
    KeyTable<Arrived> messages;
  };
  std::uint8_t class_for(std::uint64_t mask, bool directed);
  void add_to_class(std::uint8_t number, Arrived& arrived);

  MaskClass classes_[kMostClasses];
  std::size_t classes_used_ = 0;  // the first ones
  std::size_t without_class_ = 0;
  PostedLine posted_;
  ArrivedLine arrived_;
  std::uint64_t next_order_ = 1;
};

}  // namespace viaduct::mx
