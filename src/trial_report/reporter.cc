#include "trial_report/reporter.h"

#include "http/base64.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace divisi::trial_report {
namespace {

constexpr std::size_t kMaxUnsent = 1000;  // reports; di-server keeps no more
constexpr std::size_t kMaxReportsInPost = 200;
constexpr std::size_t kMaxReportBytes = std::size_t{16} << 10;  // of one post
// A job's secret is known a moment after the job, and a job that is being deleted answers the same.
constexpr int kRefusalsBeforeTheEnd = 3;

// The numbers that JSON does not have, as null.
std::string without_literals(std::string_view line) {
  static constexpr std::array<std::string_view, 3> kLiterals{"-Infinity", "Infinity", "NaN"};
  std::string text;
  bool quoted = false;
  while (!line.empty()) {
    const char c = line.front();
    if (c == '"') quoted = !quoted;
    const std::size_t escaped = quoted && c == '\\' && line.size() > 1 ? 2 : 1;
    const auto* const literal = std::ranges::find_if(
        kLiterals, [&](std::string_view each) { return !quoted && line.starts_with(each); });
    const bool found = literal != kLiterals.end();
    text += found ? std::string_view("null") : line.substr(0, escaped);
    line.remove_prefix(found ? literal->size() : escaped);
  }
  return text;
}

std::optional<std::int64_t> step_in(const json::Value& report) {
  const json::Value* const step = report.find("step");
  if (step == nullptr) return std::nullopt;
  if (const std::int64_t* whole = step->as_int()) {
    return *whole >= 0 ? std::optional(*whole) : std::nullopt;
  }
  constexpr double kLargest = 9e15;  // below, every whole number is exact
  const double* const real = step->as_double();
  if (real == nullptr || !(*real >= 0) || *real > kLargest || std::floor(*real) != *real) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*real);
}

}  // namespace

std::optional<std::pair<std::int64_t, json::Value>> parse_report_line(std::string_view line) {
  auto report = json::parse(line);
  if (!report) report = json::parse(without_literals(line));
  if (!report || report->as_object() == nullptr) return std::nullopt;
  const auto step = step_in(*report);
  const json::Value* const values = report->find("values");
  if (!step || values == nullptr || values->as_object() == nullptr) return std::nullopt;
  json::Value figures = json::Object{};
  for (const auto& [name, value] : *values->as_object()) {
    const double* const real = value.as_double();
    const bool number = value.as_int() != nullptr || (real != nullptr && std::isfinite(*real));
    if (number) figures[name] = value;
    if (value.is_null() || (real != nullptr && !number)) figures[name] = json::Value();
  }
  if (figures.as_object()->empty()) return std::nullopt;
  return std::pair(*step, std::move(figures));
}

void Reporter::warn(const std::string& line) {
  if (!std::exchange(warned_[line], true)) say_(line);
}

void Reporter::take_line(std::string_view line) {
  auto report = parse_report_line(line);
  if (!report) {
    return warn(
        "a line of $HPO_METRICS_FILE is no {\"step\": number, \"values\": {name: number}}; "
        "such lines are left out");
  }
  take_figures(report->first, *report->second.as_object());
}

// di-server refuses a whole post for one figure too many.
void Reporter::take_figures(std::int64_t step, const json::Object& figures) {
  json::Value& report = reports_.try_emplace(step, json::Object{}).first->second;
  for (const auto& [name, value] : figures) {
    if (name.size() > kMaxFigureName) {
      warn(fmt::format(
          "a figure in $HPO_METRICS_FILE has a name of more than {} bytes; such figures are left "
          "out: name it in fewer",
          kMaxFigureName));
    } else if (report.as_object()->size() >= kMaxFigures && report.find(name) == nullptr) {
      warn(fmt::format(
          "a step in $HPO_METRICS_FILE has more than {} figures; those beyond are left out: report "
          "fewer",
          kMaxFigures));
    } else {
      report[name] = value;
    }
  }
  if (report.as_object()->empty()) reports_.erase(step);
  if (reports_.size() > kMaxUnsent) reports_.erase(reports_.begin());
}

