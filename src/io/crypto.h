// What handshakes need of cryptography: random bytes, a keyed proof, a hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace divisi::io {

using Digest = std::array<std::byte, 32>;

void fill_random(std::span<std::byte> bytes);
std::uint64_t random_u64();

Digest hmac_sha256(std::string_view key, std::span<const std::byte> message);

// A content's name: SHA-256 of what update() was given, piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::string_view bytes);
  Digest finish();  // once, last

 private:
  void* context_;
};

// "0a1b...", two digits a byte.
std::string hexadecimal(std::span<const std::byte> bytes);

// For protocols that ask for it (WebSocket); it protects nothing.
std::array<std::byte, 20> sha1(std::string_view text);

// Takes the same time whatever differs.
bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace divisi::io
