#include "net/key.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "base/fd.hpp"

namespace viaduct::net {

namespace {

template <class Bytes>
auto raw(Bytes& bytes) {
  using Raw = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(bytes.data())>>, const unsigned char,
                                 unsigned char>;
  return reinterpret_cast<Raw*>(bytes.data());
}

void need_sodium() {
  if (::sodium_init() < 0) std::abort();  // there is no source of random numbers
}

std::span<const std::byte> without_blanks_at_the_end(std::span<const std::byte> bytes) {
  const auto blank = [](std::byte byte) {
    return byte == std::byte{'\n'} || byte == std::byte{'\r'} || byte == std::byte{' '} || byte == std::byte{'\t'};
  };
  while (!bytes.empty() && blank(bytes.back())) bytes = bytes.first(bytes.size() - 1);
  return bytes;
}

}  // namespace

Result<Key> Key::read(const std::string& path) {
  const std::string what = fmt::format("the key file {} (VIADUCT_KEY_FILE)", path);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return Error::from_errno("open " + what);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Error::from_errno("look at " + what);
  if (!S_ISREG(info.st_mode)) return Error(EINVAL, what + " is no ordinary file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Error(EACCES, fmt::format("{} belongs to user {}, who could change it: it has to be yours or root's", what,
                                     info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return Error(EACCES, fmt::format("{} has mode {:04o}: others must have no right to it; chmod 600 {}", what,
                                     info.st_mode & 07777, path));
  }
  std::array<std::byte, kMost + 1> bytes;
  const ssize_t size = ::read(file.get(), bytes.data(), bytes.size());
  if (size < 0) return Error::from_errno("read " + what);
  const auto secret = without_blanks_at_the_end(std::span(bytes).first(static_cast<std::size_t>(size)));
  if (secret.size() < kLeast || secret.size() > kMost) {
    return Error(EINVAL, fmt::format("{} has {} bytes: {} to {} that nobody can guess are needed; head -c 32 "
                                     "/dev/urandom makes some",
                                     what, secret.size(), kLeast, kMost));
  }
  Key key = of(secret);
  ::sodium_memzero(bytes.data(), bytes.size());
  return key;
}

Key Key::of(std::span<const std::byte> secret) {
  need_sodium();
  std::array<std::byte, 32> master;
  (void)::crypto_generichash(raw(master), master.size(), raw(secret), secret.size(), nullptr, 0);
  Key key;
  constexpr char kContext[] = "viaduct1";  // the 8 bytes that crypto_kdf asks for
  (void)::crypto_kdf_derive_from_key(raw(key.meeting_), key.meeting_.size(), 1, kContext, raw(master));
  (void)::crypto_kdf_derive_from_key(raw(key.session_), key.session_.size(), 2, kContext, raw(master));
  ::sodium_memzero(master.data(), master.size());
  return key;
}

Key::~Key() {
  ::sodium_memzero(meeting_.data(), meeting_.size());
  ::sodium_memzero(session_.data(), session_.size());
}

Proof Key::proof(std::span<const std::byte> frame, std::span<const std::byte> context) const {
  crypto_generichash_state state;
  Proof proof;
  (void)::crypto_generichash_init(&state, raw(meeting_), meeting_.size(), proof.size());
  (void)::crypto_generichash_update(&state, raw(frame), frame.size());
  (void)::crypto_generichash_update(&state, raw(context), context.size());
  (void)::crypto_generichash_final(&state, raw(proof), proof.size());
  return proof;
}

bool Key::proves(std::span<const std::byte> said, std::span<const std::byte> frame,
                 std::span<const std::byte> context) const {
  const Proof right = proof(frame, context);
  return said.size() == right.size() && ::sodium_memcmp(said.data(), right.data(), right.size()) == 0;
}

SessionKeys Key::session_keys(std::span<const std::byte> of_what) const {
  std::array<std::byte, 64> both;
  (void)::crypto_generichash(raw(both), both.size(), raw(of_what), of_what.size(), raw(session_), session_.size());
  SessionKeys keys;
  std::copy_n(both.begin(), 32, keys.of_connecting.begin());
  std::copy_n(both.begin() + 32, 32, keys.of_accepting.begin());
  ::sodium_memzero(both.data(), both.size());
  return keys;
}

std::uint8_t Key::ciphers() {
  need_sodium();
  const auto chacha = static_cast<std::uint8_t>(Cipher::chacha20_poly1305);
  const auto aes = static_cast<std::uint8_t>(Cipher::aes256_gcm);
  return ::crypto_aead_aes256gcm_is_available() != 0 ? chacha | aes : chacha;
}

}  // namespace viaduct::net
