// The writers. That TensorBoard itself reads the files: tests/integration/test_event_files.py.
#include "divisi/writer.h"

#include "divisi/error.h"
#include "runtime/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/resource.h>

namespace divisi {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    std::string pattern = (fs::temp_directory_path() / "divisi_test_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~WriterTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string contents(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  // The data of each frame; the sums are checked.
  static std::vector<std::string> records(const std::string& bytes) {
    std::vector<std::string> found;
    for (std::size_t at = 0; at < bytes.size();) {
      std::uint64_t size = 0;
      std::memcpy(&size, bytes.data() + at, sizeof size);
      found.push_back(bytes.substr(at + 12, size));
      EXPECT_EQ(runtime::tf_record(found.back()), bytes.substr(at, size + 16));
      at += size + 16;
    }
    return found;
  }
  std::vector<fs::path> event_files(const std::string& dir) const {
    std::vector<fs::path> files;
    if (!fs::exists(dir)) return files;
    for (const auto& entry : fs::directory_iterator(dir)) files.push_back(entry.path());
    return files;
  }

  fs::path folder_;
};

TEST_F(WriterTest, TheSumIsTheOneOfCastagnoli) {
  EXPECT_EQ(runtime::crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(runtime::crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST_F(WriterTest, AScalarIsTheseBytes) {
  // wall_time 1.5, step 300, summary { value { tag "loss" simple_value 0.25 } }
  EXPECT_EQ(runtime::scalar_event(1.5, "loss", 0.25, 300),
            std::string("\x09\0\0\0\0\0\0\xf8\x3f"
                        "\x10\xac\x02"
                        "\x2a\x0d\x0a\x0b"
                        "\x0a\x04loss\x15\0\0\x80\x3e",
                        9 + 3 + 4 + 11));
}

TEST_F(WriterTest, TheFileIsMadeByTheFirstFigure) {
  TensorBoardWriter writer(path("log"));
  EXPECT_FALSE(fs::exists(path("log")));
  writer.add_scalar("loss", 0.5, 1);
  EXPECT_THAT(writer.path(), HasSubstr("events.out.tfevents."));
  // Readable at once, without a flush or close.
  const auto found = records(contents(writer.path()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], EndsWith("brain.Event:2"));
  EXPECT_THAT(found[1], HasSubstr("loss"));
  writer.close();
  writer.add_scalar("loss", 0.5, 2);  // ignored
  EXPECT_EQ(event_files(path("log")).size(), 1u);
}

TEST_F(WriterTest, TwoWritersOfAFolderHaveTwoFiles) {
  TensorBoardWriter one(path("log"));
  TensorBoardWriter two(path("log"));
  one.add_scalar("a", 1, 1);
  two.add_scalar("b", 1, 1);
  EXPECT_EQ(event_files(path("log")).size(), 2u);
}

TEST_F(WriterTest, AFullDiskIsAnErrorAndTheFileStaysReadable) {
  TensorBoardWriter writer(path("log"));
  writer.add_scalar("loss", 0.5, 1);
  const std::string before = contents(writer.path());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{before.size() + 1000, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THAT([&] { writer.add_text("text", std::string(5000, 'x'), 1); },
              ThrowsMessage<Error>(HasSubstr("File too large")));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(contents(writer.path()), before);
  writer.add_scalar("loss", 0.25, 2);
  EXPECT_EQ(records(contents(writer.path())).size(), 3u);
}

TEST_F(WriterTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(path("file")) << "x";
  TensorBoardWriter writer(path("file/log"));
  EXPECT_THAT([&] { writer.add_scalar("loss", 1, 1); },
              ThrowsMessage<Error>(HasSubstr("file/log")));
}

TEST_F(WriterTest, LinesOfJson) {
  JsonLinesLogger logger(path("deep/log.jsonl"));
  logger.add_scalar("loss", 0.25, 3);
  logger.add_scalar("lo\"ss\n", std::numeric_limits<double>::quiet_NaN(), 4);
  logger.add_text("note", "a\\b", 5);
  const std::vector<double> values{1, 3, std::numeric_limits<double>::infinity()};
  logger.add_histogram("weights", values, 6);
  std::istringstream lines(contents(path("deep/log.jsonl")));
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line,
              MatchesRegex(R"(\{"time": [0-9.]+, "tag": "loss", "step": 3, "value": 0.25\})"));
  std::getline(lines, line);
  EXPECT_THAT(line, EndsWith(R"("tag": "lo\"ss\u000a", "step": 4, "value": "NaN"})"));
  std::getline(lines, line);
  EXPECT_THAT(line, EndsWith(R"("step": 5, "text": "a\\b"})"));
  std::getline(lines, line);
  EXPECT_THAT(line, HasSubstr(R"("histogram": {"count": 2, "min": 1)"));
  // A later run goes on at the end.
  JsonLinesLogger(path("deep/log.jsonl")).add_scalar("loss", 1, 1);
  EXPECT_THAT(contents(path("deep/log.jsonl")), HasSubstr("\"step\": 6"));
}

TEST_F(WriterTest, TheConsole) {
  ConsoleLogger logger;
  ::testing::internal::CaptureStdout();
  logger.add_scalar("train/loss", 0.25, 3);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "step 3  train/loss 0.25\n");
}

TEST_F(WriterTest, WithoutAJobAWriterWritesItself) {
  const auto writer = DistributedWriter::get_instance(path("log"));
  const auto second = DistributedWriter::get_instance(path("other"));
  EXPECT_EQ(DistributedWriter::get_instance(), writer) << "the first is the root";
  writer->plugin(Parallel::instance(), false);  // no job: nothing to plug into
  writer->also(std::make_shared<JsonLinesLogger>(path("log.jsonl")));
  EXPECT_FALSE(fs::exists(path("log")));
  writer->add_scalars("return", {{"max", 2}, {"min", 1}}, 7);
  const auto files = event_files(path("log"));
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(records(contents(files[0])).size(), 3u);
  EXPECT_THAT(contents(path("log.jsonl")), HasSubstr("\"return/min\", \"step\": 7, \"value\": 1"));
}

}  // namespace
}  // namespace divisi
