// The output of a trial: copied from its pipe into its log, the last line kept.
#pragma once

#include "io/process.h"

#include <string>
#include <string_view>

namespace divisi::local_trials {

class OutputLog {
 public:
  // `log` is open for appending; what cannot be written there is dropped, and problem() says why.
  OutputLog(io::Descriptor pipe, io::Descriptor log);

  int descriptor() const noexcept { return pipe_.get(); }  // -1 once the pipe has ended
  int log_descriptor() const noexcept { return log_.get(); }
  // Moves what the pipe has now, without waiting.
  void drain();
  // The last line that is not blank, with or without a newline at its end. Longer ones than
  // kMaxLine are nothing.
  std::string last_line() const;
  const std::string& problem() const noexcept { return problem_; }

  static constexpr std::size_t kMaxLine = std::size_t{1} << 20;  // a result, not a data set

 private:
  void write(std::string_view bytes);
  void keep(std::string_view bytes);
  void end_line();

  io::Descriptor pipe_;
  io::Descriptor log_;
  std::string line_;  // the one that is not complete
  std::string last_;  // the last complete one that is not blank
  std::string problem_;
};

}  // namespace divisi::local_trials
