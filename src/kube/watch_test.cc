#include "kube/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::kube {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kStream =
    "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n"
    "{\"type\":\"BOOKMARK\",\"object\":{}}\r\n"
    "{\"type\":\"DELETED\",\"object\":{\"a\":\"\\n\"}}\n";

std::string told(WatchDecoder& decoder, std::string_view piece) {
  std::string text;
  const Status status = decoder.feed(piece, [&](const WatchEvent& event) {
    text += std::to_string(static_cast<int>(event.type)) + json::print(event.object) + ";";
    return true;
  });
  return status.ok() ? text : status.message();
}

TEST(WatchDecoderTest, AnyCutGivesTheSameEvents) {
  WatchDecoder whole;
  const std::string expected = told(whole, kStream);
  EXPECT_EQ(expected, "0{\"a\":1};3{};2{\"a\":\"\\n\"};");
  for (std::size_t cut = 0; cut <= kStream.size(); ++cut) {
    WatchDecoder decoder;
    const std::string first = told(decoder, kStream.substr(0, cut));
    EXPECT_EQ(first + told(decoder, kStream.substr(cut)), expected);
    EXPECT_FALSE(decoder.partial());
  }
  WatchDecoder bytewise;
  std::string text;
  for (std::size_t i = 0; i < kStream.size(); ++i) text += told(bytewise, kStream.substr(i, 1));
  EXPECT_EQ(text, expected);
}

TEST(WatchDecoderTest, WhatIsNoEventIsNamed) {
  for (const auto& [stream, message] : std::vector<std::pair<std::string, std::string>>{
           {"<html>\n", "is not JSON"},
           {"{\"type\":\"ADDED\"}\n", "type \"ADDED\""},
           {"{\"type\":\"NEW\",\"object\":{}}\n", "\"NEW\""},
           {"[]\n", "type \"\""},
           {"{\"type\":\"ADDED\",\"object\":3}\n", "ADDED"}}) {
    WatchDecoder decoder;
    EXPECT_THAT(told(decoder, stream), HasSubstr(message)) << stream;
  }
}

TEST(WatchDecoderTest, AnEventIsBoundedHoweverItComes) {
  WatchDecoder decoder(100);
  EXPECT_EQ(told(decoder, std::string(60, ' ')), "");
  EXPECT_TRUE(decoder.partial());
  EXPECT_THAT(told(decoder, std::string(60, ' ')), HasSubstr("larger than 100 bytes"));
}

TEST(WatchDecoderTest, TheRestOfAPieceIsLeftAloneWhenNobodyWantsIt) {
  WatchDecoder decoder;
  int events = 0;
  EXPECT_TRUE(decoder.feed(kStream, [&](const WatchEvent&) { return ++events < 2; }).ok());
  EXPECT_EQ(events, 2);
}

}  // namespace
}  // namespace divisi::kube
