#include "io/crypto.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace divisi::io {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(CryptoTest, TheProofIsTheStandardHmac) {
  // RFC 4231, test cases 1, 2 and 6.
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(CryptoTest, AnEmptyKeyAndAnEmptyMessageAreFine) {
  EXPECT_EQ(hex(hmac_sha256(std::string_view(), {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(CryptoTest, Sha256OfPiecesIsThatOfTheWhole) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hexadecimal(hash.finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CryptoTest, EqualBytesAreEqual) {
  EXPECT_TRUE(equal_constant_time(bytes_of("abc"), bytes_of("abc")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("ab")));
  EXPECT_TRUE(equal_constant_time({}, {}));
}

TEST(CryptoTest, RandomBytesDoNotRepeat) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) seen.insert(random_u64());
  EXPECT_EQ(seen.size(), 1'000u);
  std::vector<std::byte> large(100'000);
  fill_random(large);
  EXPECT_NE(hex(std::span(large).last(16)), std::string(32, '0'));
}

}  // namespace
}  // namespace divisi::io
