#include "net/seal.hpp"

#include <sodium.h>

#include <cstring>

namespace viaduct::net {

namespace {

constexpr std::size_t kCount = 8, kTag = 16;
static_assert(kCount + kTag == Seal::kOverhead);
static_assert(kTag == crypto_aead_aes256gcm_ABYTES && kTag == crypto_aead_chacha20poly1305_ietf_ABYTES);

// What is authenticated and not encrypted: the header behind its checksum, and the count.
struct Outside {
  std::array<unsigned char, kHeaderSize - sizeof(FrameHeader::checksum) + kCount> bytes;
  Outside(const FrameHeader& header, std::uint64_t count) {
    constexpr std::size_t kFields = kHeaderSize - sizeof header.checksum;
    std::memcpy(bytes.data(), &header.version, kFields);
    std::memcpy(bytes.data() + kFields, &count, sizeof count);
  }
};
static_assert(offsetof(FrameHeader, version) == sizeof(FrameHeader::checksum));

std::array<unsigned char, 12> nonce_of(std::uint64_t count) {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data() + 4, &count, sizeof count);
  return nonce;
}

unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

struct Seal::Direction {
  std::array<std::byte, 32> key;
  crypto_aead_aes256gcm_state expanded;

  Direction(const std::array<std::byte, 32>& its_key, Cipher cipher) : key(its_key) {
    if (cipher == Cipher::aes256_gcm) (void)::crypto_aead_aes256gcm_beforenm(&expanded, raw(key.data()));
  }
  ~Direction() {
    ::sodium_memzero(key.data(), key.size());
    ::sodium_memzero(&expanded, sizeof expanded);
  }
};

Seal::Seal(const SessionKeys& keys, Cipher cipher, bool connecting)
    : cipher_(cipher),
      out_(std::make_unique<Direction>(connecting ? keys.of_connecting : keys.of_accepting, cipher)),
      in_(std::make_unique<Direction>(connecting ? keys.of_accepting : keys.of_connecting, cipher)) {}

Seal::~Seal() = default;

std::size_t Seal::close(std::span<std::byte> room, std::size_t size, FrameHeader header) {
  const auto frame = room.first(size + kOverhead);
  header.flags |= kSealed;
  fill_in(header, frame.size());
  const std::uint64_t count = ++sent_;
  const Outside outside(header, count);
  const auto nonce = nonce_of(count);
  std::byte* const chunks = frame.data() + kHeaderSize;
  std::byte* const behind = frame.data() + size;
  std::memcpy(behind, &count, sizeof count);
  std::byte* const tag = behind + kCount;
  if (cipher_ == Cipher::aes256_gcm) {
    (void)::crypto_aead_aes256gcm_encrypt_detached_afternm(
        raw(chunks), raw(tag), nullptr, raw(chunks), size - kHeaderSize, outside.bytes.data(), outside.bytes.size(),
        nullptr, nonce.data(), &out_->expanded);
  } else {
    (void)::crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        raw(chunks), raw(tag), nullptr, raw(chunks), size - kHeaderSize, outside.bytes.data(), outside.bytes.size(),
        nullptr, nonce.data(), raw(out_->key.data()));
  }
  seal_frame(frame, header);
  return frame.size();
}

std::optional<std::span<const std::byte>> Seal::open(const OpenedFrame& frame) {
  if ((frame.header.flags & kSealed) == 0 || frame.chunks.size() < kOverhead) return std::nullopt;
  const std::size_t size = frame.chunks.size() - kOverhead;
  const std::byte* const behind = frame.chunks.data() + size;
  std::uint64_t count = 0;
  std::memcpy(&count, behind, sizeof count);
  if (count == 0 || !is_fresh(count)) return std::nullopt;
  const Outside outside(frame.header, count);
  const auto nonce = nonce_of(count);
  const std::byte* const tag = behind + kCount;
  opened_.resize(std::max(opened_.size(), size));
  const int fault = cipher_ == Cipher::aes256_gcm
                        ? ::crypto_aead_aes256gcm_decrypt_detached_afternm(
                              raw(opened_.data()), nullptr, raw(frame.chunks.data()), size, raw(tag),
                              outside.bytes.data(), outside.bytes.size(), nonce.data(), &in_->expanded)
                        : ::crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                              raw(opened_.data()), nullptr, raw(frame.chunks.data()), size, raw(tag),
                              outside.bytes.data(), outside.bytes.size(), nonce.data(), raw(in_->key.data()));
  if (fault != 0) return std::nullopt;
  remember(count);
  return std::span<const std::byte>(opened_).first(size);
}

// Numbers are remembered in a ring: those that the window has left behind are wiped as it moves on.
void Seal::remember(std::uint64_t count) {
  if (count > highest_) {
    if (count - highest_ >= kRemembered) {
      seen_.reset();
    } else {
      for (std::uint64_t each = highest_ + 1; each < count; ++each) seen_.reset(each % kRemembered);
    }
    highest_ = count;
  }
  seen_.set(count % kRemembered);
}

}  // namespace viaduct::net
