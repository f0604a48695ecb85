#include "server/profilings.h"

#include "json/key_index.h"
#include "json/patch.h"
#include "server/body.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace divisi::server {
namespace {

std::optional<double> number_at(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return std::nullopt;
  if (const std::int64_t* whole = value->as_int()) return static_cast<double>(*whole);
  if (const double* real = value->as_double(); real != nullptr && std::isfinite(*real))
    return *real;
  return std::nullopt;
}

const json::Value* progress_of(const json::Value& report) {
  const json::Value* progress = report.find("progress");
  if (progress == nullptr) progress = report.find_path({"data", "progress"});
  return progress != nullptr && progress->as_object() != nullptr ? progress : nullptr;
}

// Removed when the report has null in its place, left alone when it has nothing that can be shown.
void copy_text(json::Value& to, std::string_view column, const json::Value& from,
               std::string_view key, std::string (*text)(double)) {
  const json::Value* value = from.find(key);
  if (value == nullptr) return;
  if (value->is_null()) to[column] = json::Value();
  if (const auto number = number_at(from, key)) to[column] = text(*number);
}

}  // namespace

void merge_reports(json::Value& first, const json::Value& second) {
  if (first.as_object() == nullptr || second.as_object() == nullptr) {
    first = second;
    return;
  }
  json::Object& members = *first.as_object();
  const json::KeyIndex index(members);
  for (const auto& [key, value] : *second.as_object()) {
    if (const auto position = index.find(key)) {
      merge_reports(members[*position].second, value);
    } else {
      members.emplace_back(key, value);
    }
  }
}

Status check_size(const json::Value& object, const json::Value& report) {
  json::Value merged;
  if (const json::Value* present = object.find_path({"status", "profilings"})) merged = *present;
  json::apply_merge_patch(merged, report);
  const std::size_t bytes = std::max(json::print(merged).size(), json::print(report).size());
  if (bytes <= kMaxBodyBytes) return {};
  return make_status(Code::kInvalid, "profilings would have {} bytes, more than {}", bytes,
                     kMaxBodyBytes);
}

json::Value profilings_patch(const json::Value& report) {
  json::Value patch;
  patch["profilings"] = report;
  if (const json::Value* progress = progress_of(report)) {
    json::Value columns{json::Object{}};
    copy_text(columns, "stepsPerSecond", *progress, "env_steps_per_second", short_number);
    copy_text(columns, "return", *progress, "return", short_number);
    copy_text(columns, "eta", *progress, "eta_seconds", short_duration);
    patch["progress"] = std::move(columns);
  }
  return patch;
}

std::string short_number(double value) {
  const double size = std::fabs(value);
  if (size >= 1000 && size < 1e9) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string short_duration(double seconds) {
  constexpr double kForever = 86400.0 * 9999;
  if (!(seconds >= 0) || seconds > kForever) return {};
  struct Unit {
    std::int64_t seconds;
    char letter;
  };
  constexpr std::array kUnits{Unit{86400, 'd'}, Unit{3600, 'h'}, Unit{60, 'm'}, Unit{1, 's'}};
  std::int64_t left = std::llround(seconds);
  std::string text;
  int shown = 0;  // two units say enough
  for (const Unit& unit : kUnits) {
    const std::int64_t count = left / unit.seconds;
    left %= unit.seconds;
    if (shown > 0) ++shown;
    if (count > 0) {
      text += fmt::format("{}{}", count, unit.letter);
      shown = std::max(shown, 1);
    }
    if (shown == 2) break;
  }
  return text.empty() ? "0s" : text;
}

}  // namespace divisi::server
