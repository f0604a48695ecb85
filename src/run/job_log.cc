#include "run/job_log.h"

#include "kube/time.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <unistd.h>

namespace divisi::run {

std::string log_line(const OutputLine& line) {
  const char kind = line.is_note ? 'n' : line.is_error ? 'e' : 'o';
  return fmt::format("{} {}{}{} {} {}\n", kube::micro_time(line.time), line.rank,
                     line.worker.empty() ? "" : ":", line.worker, kind, line.text);
}

std::optional<OutputLine> parse_log_line(std::string_view text) {
  OutputLine line;
  const std::size_t time_end = text.find(' ');
  if (time_end == std::string_view::npos) return std::nullopt;
  const auto time = kube::parse_time(text.substr(0, time_end));
  const std::string_view rest = text.substr(time_end + 1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), line.rank);
  auto at = static_cast<std::size_t>(end - rest.data());
  if (at < rest.size() && rest[at] == ':') {
    const std::size_t name_end = rest.find(' ', at);
    if (name_end == std::string_view::npos) return std::nullopt;
    line.worker = rest.substr(at + 1, name_end - at - 1);
    at = name_end;
  }
  if (!time || error != std::errc() || rest.size() < at + 3 || rest[at] != ' ' ||
      rest[at + 2] != ' ') {
    return std::nullopt;
  }
  line.time = *time;
  line.is_error = rest[at + 1] == 'e';
  line.is_note = rest[at + 1] == 'n';
  line.text = rest.substr(at + 3);
  return line;
}

Result<JobLogWriter> JobLogWriter::open(const std::string& path) {
  io::Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return failure(Code::kUnavailable, "opening {}: {}", path, errno_text(errno));
  return JobLogWriter(std::move(file));
}

void JobLogWriter::write(const std::vector<OutputLine>& lines) {
  std::string text;
  for (const OutputLine& line : lines) text += log_line(line);
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (problem_.empty()) problem_ = "output was lost: " + errno_text(errno);
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::vector<std::string> LineSplitter::add(std::string_view piece) {
  std::vector<std::string> lines;
  partial_ += piece;
  std::size_t start = 0;
  for (std::size_t end = partial_.find('\n'); end != std::string::npos;
       end = partial_.find('\n', start)) {
    lines.push_back(partial_.substr(start, end - start));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    start = end + 1;
  }
  partial_.erase(0, start);
  while (partial_.size() >= kMaxLine) {
    lines.push_back(partial_.substr(0, kMaxLine));
    partial_.erase(0, kMaxLine);
  }
  return lines;
}

std::vector<std::string> LineSplitter::finish() {
  if (partial_.empty()) return {};
  return {std::exchange(partial_, {})};
}

std::vector<OutputLine> JobLogReader::take() {
  std::vector<OutputLine> lines;
  if (!file_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_) return lines;
  std::string piece(std::size_t{256} << 10, '\0');
  at_end_ = false;
  while (!at_end_ && partial_.size() < kMostAtOnce) {
    const ssize_t got = ::read(file_.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    at_end_ = got <= 0;
    if (!at_end_) partial_.append(piece, 0, static_cast<std::size_t>(got));
  }
  std::size_t start = 0;
  for (std::size_t end = partial_.find('\n'); end != std::string::npos;
       end = partial_.find('\n', start)) {
    if (auto line = parse_log_line(std::string_view(partial_).substr(start, end - start))) {
      lines.push_back(*std::move(line));
    }
    start = end + 1;
  }
  partial_.erase(0, start);
  return lines;
}

}  // namespace divisi::run
