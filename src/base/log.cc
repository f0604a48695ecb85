#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <utility>

namespace divisi::log {

namespace detail {
std::atomic<Level> threshold{Level::kInfo};
}

namespace {

using Line = fmt::memory_buffer;

constexpr std::array kNames = {"debug", "info", "warning", "error", "off"};
constexpr std::array kColours = {"\033[2m", "\033[32m", "\033[33m", "\033[31m", ""};
constexpr std::string_view kPlain = "\033[0m";

void append(Line& line, std::string_view text) {
  line.append(text.data(), text.data() + text.size());
}

// The length of the well-formed UTF-8 character at the start of `text`, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t length = 0;
  unsigned low = 0x80;  // bounds of the second byte: overlong forms and surrogates are refused
  unsigned high = 0xBF;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) {
    length = 2;
  } else if (byte(0) >= 0xE0 && byte(0) <= 0xEF) {
    length = 3;
    if (byte(0) == 0xE0) low = 0xA0;
    if (byte(0) == 0xED) high = 0x9F;
  } else if (byte(0) >= 0xF0 && byte(0) <= 0xF4) {
    length = 4;
    if (byte(0) == 0xF0) low = 0x90;
    if (byte(0) == 0xF4) high = 0x8F;
  }
  if (length == 0 || text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

// Text from elsewhere (a peer's message, a file name) must neither break the line nor steer the
// terminal: control characters are written as escapes. JSON needs its two more and valid UTF-8.
void append_escaped(Line& line, std::string_view text, bool json) {
  while (!text.empty()) {
    const char first = text.front();
    const std::size_t length = utf8_length(text);
    if (first == '\n') {
      append(line, "\\n");
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7F) {
      append(line, json ? "\\u00" : "\\x");
      fmt::format_to(std::back_inserter(line), "{:02x}", static_cast<unsigned>(first));
    } else if (length == 0) {
      append(line, json ? "\\ufffd" : "\xEF\xBF\xBD");
    } else {
      if (json && (first == '"' || first == '\\')) line.push_back('\\');
      append(line, text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

void append_time(Line& line, spdlog::log_clock::time_point when) {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::seconds;
  const auto since_epoch = duration_cast<milliseconds>(when.time_since_epoch());
  const std::time_t whole = duration_cast<seconds>(since_epoch).count();
  std::tm utc{};
  gmtime_r(&whole, &utc);
  fmt::format_to(std::back_inserter(line), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                 utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                 utc.tm_sec, since_epoch.count() % 1000);
}

bool is_colour_terminal() {
  const char* const term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr && term != nullptr &&
         std::string_view(term) != "dumb";
}

// One write() a line: atomic on a pipe up to PIPE_BUF and on a file opened for appending. Only a
// full non-blocking pipe or a longer line needs more than one. A lost stderr loses the line.
void write_whole(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

Level from_spdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug: return Level::kDebug;
    case spdlog::level::info: return Level::kInfo;
    case spdlog::level::warn: return Level::kWarning;
    default: return Level::kError;
  }
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    default: return spdlog::level::err;
  }
}

// spdlog calls sink_it_ with mutex_ held; the setters take the same mutex.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_identity(std::string job, int node) {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    node_ = node;
    has_identity_ = true;
  }

  void set_json(bool json) {
    const std::lock_guard lock(mutex_);
    json_ = json;
  }

  std::mutex& mutex() { return mutex_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    line_.clear();
    const std::string_view text(message.payload.data(), message.payload.size());
    const auto level = static_cast<std::size_t>(from_spdlog(message.level));
    if (json_) {
      append_json(message.time, kNames.at(level), text);
    } else {
      append_text(message.time, level, text);
    }
    line_.push_back('\n');
    write_whole({line_.data(), line_.size()});
  }

  void flush_() override {}

 private:
  void append_text(spdlog::log_clock::time_point when, std::size_t level, std::string_view text) {
    if (!colour_) colour_ = is_colour_terminal();
    append_time(line_, when);
    line_.push_back(' ');
    if (*colour_) append(line_, kColours.at(level));
    append(line_, kNames.at(level));
    if (*colour_) append(line_, kPlain);
    if (has_identity_) {
      append(line_, " job=");
      append_escaped(line_, job_, false);
      fmt::format_to(std::back_inserter(line_), " node={}", node_);
    }
    line_.push_back(' ');
    append_escaped(line_, text, false);
  }

  void append_json(spdlog::log_clock::time_point when, std::string_view level,
                   std::string_view text) {
    append(line_, R"({"time":")");
    append_time(line_, when);
    fmt::format_to(std::back_inserter(line_), R"(","level":"{}",)", level);
    if (has_identity_) {
      append(line_, R"("job":")");
      append_escaped(line_, job_, true);
      fmt::format_to(std::back_inserter(line_), R"(","node":{},)", node_);
    }
    append(line_, R"("message":")");
    append_escaped(line_, text, true);
    append(line_, R"("})");
  }

  // Guarded by mutex_ of the base class.
  std::optional<bool> colour_;  // known from the first line on
  std::string job_;
  int node_ = -1;
  bool has_identity_ = false;
  bool json_ = false;
  Line line_;  // kept, so that a warm log does not allocate
};

struct Output {
  std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
  spdlog::logger logger{"divisi", sink};
};

// Never destroyed: static objects may log while they are.
Output& output() {
  static Output* const instance = [] {
    auto* const made = new Output;
    made->logger.set_level(spdlog::level::trace);  // the level is checked before formatting
    return made;
  }();
  return *instance;
}

// The forking thread holds the sink's mutex over the fork, so that the child of a process whose
// threads log can log too. Before main, so that handlers of those who log under a mutex of their
// own come first.
[[gnu::constructor(500)]] void hold_over_fork() {
  output();
  const auto release = [] { output().sink->mutex().unlock(); };
  ::pthread_atfork([] { output().sink->mutex().lock(); }, release, release);
}

}  // namespace

namespace detail {

void write(Level level, fmt::string_view text, fmt::format_args args) noexcept {
  try {
    Line message;
    fmt::vformat_to(std::back_inserter(message), text, args);
    output().logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
  } catch (const std::exception& error) {
    // A formatter of a user type threw, or memory is out: the text without its values is
    // still worth a line, and a log call must not end the program.
    write_whole("divisi: a log line could not be written: ");
    write_whole(error.what());
    write_whole("\n");
  }
}

}  // namespace detail

void set_level(Level level) noexcept {
  detail::threshold.store(level, std::memory_order_relaxed);
}

Result<Level> parse_level(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (lower == "warn") return Level::kWarning;
  const auto* const name = std::ranges::find(kNames, lower);
  if (name == kNames.end()) {
    return failure(Code::kInvalid, "unknown log level '{}': use debug, info, warning, error or off",
                   text);
  }
  return static_cast<Level>(name - kNames.begin());
}

std::string_view level_name(Level level) noexcept {
  return kNames.at(static_cast<std::size_t>(level));
}

void set_identity(std::string job, int node) {
  output().sink->set_identity(std::move(job), node);
}

std::string printable(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < 32 || c == 127; }, '?');
  return text;
}

void set_json(bool json) {
  output().sink->set_json(json);
}

}  // namespace divisi::log
