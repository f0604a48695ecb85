#include "run/output.h"

#include "kube/time.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <unistd.h>

namespace divisi::run {
namespace {

// "[node 12] " at the start of a line: how long it is; 0 when it is not there.
std::size_t prefix_length(std::string_view text) {
  constexpr std::string_view kStart = "[node ";
  if (!text.starts_with(kStart)) return 0;
  std::size_t end = kStart.size();
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return end > kStart.size() && text.substr(end, 2) == "] " ? end + 2 : 0;
}

// Colours that are readable on light and dark ground.
std::string_view colour_of(int rank) {
  static constexpr std::array<std::string_view, 6> kColours{"\x1b[36m", "\x1b[33m", "\x1b[32m",
                                                            "\x1b[35m", "\x1b[34m", "\x1b[31m"};
  return kColours[static_cast<std::size_t>(rank) % kColours.size()];
}

}  // namespace

std::string prefixed(const OutputLine& line, int parallel_workers) {
  if (!line.worker.empty()) return fmt::format("[{}] {}", line.worker, line.text);
  if (prefix_length(line.text) > 0) return line.text;
  return fmt::format("[node {}] {}", line.rank * parallel_workers, line.text);
}

void PrintingSink::line(const OutputLine& line) {
  if (gone_) return;
  std::string text = prefixed(line, options_.parallel_workers);
  if (options_.coloured) {
    const std::size_t length =
        line.worker.empty() ? prefix_length(text) : line.worker.size() + std::size_t{3};
    text = fmt::format("{}{}\x1b[0m{}", colour_of(line.rank), text.substr(0, length),
                       text.substr(length));
  }
  if (options_.timestamps) text = kube::micro_time(line.time) + " " + text;
  text += '\n';
  gone_ =
      std::fwrite(text.data(), 1, text.size(), lines_) != text.size() || std::fflush(lines_) != 0;
}

void PrintingSink::note(std::string_view text) {
  std::fprintf(notes_, "%s: %.*s\n", options_.program.c_str(), static_cast<int>(text.size()),
               text.data());
}

bool colours_wanted(std::FILE* stream) {
  return ::isatty(::fileno(stream)) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace divisi::run
