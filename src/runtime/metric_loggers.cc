// TensorBoardWriter, JsonLinesLogger, ConsoleLogger.
#include "base/log.h"
#include "divisi/error.h"
#include "divisi/writer.h"
#include "runtime/append_file.h"
#include "runtime/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <unistd.h>
#include <utility>

namespace divisi {
namespace {

using runtime::AppendFile;

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string json_text(std::string_view text) {
  std::string json = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      json += '\\';
      json += each;
    } else if (static_cast<unsigned char>(each) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(each));
    } else {
      json += each;
    }
  }
  return json + '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return fmt::format("{}", value);
}

// What a line says of a histogram.
struct Spread {
  std::size_t count = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;
};

Spread spread_of(std::span<const double> values) {
  Spread spread;
  double squares = 0;  // of the distances from the running mean (Welford)
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    spread.min = spread.count == 0 ? value : std::min(spread.min, value);
    spread.max = spread.count == 0 ? value : std::max(spread.max, value);
    ++spread.count;
    const double before = value - spread.mean;
    spread.mean += before / static_cast<double>(spread.count);
    squares += before * (value - spread.mean);
  }
  if (spread.count > 0) spread.deviation = std::sqrt(squares / static_cast<double>(spread.count));
  return spread;
}

}  // namespace

MetricLogger::~MetricLogger() = default;

// --- TensorBoard ---

struct TensorBoardWriter::State {
  explicit State(std::string folder) : dir(std::move(folder)) {}

  const std::string dir;
  std::mutex mutex;
  // Guarded by mutex.
  bool closed = false;
  std::optional<AppendFile> file;

  // A process may have several writers in one folder: the names then get a number.
  void open() {
    const auto now = static_cast<std::int64_t>(seconds_since_epoch());
    const std::string name =
        fmt::format("events.out.tfevents.{:010d}.{}.{}", now, host_name(), ::getpid());
    for (int number = 0; !file; ++number) {
      const std::string unique = number == 0 ? name : fmt::format("{}.{}", name, number);
      try {
        file.emplace((std::filesystem::path(dir) / unique).string(), AppendFile::Open::kNew);
      } catch (const Error& error) {
        if (error.code() != Code::kAlreadyExists) throw;
      }
    }
    file->append(runtime::tf_record(runtime::file_version_event(seconds_since_epoch())));
  }

  void append(const std::string& event) {
    if (event.empty()) return;
    const std::lock_guard lock(mutex);
    if (closed) return;
    if (!file) open();
    file->append(runtime::tf_record(event));
  }
};

TensorBoardWriter::TensorBoardWriter(std::string dir)
    : state_(std::make_unique<State>(std::move(dir))) {}
TensorBoardWriter::~TensorBoardWriter() = default;

void TensorBoardWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  state_->append(runtime::scalar_event(seconds_since_epoch(), tag, value, step));
}
void TensorBoardWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  state_->append(runtime::text_event(seconds_since_epoch(), tag, text, step));
}
void TensorBoardWriter::add_histogram(std::string_view tag, std::span<const double> values,
                                      std::int64_t step) {
  state_->append(runtime::histogram_event(seconds_since_epoch(), tag, values, step));
}
void TensorBoardWriter::flush() {
  const std::lock_guard lock(state_->mutex);
  if (state_->file) state_->file->sync();
}
void TensorBoardWriter::close() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->file.reset();
}
std::string TensorBoardWriter::path() const {
  const std::lock_guard lock(state_->mutex);
  return state_->file ? state_->file->path() : std::string();
}

// --- lines of JSON ---

struct JsonLinesLogger::State {
  explicit State(std::string path)
      : file(std::in_place, std::move(path), AppendFile::Open::kAppend) {}

  std::mutex mutex;
  std::optional<AppendFile> file;  // guarded by mutex; nothing once closed

  void append(std::string_view tag, std::int64_t step, std::string_view rest) {
    const std::string line = fmt::format("{{\"time\": {:.6f}, \"tag\": {}, \"step\": {}, {}}}\n",
                                         seconds_since_epoch(), json_text(tag), step, rest);
    const std::lock_guard lock(mutex);
    if (file) file->append(line);
  }
};

JsonLinesLogger::JsonLinesLogger(std::string path)
    : state_(std::make_unique<State>(std::move(path))) {}
JsonLinesLogger::~JsonLinesLogger() = default;

void JsonLinesLogger::add_scalar(std::string_view tag, double value, std::int64_t step) {
  state_->append(tag, step, "\"value\": " + json_number(value));
}
void JsonLinesLogger::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  state_->append(tag, step, "\"text\": " + json_text(text));
}
void JsonLinesLogger::add_histogram(std::string_view tag, std::span<const double> values,
                                    std::int64_t step) {
  const Spread spread = spread_of(values);
  state_->append(
      tag, step,
      fmt::format(R"("histogram": {{"count": {}, "min": {}, "max": {}, "mean": {}, "std": {}}})",
                  spread.count, json_number(spread.min), json_number(spread.max),
                  json_number(spread.mean), json_number(spread.deviation)));
}
void JsonLinesLogger::flush() {
  const std::lock_guard lock(state_->mutex);
  if (state_->file) state_->file->sync();
}
void JsonLinesLogger::close() {
  const std::lock_guard lock(state_->mutex);
  state_->file.reset();
}

// --- the console ---

namespace {

// One call: lines of several threads do not mix. A figure from another node may hold anything.
void print_line(std::int64_t step, std::string_view tag, const std::string& what) {
  const std::string line =
      fmt::format("step {}  {} {}\n", step, log::printable(std::string(tag)), log::printable(what));
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

ConsoleLogger::ConsoleLogger() = default;
ConsoleLogger::~ConsoleLogger() = default;

void ConsoleLogger::add_scalar(std::string_view tag, double value, std::int64_t step) {
  print_line(step, tag, fmt::format("{:g}", value));
}
void ConsoleLogger::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  print_line(step, tag, std::string(text));
}
void ConsoleLogger::add_histogram(std::string_view tag, std::span<const double> values,
                                  std::int64_t step) {
  const Spread spread = spread_of(values);
  print_line(step, tag,
             fmt::format("{} values, {:g} to {:g}, mean {:g}, std {:g}", spread.count, spread.min,
                         spread.max, spread.mean, spread.deviation));
}

}  // namespace divisi
