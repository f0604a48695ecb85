// What workers print, on its way to the launcher's own stdout and stderr: whole lines, each with
// the node it came from.
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace divisi::runtime {

// One of our output streams. Lines queue here; write_some() moves them on without ever blocking the
// loop that also watches processes and signals, though whoever reads our output may have stopped.
class OutputSink {
 public:
  explicit OutputSink(int fd) : fd_(fd) {}

  int fd() const noexcept { return fd_; }
  void append(std::string_view bytes) {
    if (error_ == 0) pending_ += bytes;
  }
  bool has_pending() const noexcept { return !pending_.empty(); }
  // Workers are not read while this is true, so that they wait and our memory does not grow.
  bool is_full() const noexcept { return pending_.size() > kFull; }

  // Needs SIGPIPE blocked or ignored. A reader that has gone away loses the rest of the output; the
  // run goes on.
  void write_some();
  int error() const noexcept { return error_; }  // the errno that made it give up, or 0

 private:
  static constexpr std::size_t kFull = 256 << 10;

  int fd_;
  int error_ = 0;
  std::string pending_;
};

// All that one worker prints, as it was printed.
class LogFile {
 public:
  static Result<std::unique_ptr<LogFile>> open(std::string path);  // appends

  // A full disk does not stop the run, but somebody should know: it complains once.
  void write(std::string_view bytes);

 private:
  LogFile(std::string path, io::Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const io::Descriptor file_;
  bool complained_ = false;
};

// The lines of one stream of one worker.
class LineRelay {
 public:
  struct Options {
    OutputSink* sink = nullptr;
    std::string prefix;         // "[node 3] " or empty
    LogFile* log = nullptr;     // also there
    std::size_t keep_last = 0;  // lines for tail()
  };

  LineRelay(Options options, io::Descriptor source);

  int fd() const noexcept { return source_.get(); }
  bool ended() const noexcept { return !source_; }
  OutputSink& sink() const noexcept { return *options_.sink; }

  // Reads what is there now (at most a bounded amount). False at the end of the stream.
  bool read_some();
  // Whatever is still readable, then a last line without its newline, then closes.
  void finish();
  std::string tail() const;

 private:
  void take(std::string_view bytes);
  void put_line(std::string_view line);

  const Options options_;
  io::Descriptor source_;
  std::string partial_;
  std::deque<std::string> last_;
};

// "[node 3] ", in a colour of its own when `coloured`.
std::string node_prefix(int node_id, bool coloured);
// A terminal that wants colour (NO_COLOR is not set).
bool wants_colour(int fd);

}  // namespace divisi::runtime
