#include "server/trial_posts.h"

#include "http/base64.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::server {
namespace {

constexpr std::size_t kMaxName = 128;  // of a figure, and of a file

std::optional<std::int64_t> step_of(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  const bool whole = error == std::errc() && end == text.data() + text.size() && step >= 0;
  // One text for one step: "7" and not "07", "0" and not "-0".
  const bool other = text.size() > 1 && (text.front() == '0' || text.front() == '-');
  if (!whole || other) return std::nullopt;
  return step;
}

bool is_figure(const json::Value& value) {
  const double* const real = value.as_double();
  return value.is_null() || value.as_int() != nullptr || (real != nullptr && std::isfinite(*real));
}

Status check_figures(std::string_view step, const json::Value& figures) {
  const json::Object* const named = figures.as_object();
  if (!step_of(step) || named == nullptr) {
    return make_status(Code::kInvalid,
                       "reports are {{step: {{name: number}}}} with steps from 0 on, not '{}'",
                       step.substr(0, kMaxName));
  }
  if (named->empty() || named->size() > kMaxFiguresPerReport) {
    return make_status(Code::kInvalid, "the report of step {} has {} figures: 1 to {} are allowed",
                       step, named->size(), kMaxFiguresPerReport);
  }
  for (const auto& [name, value] : *named) {
    if (name.size() <= kMaxName && is_figure(value)) continue;
    return make_status(Code::kInvalid,
                       "the figure '{}' of step {} is no number with a name of at most {} bytes",
                       std::string_view(name).substr(0, kMaxName), step, kMaxName);
  }
  return {};
}

Status check_reports(const json::Value& reports) {
  const json::Object* const steps = reports.as_object();
  if (steps == nullptr) return make_status(Code::kInvalid, "reports is no object");
  for (const auto& [step, figures] : *steps) {
    DIVISI_TRY_STATUS(check_figures(step, figures));
  }
  return {};
}

Status check_result(const json::Value& result) {
  const std::string_view name = result.string_at({"name"});
  if (name.empty() || name.size() > kMaxName || name.find('/') != std::string_view::npos) {
    return make_status(Code::kInvalid, "result.name is no name of a file");
  }
  const json::Value* const text = result.find("bytes");
  const auto bytes = text == nullptr || text->as_string() == nullptr
                         ? std::nullopt
                         : http::decode_base64(*text->as_string());
  if (!bytes) return make_status(Code::kInvalid, "result.bytes is no base64");
  if (bytes->size() > kMaxTrialResult) {
    return make_status(Code::kInvalid,
                       "the result {} has {} bytes: di-server keeps {}; write less into it, or put "
                       "the project path on a volume that outlives the pod",
                       name, bytes->size(), kMaxTrialResult);
  }
  return {};
}

using Reports = std::map<std::int64_t, json::Value>;

void add_reports(Reports& all, const json::Value* reports) {
  if (reports == nullptr || reports->as_object() == nullptr) return;
  for (const auto& [step, figures] : *reports->as_object()) {
    const auto number = step_of(step);
    const json::Object* const named = figures.as_object();
    if (!number || named == nullptr || named->empty()) continue;
    json::Value& report = all.try_emplace(*number, json::Object{}).first->second;
    for (const auto& [name, value] : *named) report[name] = value;
  }
}

std::size_t size_of(const Reports::value_type& report) {
  return json::print(report.second).size() + std::to_string(report.first).size() + 4;
}

// The newest reports that are within the bounds.
void drop_oldest(Reports& reports) {
  std::size_t bytes = 0;
  std::size_t count = 0;
  auto keep = reports.end();
  while (keep != reports.begin()) {
    const auto before = std::prev(keep);
    bytes += size_of(*before);
    if (bytes > kMaxReportBytes || ++count > kMaxReports) break;
    keep = before;
  }
  reports.erase(reports.begin(), keep);
}

// A merge patch adds key by key: what was pushed out, or is no report, is removed by null.
json::Object reports_to_remove(const json::Value* before, const Reports& kept) {
  json::Object changes;
  if (before == nullptr || before->as_object() == nullptr) return changes;
  for (const auto& [step, figures] : *before->as_object()) {
    const auto number = step_of(step);
    if (!number || !kept.contains(*number)) changes.emplace_back(step, json::Value());
  }
  return changes;
}

// There are many reports, and json::Value::find is linear: each list is gone through once.
void add_changed_reports(json::Object& changes, const json::Value* before, Reports reports) {
  std::map<std::int64_t, const json::Value*> known;
  if (before != nullptr && before->as_object() != nullptr) {
    for (const auto& [step, figures] : *before->as_object()) {
      if (const auto number = step_of(step)) known.emplace(*number, &figures);
    }
  }
  for (auto& [step, figures] : reports) {
    // A figure that is null is no removal, so it is stored as a text.
    for (auto& [name, value] : *figures.as_object()) {
      if (value.is_null()) value = "nan";
    }
    const auto found = known.find(step);
    if (found != known.end() && *found->second == figures) continue;
    changes.emplace_back(std::to_string(step), std::move(figures));
  }
}

}  // namespace

Status check_trial_post(const json::Value& post) {
  static constexpr std::array<std::string_view, 3> kKnown{"reports", "result", "trouble"};
  for (const auto& [key, value] : *post.as_object()) {
    if (std::ranges::find(kKnown, key) == kKnown.end()) {
      return make_status(Code::kInvalid,
                         "a trial posts reports, a result or a trouble, and not '{}'",
                         std::string_view(key).substr(0, kMaxName));
    }
  }
  if (const json::Value* reports = post.find("reports")) {
    DIVISI_TRY_STATUS(check_reports(*reports));
  }
  if (const json::Value* result = post.find("result")) DIVISI_TRY_STATUS(check_result(*result));
  const json::Value* const trouble = post.find("trouble");
  if (trouble != nullptr &&
      (trouble->as_string() == nullptr || trouble->as_string()->size() > kMaxTrouble)) {
    return make_status(Code::kInvalid, "trouble is no text of at most {} bytes", kMaxTrouble);
  }
  return {};
}

json::Value trial_patch(const json::Value& object, const json::Value& post) {
  const json::Value* const before = object.find_path({"status", "trial", "reports"});
  Reports reports;
  add_reports(reports, before);
  add_reports(reports, post.find("reports"));
  drop_oldest(reports);
  json::Object changes = reports_to_remove(before, reports);
  add_changed_reports(changes, before, std::move(reports));
  json::Value made = json::Object{};
  if (!changes.empty()) made["reports"] = std::move(changes);
  for (const std::string_view key : {"result", "trouble"}) {
    if (const json::Value* value = post.find(key)) made[key] = *value;
  }
  json::Value patch;
  patch["trial"] = std::move(made);
  return patch;
}

}  // namespace divisi::server
