#include "pickle/writer.h"

#include "pickle/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::pickle {
namespace {

TEST(PickleWriterTest, WhatIsWrittenIsReadBack) {
  const auto document = json::parse(
      R"({"a":[1,-1,2147483648,-9223372036854775808,0.25,true,false,null,"",{}],"ü":{"x":[]}})");
  ASSERT_TRUE(document);
  for (const int protocol : {2, 3, 4}) {
    const auto bytes = save(*document, protocol);
    ASSERT_TRUE(bytes) << bytes.error().message();
    const auto value = load(*bytes);
    ASSERT_TRUE(value) << value.error().message();
    EXPECT_EQ(*to_json(*value), *document);
  }
}

TEST(PickleWriterTest, TextsOfEveryLengthAreReadBack) {
  for (const std::size_t size : {0U, 1U, 255U, 256U, 257U, 1000U}) {
    const json::Value document(std::string(size, 'x'));
    for (const int protocol : {2, 4}) {
      const auto value = load(*save(document, protocol));
      ASSERT_TRUE(value) << size << ": " << value.error().message();
      EXPECT_EQ(*to_json(*value), document) << size;
    }
  }
}

TEST(PickleWriterTest, RefusesProtocolsAndDepthsThatItDoesNotWrite) {
  EXPECT_EQ(save({}, 1).error().message(), "pickle protocol 1: expected 2, 3 or 4");
  EXPECT_EQ(save({}, 5).error().message(), "pickle protocol 5: expected 2, 3 or 4");
  json::Value deep;
  for (int i = 0; i < 501; ++i) {
    json::Array outer;
    outer.push_back(std::move(deep));
    deep = json::Value(std::move(outer));
  }
  EXPECT_THAT(save(deep).error().message(), ::testing::HasSubstr("deeper than 500"));
}

}  // namespace
}  // namespace divisi::pickle
