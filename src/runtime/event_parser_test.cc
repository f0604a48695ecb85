// The reader of event files. That it reads what TensorFlow's writers write:
// python/tests/test_tune_tensorboard.py.
#include "runtime/event_parser.h"

#include "base/testing/temp_folder.h"
#include "divisi/error.h"
#include "runtime/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace divisi::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> shown(const std::vector<Scalar>& scalars) {
  std::vector<std::string> lines;
  for (const Scalar& one : scalars) {
    lines.push_back(fmt::format("{} {} {}", one.tag, one.step, one.value));
  }
  return lines;
}

std::string example() {
  return tf_record(file_version_event(1)) + tf_record(scalar_event(2, "loss", 0.5, 10)) +
         tf_record(text_event(2, "note", "hello", 10)) +
         tf_record(histogram_event(3, "weights", std::vector<double>{1, 2, 3}, 10)) +
         tf_record(scalar_event(4.5, "loss", 0.25, 20));
}

TEST(EventParserTest, GivesTheScalarsWhateverThePieces) {
  const std::string file = example();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, file.size()}) {
    EventParser parser;
    std::vector<Scalar> found;
    for (std::size_t at = 0; at < file.size(); at += piece) {
      ASSERT_TRUE(parser.feed(std::string_view(file).substr(at, piece), found).ok());
    }
    EXPECT_THAT(shown(found), ElementsAre("loss 10 0.5", "loss 20 0.25"));
    EXPECT_EQ(found[1].time, 4.5);
  }
}

TEST(EventParserTest, AByteThatWasChangedEndsTheFile) {
  const std::string file = example();
  const std::size_t second = tf_record(file_version_event(1)).size();
  const std::size_t third = second + tf_record(scalar_event(2, "loss", 0.5, 10)).size();
  for (std::size_t at = second; at < third; ++at) {
    std::string changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EventParser parser;
    std::vector<Scalar> found;
    const Status fed = parser.feed(changed, found);
    EXPECT_FALSE(fed.ok()) << at;
    EXPECT_THAT(fed.message(), HasSubstr(fmt::format("at byte {}", second)));
    EXPECT_THAT(found, IsEmpty());
    EXPECT_FALSE(parser.feed("", found).ok());
  }
}

TEST(EventParserTest, ALargeRecordIsPassedOver) {
  const std::string large = tf_record(std::string((std::size_t{16} << 20) + 1, 'x'));
  const std::string file = large + example();
  EventParser parser;
  std::vector<Scalar> found;
  for (std::size_t at = 0; at < file.size(); at += 1 << 20) {
    ASSERT_TRUE(parser.feed(std::string_view(file).substr(at, 1 << 20), found).ok());
  }
  EXPECT_THAT(shown(found), ElementsAre("loss 10 0.5", "loss 20 0.25"));
}

TEST(EventParserTest, ALengthBeyondAnyFileSkipsTheRest) {
  std::string head(8, '\xff');
  const std::uint32_t sum = masked_crc(head);
  head.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  EventParser parser;
  std::vector<Scalar> found;
  EXPECT_TRUE(parser.feed(head, found).ok());
  EXPECT_TRUE(parser.feed(example(), found).ok());
  EXPECT_THAT(found, IsEmpty());
}

class ScalarReaderTest : public ::testing::Test {
 protected:
  void append(std::string_view bytes) const {
    std::ofstream(path_, std::ios::app | std::ios::binary) << bytes;
  }

  const divisi::testing::TempFolder folder_;
  const std::string path_ = folder_ / "events.out.tfevents.1";
};

TEST_F(ScalarReaderTest, FollowsAFileThatGrows) {
  ScalarReader reader(path_);
  EXPECT_THAT(reader.read(), IsEmpty()) << "it is not there yet";
  const std::string file = example();
  append(file.substr(0, 100));
  const std::vector<Scalar> first = reader.read();
  EXPECT_THAT(shown(first), ElementsAre("loss 10 0.5"));
  EXPECT_THAT(reader.read(), IsEmpty());
  append(file.substr(100));
  EXPECT_THAT(shown(reader.read()), ElementsAre("loss 20 0.25"));
}

TEST_F(ScalarReaderTest, WhatIsNoEventFileIsAnErrorOnce) {
  append(example());
  append("this is not a record, however long it is");
  ScalarReader reader(path_);
  EXPECT_EQ(reader.read().size(), 2u);
  EXPECT_THROW(reader.read(), Error);
  EXPECT_THAT(reader.read(), IsEmpty());
  ScalarReader folder(folder_.path());
  EXPECT_THROW(folder.read(), Error);
}

}  // namespace
}  // namespace divisi::runtime
