// A peer that says what no VIPL would: the worst is that its own connection breaks.
#include <thread>

#include "base/random.hpp"
#include "via/vipl_stranger.hpp"

namespace viaduct::vipl::testing {
namespace {

class ViplHostile : public ::testing::TestWithParam<VIP_RELIABILITY_LEVEL> {
 protected:
  // A VI of this program, connected to a stranger.
  void meet(std::size_t max_transfer = 65536) {
    stranger_->description().max_transfer = max_transfer;
    vi_ = program_.make_vi({.level = GetParam(),
                            .max_transfer = max_transfer,
                            .rdma_write = true,
                            .rdma_read = GetParam() != VIP_SERVICE_UNRELIABLE});
    for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(program_.post_receive(vi_, i, 1000 * i, 1000), VIP_SUCCESS);
    const std::string name = own_name("hostile") + std::to_string(++number_);
    std::thread connecting([&] { EXPECT_TRUE(stranger_->connect(program_, name)); });
    EXPECT_EQ(program_.serve(name, vi_), VIP_SUCCESS);
    connecting.join();
  }
  void expect_broken(const char* what) {
    EXPECT_EQ(program_.state(vi_), VIP_STATE_ERROR) << what;
    EXPECT_TRUE(errors_.has(VIP_ERROR_CONN_LOST)) << what;
    for (std::size_t i = 0; i < 4; ++i) (void)received(vi_, VIP_DESCRIPTOR_ERROR);
    errors_.errors.clear();
    EXPECT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
    EXPECT_EQ(VipDestroyVi(vi_), VIP_SUCCESS);
    program_.forget(vi_);
    stranger_ = std::make_unique<Stranger>(GetParam());
  }
  void SetUp() override { errors_.listen(program_.nic); }

