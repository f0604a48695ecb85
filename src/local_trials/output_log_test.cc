#include "local_trials/output_log.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

struct Feed {
  io::PipePair pipe = *io::make_pipe();
  io::Descriptor log{*io::make_memory_file("log", "")};
  int log_copy = ::dup(log.get());
  OutputLog output{std::move(pipe.read), std::move(log)};

  void give(const std::string& text) {
    ASSERT_EQ(::write(pipe.write.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    output.drain();
  }
  ~Feed() { ::close(log_copy); }
};

TEST(OutputLogTest, LineInPiecesIsOneLine) {
  Feed feed;
  feed.give("0.");
  feed.give("25");
  EXPECT_EQ(feed.output.last_line(), "0.25");
  feed.give("\n \n");
  EXPECT_EQ(feed.output.last_line(), "0.25");
  EXPECT_EQ(*io::read_from_start(feed.log_copy), "0.25\n \n");
}

TEST(OutputLogTest, LineBeyondTheLimitIsNoResult) {
  Feed feed;
  const std::string piece(60000, '1');
  for (std::size_t size = 0; size <= OutputLog::kMaxLine; size += piece.size()) feed.give(piece);
  EXPECT_EQ(feed.output.last_line(), "");
  feed.give("\n7\n");
  EXPECT_EQ(feed.output.last_line(), "7");
}

TEST(OutputLogTest, LogThatCannotBeWrittenIsAProblemAndTheLineIsKept) {
  io::PipePair pipe = *io::make_pipe();
  OutputLog output(std::move(pipe.read), io::Descriptor(::open("/dev/full", O_WRONLY | O_CLOEXEC)));
  ASSERT_EQ(::write(pipe.write.get(), "3\n", 2), 2);
  output.drain();
  EXPECT_EQ(output.problem(), "No space left on device");
  EXPECT_EQ(output.last_line(), "3");
}

}  // namespace
}  // namespace divisi::local_trials
