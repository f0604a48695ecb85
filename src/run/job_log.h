// The output of a job on disk: one file for all workers, in the order in which lines came.
//
//   2026-11-17T14:00:00.123456Z 2 o the line          o: standard output, e: standard error
//   2026-11-17T14:00:00.123456Z 2:pod-2 o the line    of a worker with a name
//   2026-11-17T14:00:00.123456Z 0 n Running: all...   n: about the job itself
//
// One process appends whole lines, any number read. What a full disk does not take is dropped and
// told of once.
#pragma once

#include "base/status.h"
#include "io/process.h"
#include "run/output.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::run {

std::string log_line(const OutputLine& line);
std::optional<OutputLine> parse_log_line(std::string_view text);

class JobLogWriter {
 public:
  static Result<JobLogWriter> open(const std::string& path);
  void write(const std::vector<OutputLine>& lines);
  const std::string& problem() const noexcept { return problem_; }  // empty: none

 private:
  explicit JobLogWriter(io::Descriptor file) : file_(std::move(file)) {}
  io::Descriptor file_;
  std::string problem_;
};

// Lines of a pipe: complete ones as they come, the rest at its end. Longer ones are cut.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 10;
  std::vector<std::string> add(std::string_view piece);
  std::vector<std::string> finish();

 private:
  std::string partial_;
};

class JobLogReader {
 public:
  explicit JobLogReader(std::string path) : path_(std::move(path)) {}
  // The next complete lines: about kMostAtOnce bytes of the file, however long that is. A file that
  // is not there yet has none.
  std::vector<OutputLine> take();
  // Whether the last take() came to the end of the file.
  bool at_end() const noexcept { return at_end_; }

  static constexpr std::size_t kMostAtOnce = std::size_t{4} << 20;

 private:
  bool at_end_ = true;
  std::string path_;
  io::Descriptor file_;
  std::string partial_;
};

}  // namespace divisi::run