  HangGuard guard_;
  Program program_;
  ErrorLog errors_;
  std::unique_ptr<Stranger> stranger_ = std::make_unique<Stranger>(GetParam());
  VIP_VI_HANDLE vi_ = nullptr;
  int number_ = 0;
};

INSTANTIATE_TEST_SUITE_P(AtEveryLevel, ViplHostile,
                         ::testing::Values(VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                           VIP_SERVICE_RELIABLE_RECEPTION),
                         [](const auto& level) { return "Level" + std::to_string(level.param); });

TEST_P(ViplHostile, MessagesThatMakeNoSense) {
  struct Nonsense {
    const char* what;
    void (*say)(Stranger&);
  };
  const std::vector<std::byte> some(16);
  const Nonsense all[] = {
      {"no kind", [](Stranger& s) { s.say(0, std::vector<std::byte>(16)); }},
      {"an unknown kind", [](Stranger& s) { s.say(77, std::vector<std::byte>(16)); }},
      {"unknown bits", [](Stranger& s) { s.say(kSend | 0x10000, std::vector<std::byte>(16)); }},
      {"a send in two fragments", [](Stranger& s) { s.say(kSend, std::vector<std::byte>(16), true); }},
      {"immediate data that is not there",
       [](Stranger& s) { s.say(kSend | kWithImmediate, std::vector<std::byte>(2)); }},
      {"half a header", [](Stranger& s) { s.say(kLongSend, std::vector<std::byte>(3), true); }},
      {"a long send longer than any",
       [](Stranger& s) {
         s.say(kLongSend, LongHeader{~0u, 0}, 100, true);
       }},
      {"more bytes than said",
       [](Stranger& s) {
         s.say(kLongSend, LongHeader{100, 0}, 101, true);
       }},
      {"fewer bytes than said",
       [](Stranger& s) {
         s.say(kLongSend, LongHeader{100, 0}, 50, false);
       }},
      {"a message within a message",
       [](Stranger& s) {
         s.say(kLongSend, LongHeader{100, 0}, 50, true);
         s.say(kSend, std::vector<std::byte>(16));
       }},
      {"fragments of nothing",
       [](Stranger& s) {
         s.say(kLongSend, LongHeader{100, 0}, 50, true);
         s.say(kLongSend, std::vector<std::byte>(), true);
       }},
      {"a reply nobody asked for",
       [](Stranger& s) {
         s.say(kReadReply, ReplyHeader{8, 0}, 8);
       }},
      {"an acknowledgement of what was not sent", [](Stranger& s) { s.say(kPlaced, PlacedHeader{5}); }},
      {"an error that does not exist",
       [](Stranger& s) {
         s.say(kBroken, BrokenHeader{99, 0});
       }},
      {"a read of more than a transfer",
       [](Stranger& s) {
         s.say(kRead, ReadHeader{0, 1, ~0u});
       }},
      {"half an RDMA header", [](Stranger& s) { s.say(kWrite, std::vector<std::byte>(10)); }},
      {"half a reference", [](Stranger& s) { s.say(kReference, std::vector<std::byte>(12)); }},
      {"a reference to less than is worth one",
       [](Stranger& s) {
         s.say(kReference, ReferenceHeader{0, 1, 100, 0, 0});
       }},
      {"a reference to more than a transfer",
       [](Stranger& s) {
         s.say(kReference, ReferenceHeader{0, 1, ~0u, 0, 0});
       }},
      {"placed in another descriptor",
       [](Stranger& s) {
         s.say(kDirect, DirectHeader{1, 100, 0, 0});
       }},
      {"more placed than a transfer",
       [](Stranger& s) {
         s.say(kDirect, DirectHeader{0, ~0u, 0, 0});
       }},
      {"half a placement", [](Stranger& s) { s.say(kDirect, std::vector<std::byte>(8)); }},
      {"half an offer", [](Stranger& s) { s.say(kOffer, std::vector<std::byte>(24)); }},
      {"an offer for another descriptor",
       [](Stranger& s) {
         s.say(kOffer, OfferHeader{0, 1, 40'000, 0, 20'000, 1, 0, 1});
       }},
      {"an offer out of order",
       [](Stranger& s) {
         s.say(kOffer, OfferHeader{0, 1, 40'000, 0, 20'000, 0, 0, 2});
       }},
      {"an offer of nothing",
       [](Stranger& s) {
         s.say(kOffer, OfferHeader{0, 1, 40'000, 0, 0, 0, 0, 1});
       }},
      {"an offer of more than there is",
       [](Stranger& s) {
         s.say(kOffer, OfferHeader{0, 1, 40'000, 0, 40'000, 0, 0, 1});
       }},
      {"the rest of nothing",
       [](Stranger& s) {
         s.say(kRest, RestHeader{1, 0});
       }},
      {"nothing taken", [](Stranger& s) { s.say(kTaken, std::vector<std::byte>()); }},
      {"nothing declined", [](Stranger& s) { s.say(kDeclined, std::vector<std::byte>()); }},
      {"hanging up", [](Stranger& s) { s.hang_up(); }},
  };
  for (const Nonsense& nonsense : all) {
    meet();
    nonsense.say(*stranger_);
    expect_broken(nonsense.what);
  }
}

// Written by message into memory that is not offered: refused by the library whose memory it is.
TEST_P(ViplHostile, RdmaByMessageIsCheckedHere) {
  const auto address = reinterpret_cast<std::uint64_t>(program_.data());
  struct Attempt {
    std::uint64_t address;
    VIP_MEM_HANDLE handle;
    std::uint32_t length;
  };
  for (const Attempt& attempt : {Attempt{address, program_.handle + 1, 8}, Attempt{8, program_.handle, 8},
                                 Attempt{address + (1 << 20) + 4096 - 4, program_.handle, 8},
                                 Attempt{~std::uint64_t{0} - 3, program_.handle, 8}}) {
    for (const bool write : {true, false}) {
      if (!write && GetParam() == VIP_SERVICE_UNRELIABLE) continue;
      meet();
      write ? stranger_->say(kWrite, WriteHeader{attempt.address, attempt.handle, attempt.length, 0, 0}, 8)
            : stranger_->say(kRead, ReadHeader{attempt.address, attempt.handle, attempt.length});
      EXPECT_EQ(program_.state(vi_), VIP_STATE_ERROR);
      EXPECT_TRUE(errors_.has(write ? VIP_ERROR_RDMAW_PROT : VIP_ERROR_RDMAR_PROT));
      errors_.errors.clear();
      EXPECT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
      stranger_ = std::make_unique<Stranger>(GetParam());
    }
  }
}

TEST_P(ViplHostile, MoreReadsThanAgreed) {
  meet();
  if (GetParam() == VIP_SERVICE_UNRELIABLE) return;
  // Nobody takes the replies: they pile up until it is too much.
  const ReadHeader header{reinterpret_cast<std::uint64_t>(program_.data()), program_.handle, 60'000};
  for (std::uint32_t i = 0; i <= 3 * kMostReadsUnderWay && program_.state(vi_) == VIP_STATE_CONNECTED; ++i)
    (void)stranger_->say(kRead, header);
  expect_broken("too many reads");
}

// Sends by reference, to somebody who answers anything, in any order, and refers to anything.
TEST_P(ViplHostile, RandomAnswersToLongSends) {
  constexpr std::uint32_t kLong = 300'000;
  Random random(GetParam());
  std::vector<std::byte> theirs(kLong);
  int taken = 0;
  for (int round = 0; round < viaduct::testing::rounds(200); ++round) {
    VIP_MEM_HANDLE offered = 0;
    stranger_ = std::make_unique<Stranger>(GetParam(), Stranger::Reachable::yes);
    stranger_->offer(reinterpret_cast<std::uint64_t>(theirs.data()), theirs.size(), &offered);
    meet(std::size_t{1} << 20);
    ASSERT_EQ(program_.post_receive(vi_, 4, 400'000, kLong), VIP_SUCCESS);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(program_.post_send(vi_, 5 + i, 0, kLong - i), VIP_SUCCESS);
    const auto somewhere = [&](std::uint64_t good) { return random.chance(0.8) ? good : random(); };
    for (int i = 0; i < 30; ++i) {
      const auto handle = static_cast<std::uint32_t>(somewhere(offered));
      const auto length = static_cast<std::uint32_t>(somewhere(kLong));
      const std::uint64_t address = somewhere(reinterpret_cast<std::uint64_t>(theirs.data()));
      switch (random.below(8)) {
        case 0:
          (void)stranger_->say(kReference, ReferenceHeader{address, handle, length, 0, 0});
          break;
        case 1:
        case 2:
          (void)stranger_->say(kOffer, OfferHeader{address, handle, length, 0, random.chance(0.5) ? 4096 : length / 2,
                                                   0, 0, somewhere(1)});
          break;
        case 3:
          (void)stranger_->say(kRest, RestHeader{static_cast<std::uint32_t>(random.below(2)), 0});
          break;
        case 6:
          for (const auto whose : {via::SharedEnd::Whose::ours, via::SharedEnd::Whose::theirs}) {
            auto* const words = reinterpret_cast<OfferWords*>(stranger_->channel().shared()->words(whose));
            words->states[random.below(kMostOffers)] =
                random.chance(0.2) ? random() : offer_word(random.below(4), static_cast<OfferState>(random.below(8)));
          }
          break;
        case 4:
          (void)stranger_->say(kTaken, std::vector<std::byte>());
          break;
        case 5:
          if (random.chance(0.3)) (void)stranger_->say(kDeclined, std::vector<std::byte>());
          break;
        default:
          (void)stranger_->say(kSend, std::vector<std::byte>(16));
      }
      VIP_DESCRIPTOR* descriptor = nullptr;
      taken += VipSendDone(vi_, &descriptor) == VIP_SUCCESS;
      (void)VipRecvDone(vi_, &descriptor);
      via::Fragment fragment;
      while (stranger_->channel().peek(fragment) == via::Got::fragment) stranger_->channel().consume();
    }
    EXPECT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
    int back = 0;
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (const auto done : {VipSendDone, VipRecvDone})
      while (done(vi_, &descriptor) != VIP_NOT_DONE && descriptor != nullptr) ++back;
    EXPECT_LE(back, 8);
    EXPECT_EQ(VipDestroyVi(vi_), VIP_SUCCESS);
    program_.forget(vi_);
    stranger_ = std::make_unique<Stranger>(GetParam());
  }
  EXPECT_GT(taken, 0);
}

// It shows receive descriptors that are none, in memory that is none: what is sent goes some other way, or into what
// the stranger itself has offered.
TEST_P(ViplHostile, PostedReceivesThatAreNone) {
  constexpr std::uint32_t kLength = 32768;
  Random random(GetParam());
  const auto owned = static_cast<std::byte*>(adma_alloc(std::size_t{1} << 20));
  const std::uint64_t direct = counter("via.sends_direct").get();
  for (int round = 0; round < viaduct::testing::rounds(200); ++round) {
    Registrations& table = stranger_->table();
    VIP_MEM_HANDLE offered = 0;
    const std::size_t offered_bytes = random.chance(0.7) ? std::size_t{1} << 20 : kLength / 2;
    stranger_->offer(reinterpret_cast<std::uint64_t>(owned), offered_bytes, &offered);
    RegistrationEntry& entry = table.view().entry(offered & (kMostRegions - 1));
    if (random.chance(0.2)) entry.region_offset = random();
    if (random.chance(0.2)) entry.length = random();
    if (random.chance(0.1)) entry.region_inode = random();
    if (random.chance(0.1)) entry.region_fd = static_cast<std::uint32_t>(random());
    if (random.chance(0.1)) entry.region_id = random();
    ASSERT_TRUE(table.reserve_posted(0));
    table.view().words(0).shows_posted = 1;
    for (std::uint64_t number = 0; number < kPostedPerConnection; ++number) {
      PostedReceive& posted = table.view().posted(0, number);
      posted.address = random.chance(0.8) ? reinterpret_cast<std::uint64_t>(owned) : random();
      posted.key = random.chance(0.8) ? offered : static_cast<std::uint32_t>(random());
      posted.length = random.chance(0.8) ? kLength : static_cast<std::uint32_t>(random());
      posted.stamp = random.chance(0.8) ? posted_stamp(stranger_->terms().number, number) : random();
    }
    meet();
    for (std::size_t i = 0; i < 6; ++i) ASSERT_EQ(program_.post_send(vi_, 5 + i, 0, kLength), VIP_SUCCESS);
    EXPECT_EQ(program_.state(vi_), VIP_STATE_CONNECTED);
    EXPECT_EQ(VipDisconnect(vi_), VIP_SUCCESS);
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (const auto done : {VipSendDone, VipRecvDone})
      while (done(vi_, &descriptor) != VIP_NOT_DONE && descriptor != nullptr) continue;
    EXPECT_EQ(VipDestroyVi(vi_), VIP_SUCCESS);
    program_.forget(vi_);
    stranger_ = std::make_unique<Stranger>(GetParam());
  }
  EXPECT_EQ(counter("via.sends_direct").get() > direct, GetParam() != VIP_SERVICE_UNRELIABLE);
  adma_free(owned);
}

// Anything at all, many times over: this process survives and the adapter goes on.
TEST_P(ViplHostile, RandomMessages) {
  Random random(GetParam());
  for (int round = 0; round < 60; ++round) {
    meet();
    for (int i = 0; i < 50; ++i) {
      std::vector<std::byte> bytes(random.below(random.chance(0.2) ? 3000 : 60));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.chance(0.5) ? 0 : random.below(256));
      const auto word =
          static_cast<std::uint32_t>(random.chance(0.9) ? random.below(18) | (random.below(2) << 8) : random());
      (void)stranger_->say(word, std::move(bytes), random.chance(0.3));
      VIP_DESCRIPTOR* descriptor = nullptr;
      (void)VipRecvDone(vi_, &descriptor);
      if (descriptor != nullptr && (descriptor->CS.Status & VIP_STATUS_ERROR_MASK) == 0)
        (void)program_.post_receive(vi_, descriptor);
    }
    (void)VipDisconnect(vi_);
    (void)VipDestroyVi(vi_);
    program_.forget(vi_);
    stranger_ = std::make_unique<Stranger>(GetParam());
  }
  const VIP_VI_HANDLE a = program_.make_vi(), b = program_.make_vi();
  connect_here(program_, a, b);
  ASSERT_EQ(program_.post_receive(b, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(a, 1, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(received(b), program_.descriptor(0));
}

}  // namespace
}  // namespace viaduct::vipl::testing
