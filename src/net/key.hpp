// The key that hosts have in common (VIADUCT_KEY_FILE): proofs that a frame of a meeting was written by somebody who
// has it, and the keys of one session. docs/formats/net.md, "With a key", says what is computed from what. The
// algorithms are libsodium's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"

namespace viaduct::net {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 16>;

enum class Cipher : std::uint8_t { chacha20_poly1305 = 1, aes256_gcm = 2 };

// Of one session, by who sends.
struct SessionKeys {
  std::array<std::byte, 32> of_connecting;
  std::array<std::byte, 32> of_accepting;
};

class Key {
 public:
  static constexpr std::size_t kLeast = 16;  // bytes of a file
  static constexpr std::size_t kMost = 4096;

  // The file must belong to this user or to root, and nobody else may have any right to it.
  static Result<Key> read(const std::string& path);
  static Key of(std::span<const std::byte> secret);
  ~Key();

  Proof proof(std::span<const std::byte> frame, std::span<const std::byte> context) const;
  bool proves(std::span<const std::byte> proof, std::span<const std::byte> frame,
              std::span<const std::byte> context) const;
  // `of_what` differs from session to session.
  SessionKeys session_keys(std::span<const std::byte> of_what) const;

  // Those that this machine has, as bits of their numbers; and the better one of both sides.
  static std::uint8_t ciphers();
  static Cipher best_of(std::uint8_t ciphers) {
    return (ciphers & static_cast<std::uint8_t>(Cipher::aes256_gcm)) != 0 ? Cipher::aes256_gcm
                                                                          : Cipher::chacha20_poly1305;
  }

 private:
  Key() = default;
  std::array<std::byte, 32> meeting_{}, session_{};
};

}  // namespace viaduct::net
