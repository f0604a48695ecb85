#include "divisi/trial.h"

#include "base/status.h"
#include "json/value.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace divisi::tune {
namespace {

json::Value figures_to_json(const Figures& figures) {
  json::Value object = json::Object{};
  for (const auto& [name, value] : figures) {
    object[name] = std::isfinite(value) ? json::Value(value) : json::Value();
  }
  return object;
}

Status failed_to_write(const std::string& path) {
  return make_status(Code::kUnavailable, "cannot write '{}': {}", path, std::strerror(errno));
}

// In one write: lines of several processes do not mix.
Status write_whole(const std::string& path, int flags, std::string_view text) {
  const int file = ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return failed_to_write(path);
  const ssize_t written = ::write(file, text.data(), text.size());
  Status status;
  if (written < 0) status = failed_to_write(path);
  if (written >= 0 && static_cast<std::size_t>(written) < text.size()) {
    errno = ENOSPC;
    status = failed_to_write(path);
  }
  ::close(file);
  return status;
}

Status replace_file(const std::string& path, std::string_view text) {
  const std::string next = fmt::format("{}.{}.new", path, ::getpid());
  if (Status status = write_whole(next, O_TRUNC, text); !status.ok()) return status;
  if (std::rename(next.c_str(), path.c_str()) != 0) return failed_to_write(path);
  return {};
}

}  // namespace

void report(std::int64_t step, const Figures& figures) {
  if (step < 0) throw UsageError(fmt::format("a step of a report is 0 or more, not {}", step));
  const char* const path = std::getenv("HPO_METRICS_FILE");
  if (path == nullptr || *path == '\0') return;
  json::Value line = json::Object{{"step", step}};
  line["values"] = figures_to_json(figures);
  throw_if_failed(write_whole(path, O_APPEND, json::print(line) + "\n"));
}

void report(std::int64_t step, double value) {
  report(step, {{"value", value}});
}

void set_result(const Figures& figures) {
  const char* const path = std::getenv("HPO_RESULT_FILE");
  if (path == nullptr || *path == '\0') return;
  throw_if_failed(replace_file(path, json::print(figures_to_json(figures)) + "\n"));
}

}  // namespace divisi::tune
