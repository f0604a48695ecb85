#include "io/crypto.h"

#include "base/status.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <sys/random.h>

namespace divisi::io {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    DIVISI_CHECK(n > 0 || errno == EINTR, "the kernel gives random bytes");
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

Digest hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  Digest digest{};
  unsigned length = 0;
  // HMAC() refuses a null key, which an empty string_view may carry.
  const void* const key_data = key.empty() ? "" : key.data();
  HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &length);
  DIVISI_CHECK(length == digest.size(), "SHA-256 gives 32 bytes");
  return digest;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  DIVISI_CHECK(context_ != nullptr, "there is memory for a hash");
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}

void Sha256::update(std::string_view bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size());
}

Digest Sha256::finish() {
  Digest digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_),
                     reinterpret_cast<unsigned char*>(digest.data()), &length);
  DIVISI_CHECK(length == digest.size(), "SHA-256 gives 32 bytes");
  return digest;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

std::array<std::byte, 20> sha1(std::string_view text) {
  std::array<std::byte, 20> digest{};
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
             EVP_sha1(), nullptr);
  DIVISI_CHECK(length == digest.size(), "SHA-1 gives 20 bytes");
  return digest;
}

bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace divisi::io
