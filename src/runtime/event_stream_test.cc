#include "runtime/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace divisi::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Heard = std::vector<std::pair<std::string, std::string>>;

// All that a text says, when it comes `most` bytes at a time.
Heard read(std::string_view text, std::size_t most) {
  Heard heard;
  EventStream stream;
  while (!text.empty()) {
    const auto piece = text.substr(0, most);
    EXPECT_TRUE(stream
                    .write(piece, [&](std::string_view event,
                                      std::string_view data) { heard.emplace_back(event, data); })
                    .ok());
    text.remove_prefix(piece.size());
  }
  return heard;
}

TEST(EventStreamTest, AnyCutOfTheBytesGivesTheSameEvents) {
  constexpr std::string_view kText =
      ": still here\n\nevent: members\ndata: {\"members\":[]}\n\r\ndata: three\r\n\n"
      "data: one\r\ndata:two\rid: 7\revent:other\r\n\r\ndata\n\nevent: without data\n\ndata: cut "
      "off";
  for (std::size_t most = 1; most <= kText.size(); ++most) {
    EXPECT_THAT(read(kText, most),
                ElementsAre(Pair("members", "{\"members\":[]}"), Pair("message", "three"),
                            Pair("other", "one\ntwo"), Pair("message", "")))
        << most << " bytes at a time";
  }
}

TEST(EventStreamTest, AnEventThatNeverEndsIsRefused) {
  EventStream stream(100);
  const auto ignore = [](std::string_view, std::string_view) {};
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(stream.write("data: 1234\n", ignore).ok());
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "data: 1234\n";
  EXPECT_THAT(stream.write(lines, ignore).message(), HasSubstr("more than 100 bytes"));

  EventStream line(100);
  EXPECT_FALSE(line.write(std::string(101, 'x'), ignore).ok());
}

}  // namespace
}  // namespace divisi::runtime