void Reporter::take_result(FoundResult found) {
  if (found.size > kMaxPostedResult) {
    const std::string text = fmt::format(
        "the result {} has {} bytes, and di-server keeps {}: write less into it, or put the "
        "project path on a volume that outlives the pod",
        found.name, found.size, kMaxPostedResult);
    take_trouble(text);
    return warn(text);
  }
  if (found.bytes == sent_or_queued_) return;
  sent_or_queued_ = found.bytes;
  result_ = std::move(found);
}

void Reporter::take_trouble(std::string text) {
  if (text == last_trouble_) return;
  last_trouble_ = text;
  trouble_ = std::move(text);
}

void Reporter::look() {
  while (true) {
    const auto lines = files_.take_lines();
    for (const std::string& line : lines) take_line(line);
    if (lines.empty()) break;
  }
  if (files_.overlong() > 0) {
    warn(fmt::format("a line of $HPO_METRICS_FILE has more than {} bytes; such lines are left out",
                     TrialFiles::kMaxLine));
  }
  auto found = files_.find_result(kMaxPostedResult);
  const bool same = found && last_seen_ && found->size == last_seen_->size &&
                    found->bytes == last_seen_->bytes && found->name == last_seen_->name;
  if (same) take_result(*found);
  last_seen_ = std::move(found);
}

void Reporter::look_at_the_end() {
  look();
  if (last_seen_) take_result(*last_seen_);
}

std::optional<json::Value> Reporter::next_body() const {
  json::Value body = json::Object{};
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (const auto& [step, figures] : reports_) {
    if (result_alone_) break;
    bytes += json::print(figures).size();
    if (count > 0 && (bytes > kMaxReportBytes || count == kMaxReportsInPost)) break;
    body["reports"][std::to_string(step)] = figures;
    ++count;
  }
  if (result_) {
    body["result"]["name"] = result_->name;
    body["result"]["bytes"] = http::encode_base64(result_->bytes);
  }
  if (!trouble_.empty()) body["trouble"] = trouble_;
  if (body.as_object()->empty()) return std::nullopt;
  return body;
}

void Reporter::drop_reports_of(const json::Value& body) {
  if (const json::Value* reports = body.find("reports")) {
    const auto sent = reports->as_object()->size();
    reports_.erase(reports_.begin(),
                   std::next(reports_.begin(), static_cast<std::ptrdiff_t>(sent)));
  }
}

void Reporter::posted(const json::Value& body) {
  drop_reports_of(body);
  result_.reset();
  trouble_.clear();
  result_alone_ = false;
}

// Whether to go on. A post that is refused as it is will not be taken later either.
bool Reporter::refused(const json::Value& body, const http::Response& answer) {
  const auto said = json::parse(answer.body);
  const std::string why(said ? said->string_at({"message"}) : std::string_view());
  warn(fmt::format("di-server refuses what is posted ({} {})", answer.status, why));
  if (answer.status == 401 || answer.status == 403 || answer.status == 404) {
    given_up_ = ++refusals_ >= kRefusalsBeforeTheEnd;
    return false;
  }
  if (body.find("reports") != nullptr) {  // the rest of the post may be good
    drop_reports_of(body);
    result_alone_ = result_ || !trouble_.empty();
    return true;
  }
  const bool had_result = body.find("result") != nullptr;
  posted(body);
  if (had_result) take_trouble(fmt::format("the result was refused: {}", why.substr(0, 500)));
  return true;
}

bool Reporter::send() {
  while (!given_up_) {
    const auto body = next_body();
    if (!body) return true;
    const auto answer = post_(json::print(*body));
    if (!answer) {
      warn(fmt::format("di-server does not answer ({}); it is tried again",
                       answer.error().message()));
      return false;
    }
    if (answer->status == 200) {
      refusals_ = 0;
      posted(*body);
    } else if (answer->status >= 500 || answer->status == 409 || answer->status == 429) {
      warn(fmt::format("di-server answers {}; it is tried again", answer->status));
      return false;
    } else if (!refused(*body, *answer)) {
      return given_up_;
    }
  }
  return true;
}

std::string Reporter::unsent() const {
  if (reports_.empty() && !result_) return {};
  return fmt::format("{} report{}{} not posted", reports_.size(), reports_.size() == 1 ? "" : "s",
                     result_ ? fmt::format(" and the result {}", result_->name) : "");
}

}  // namespace divisi::trial_report
