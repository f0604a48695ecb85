#include "local_trials/trial_result.h"

#include "io/process.h"
#include "pickle/reader.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

constexpr std::size_t kMaxResult = std::size_t{64} << 20;

bool is_older(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

// The content of a plain file; nothing when there is none. Opening a pipe or a link must neither
// wait nor lead elsewhere.
Result<std::optional<std::string>> read_result_file(const std::string& path,
                                                    const timespec& started) {
  const io::Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file && errno == ELOOP) {
    return failure(Code::kInvalid, "the result {} is a link; write the file itself", path);
  }
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) {
    return failure(Code::kUnavailable, "reading the result {}: {}", path, errno_text(errno));
  }
  if (!S_ISREG(info.st_mode)) return failure(Code::kInvalid, "the result {} is not a file", path);
  if (is_older(info.st_mtim, started)) {
    return failure(Code::kExpired, "the result {} is older than the trial: of an earlier run",
                   path);
  }
  if (static_cast<std::size_t>(info.st_size) > kMaxResult) {
    return failure(Code::kInvalid, "the result {} has {} bytes; {} are the limit", path,
                   info.st_size, kMaxResult);
  }
  DIVISI_TRY(std::string bytes, io::read_all(file.get()));
  return bytes;
}

Result<json::Value> read_json_result(const std::string& path, const std::string& bytes) {
  if (bytes.find_first_not_of(" \t\r\n") == std::string::npos) {
    return failure(Code::kInvalid, "the result {} is empty", path);
  }
  Result<json::Value> document = json::parse(bytes, {.max_bytes = kMaxResult});
  if (document) return document;
  // A bare nan or inf is no JSON, but it is what a failed training writes.
  json::Value line = result_of_line(bytes.substr(0, bytes.find_last_not_of(" \t\r\n") + 1));
  if (!line.is_null()) return line;
  return failure(document.error().with_context(fmt::format("the result {} is no JSON", path)));
}

Result<json::Value> read_pickle_result(const std::string& path, const std::string& bytes) {
  const Result<pickle::Value> value = pickle::load(bytes, {.max_bytes = kMaxResult});
  if (!value) return failure(value.error().with_context(fmt::format("the result {}", path)));
  Result<json::Value> document = pickle::to_json(*value);
  if (!document) return failure(document.error().with_context(fmt::format("the result {}", path)));
  return document;
}

struct Candidate {
  const char* name;
  Result<json::Value> (*read)(const std::string& path, const std::string& bytes);
};
constexpr std::array<Candidate, 5> kCandidates{{{"result.json", read_json_result},
                                                {"result.pkl", read_pickle_result},
                                                {"hpo/result.pkl", read_pickle_result},
                                                {"hpo/result", read_pickle_result},
                                                {"hpo/results", read_pickle_result}}};

Result<TrialResult> placed(const std::string& path, Result<json::Value> value) {
  if (!value) return failure(value.error());
  return TrialResult{*std::move(value), "the file " + path};
}

}  // namespace

json::Value result_of_line(std::string_view line) {
  const std::size_t start = line.find_first_not_of(" \t\r");
  if (start == std::string_view::npos) return {};
  line = line.substr(start, line.find_last_not_of(" \t\r") - start + 1);
  if (line.front() == '{') return json::parse(line).value_or(json::Value());
  if (line.front() == '+') line.remove_prefix(1);
  std::int64_t whole = 0;
  const char* const end = line.data() + line.size();
  if (const auto [stop, error] = std::from_chars(line.data(), end, whole);
      error == std::errc() && stop == end) {
    return whole;
  }
  double number = 0;
  const auto [stop, error] = std::from_chars(line.data(), end, number);
  if (error != std::errc() || stop != end) return {};
  if (std::isfinite(number)) return number;
  const char* const text = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return json::Object{{"$float", text}};
}

Result<TrialResult> read_trial_result(const ResultPlaces& places) {
  DIVISI_TRY(const std::optional<std::string> direct,
             read_result_file(places.result_file, places.started));
  if (direct) return placed(places.result_file, read_json_result(places.result_file, *direct));
  if (json::Value line = result_of_line(places.last_line); !line.is_null()) {
    return TrialResult{std::move(line), "the last line of its output"};
  }
  std::optional<Status> stale;
  for (const std::string& folder : places.folders) {
    for (const Candidate& candidate : kCandidates) {
      const std::string path = folder + "/" + candidate.name;
      const auto bytes = read_result_file(path, places.started);
      if (!bytes && bytes.error().code() == Code::kExpired) {
        stale = bytes.error();
      } else if (!bytes) {
        return failure(bytes.error());
      } else if (*bytes) {
        return placed(path, candidate.read(path, **bytes));
      }
    }
  }
  if (stale) return failure(*stale);
  return failure(Code::kNotFound,
                 "no result: the program wrote no $HPO_RESULT_FILE, its last line of output is "
                 "neither a number nor a JSON object, and there is no result.json or result.pkl");
}

}  // namespace divisi::local_trials
