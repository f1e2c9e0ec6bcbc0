#include "mx/matcher.hpp"

namespace viaduct::mx {

namespace {

std::uint64_t hash_of(std::uint64_t bits, std::uint8_t space, const Partner* from) {
  std::uint64_t x = bits ^ (std::uint64_t{space} << 56) ^ (reinterpret_cast<std::uint64_t>(from) * 0x9e3779b97f4a7c15);
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  return x;
}

bool takes(const Posted& posted, std::uint64_t match, std::uint8_t space, const Partner* from) {
  return (match & posted.mask) == posted.match && posted.space == space &&
         (posted.from == nullptr || posted.from == from);
}

}  // namespace

Matcher::Matcher() {
  for (std::size_t i = 0; i < kMostClasses; ++i) classes_[i].messages = KeyTable<Arrived>(i);
}

// kNoClass: as many other masks have receives posted.
std::uint8_t Matcher::class_for(std::uint64_t mask, bool directed) {
  std::size_t reusable = kMostClasses;
  for (std::size_t i = 0; i < classes_used_; ++i) {
    MaskClass& one = classes_[i];
    if (one.mask == mask && one.directed == directed) {
      one.last_use = next_order_;
      return static_cast<std::uint8_t>(i);
    }
    const bool idle = one.receives.size() == 0;
    if (idle && (reusable == kMostClasses || one.last_use < classes_[reusable].last_use)) reusable = i;
  }
  if (classes_used_ < kMostClasses) reusable = classes_used_++;
  if (reusable == kMostClasses) return kNoClass;
  MaskClass& fresh = classes_[reusable];
  fresh.mask = mask;
  fresh.directed = directed;
  fresh.last_use = next_order_;
  fresh.messages.clear();
  const auto number = static_cast<std::uint8_t>(reusable);
  for (Arrived* one = arrived_.first(); one != nullptr; one = ArrivedLine::next(*one)) add_to_class(number, *one);
  return number;
}

void Matcher::add_to_class(std::uint8_t number, Arrived& arrived) {
  MaskClass& one = classes_[number];
  one.messages.add(arrived, hash_of(arrived.match & one.mask, arrived.space, one.directed ? arrived.from : nullptr));
}

void Matcher::post(Posted& posted) {
  posted.order = next_order_++;
  posted.its_class = class_for(posted.mask, posted.from != nullptr);
  posted.is_posted = true;
  posted_.append(posted);
  if (posted.its_class == kNoClass)
    ++without_class_;
  else
    classes_[posted.its_class].receives.add(posted, hash_of(posted.match, posted.space, posted.from));
}

void Matcher::withdraw(Posted& posted) {
  if (!posted.is_posted) return;
  posted.is_posted = false;
  posted_.remove(posted);
  if (posted.its_class == kNoClass)
    --without_class_;
  else
    classes_[posted.its_class].receives.remove(posted);
}

Posted* Matcher::receive_for(std::uint64_t match, std::uint8_t space, const Partner* from) const {
  if (posted_.empty()) return nullptr;
  Posted* oldest = nullptr;
  const auto consider = [&](Posted* one) {
    if (one != nullptr && (oldest == nullptr || one->order < oldest->order)) oldest = one;
  };
  for (std::size_t i = 0; i < classes_used_; ++i) {
    const MaskClass& one = classes_[i];
    if (one.receives.size() == 0) continue;
    consider(one.receives.first(hash_of(match & one.mask, space, one.directed ? from : nullptr),
                                [&](const Posted& posted) { return takes(posted, match, space, from); }));
  }
  if (without_class_ != 0) [[unlikely]]
    for (Posted* one = posted_.first(); one != nullptr; one = PostedLine::next(*one))
      if (one->its_class == kNoClass && takes(*one, match, space, from)) {
        consider(one);
        break;
      }
  return oldest;
}

void Matcher::arrive(Arrived& arrived) {
  arrived_.append(arrived);
  for (std::size_t i = 0; i < classes_used_; ++i) add_to_class(static_cast<std::uint8_t>(i), arrived);
}

void Matcher::remove(Arrived& arrived) {
  if (!ArrivedLine::holds(arrived)) return;
  arrived_.remove(arrived);
  for (std::size_t i = 0; i < classes_used_; ++i) classes_[i].messages.remove(arrived);
}

Arrived* Matcher::message_for(std::uint64_t match, std::uint64_t mask, std::uint8_t space, const Partner* from) {
  if (arrived_.empty()) return nullptr;
  const auto fits = [&](const Arrived& one) {
    return (one.match & mask) == match && one.space == space && (from == nullptr || one.from == from);
  };
  if (arrived_.size() > kFewArrived)
    if (const std::uint8_t number = class_for(mask, from != nullptr); number != kNoClass)
      return classes_[number].messages.first(hash_of(match, space, from), fits);
  for (Arrived* one = arrived_.first(); one != nullptr; one = ArrivedLine::next(*one))
    if (fits(*one)) return one;
  return nullptr;
}

}  // namespace viaduct::mx
