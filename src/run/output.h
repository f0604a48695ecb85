// The output of a job's workers, merged: "[node 1] text" or "[pod] text", coloured by worker on a
// terminal.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace divisi::run {

struct OutputLine {
  int rank = 0;
  std::string worker{};  // its name, where workers have names: a pod's
  std::chrono::system_clock::time_point time{};
  bool is_error = false;  // standard error
  bool is_note = false;   // about the job itself; of no worker
  std::string text{};     // without a newline
};

// Where a backend puts the lines of a job, and what it has to say meanwhile.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void line(const OutputLine& line) = 0;
  virtual void note(std::string_view text) = 0;  // progress: one line about the job itself
};

// "[node 3] text": ditask's own prefix is kept, so that a line has one. "[train-work-0] text" of a
// worker with a name.
std::string prefixed(const OutputLine& line, int parallel_workers);

// Prints lines to one stream and notes to another ("divisi run: ...").
class PrintingSink : public OutputSink {
 public:
  struct Options {
    int parallel_workers = 1;
    bool coloured = false;  // colours_wanted()
    bool timestamps = false;
    std::string program = "divisi run";  // in front of notes
  };
  PrintingSink(std::FILE* lines, std::FILE* notes, Options options)
      : lines_(lines), notes_(notes), options_(std::move(options)) {}

  void line(const OutputLine& line) override;
  void note(std::string_view text) override;
  bool reader_has_gone() const noexcept { return gone_; }  // the stream took no more

 private:
  std::FILE* const lines_;
  std::FILE* const notes_;
  const Options options_;
  bool gone_ = false;
};

// A terminal, and NO_COLOR is not set.
bool colours_wanted(std::FILE* stream);

}  // namespace divisi::run
