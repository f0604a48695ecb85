// Headers, URLs and the small encodings.
#include "http/message.h"

#include "http/base64.h"
#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HeadersTest, NamesCompareWithoutRegardToCase) {
  Headers headers{{"Content-Type", "text/plain"}, {"X", "1"}, {"x", "2"}};
  EXPECT_EQ(headers.get("content-TYPE"), "text/plain");
  EXPECT_EQ(headers.get("X"), "1");
  EXPECT_EQ(headers.get("Y"), "");
  headers.set("x", "3");
  EXPECT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers.get("X"), "3");
  headers.remove("X");
  EXPECT_FALSE(headers.has("x"));
}

TEST(HeadersTest, ListsAreSearchedTokenByToken) {
  const Headers headers{{"Connection", "keep-alive, Upgrade"}, {"Connection", "close"}};
  EXPECT_TRUE(headers.lists("connection", "upgrade"));
  EXPECT_TRUE(headers.lists("connection", "Close"));
  EXPECT_FALSE(headers.lists("connection", "grade"));
  EXPECT_FALSE(headers.lists("connection", ""));
}

TEST(MessageTest, ComponentsSurviveEncoding) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  std::string decoded;
  ASSERT_TRUE(decode_component(encode_component(all), decoded));
  EXPECT_EQ(decoded, all);
  EXPECT_EQ(encode_component("a/b c=1~"), "a%2Fb%20c%3D1~");
  for (const char* bad : {"%", "%1", "%zz", "a%2"})
    EXPECT_FALSE(decode_component(bad, decoded)) << bad;
}

TEST(MessageTest, StatusesHaveTheirPhrases) {
  EXPECT_EQ(reason_phrase(404), "Not Found");
  EXPECT_EQ(reason_phrase(100), "Continue");
  EXPECT_EQ(reason_phrase(507), "Insufficient Storage");
  EXPECT_EQ(reason_phrase(299), "");
}

TEST(Base64Test, BytesSurviveAndNothingElseIsAccepted) {
  const std::pair<const char*, const char*> known[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : known) {
    EXPECT_EQ(encode_base64(plain), encoded);
    EXPECT_EQ(decode_base64(encoded), plain);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Zh==", "=Zg=", "Zg==Zg==", "Zm9\n"}) {
    EXPECT_EQ(decode_base64(bad), std::nullopt) << bad;
  }
}

TEST(UrlTest, PartsAreFound) {
  const auto full = Url::parse("https://user:p%40ss@[::1]:6443/base/path/");
  ASSERT_TRUE(full.has_value()) << full.error().message();
  EXPECT_TRUE(full->tls);
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->port, 6443);
  EXPECT_EQ(full->path, "/base/path");
  EXPECT_EQ(full->user, "user:p@ss");
  EXPECT_EQ(full->host_header(), "[::1]:6443");
  EXPECT_EQ(full->origin(), "https://[::1]:6443");
  const auto short_one = Url::parse("HTTP://example.org");
  ASSERT_TRUE(short_one.has_value());
  EXPECT_EQ(short_one->port, 80);
  EXPECT_EQ(short_one->path, "");
  EXPECT_EQ(short_one->host_header(), "example.org");
  EXPECT_EQ(short_one->authority(), "example.org:80");
}

TEST(UrlTest, WhatIsNoneIsRefusedWithoutItsPassword) {
  for (const char* bad :
       {"", "example.org", "ftp://example.org", "http://", "http://:80", "http://a:0",
        "http://a:99999", "http://a:b", "http://[::1", "http://[::1]x", "http://a/?q",
        "http://a/#f", "http://a b/", "http://a/ b", "http://u%zz@a"}) {
    EXPECT_FALSE(Url::parse(bad).has_value()) << bad;
  }
  EXPECT_THAT(Url::parse("http://me:secret@host:port").error().message(), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace divisi::http
