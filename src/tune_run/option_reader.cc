#include "tune_run/option_reader.h"

#include "base/nearest_name.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace divisi::tune_run {

const json::Value* OptionReader::take(std::string_view name) {
  known_.emplace_back(name);
  const auto found = std::ranges::find(options_, name, &json::Member::first);
  return found == options_.end() ? nullptr : &found->second;
}

void OptionReader::wrong(std::string_view name, std::string_view wanted, const json::Value& value) {
  if (!status_.ok()) return;
  status_ = make_status(Code::kInvalid, "{}: {} must be {}, not {}", what_, name, wanted,
                        json::print(value));
}

void OptionReader::flag(std::string_view name, bool& to) {
  const json::Value* value = take(name);
  if (value == nullptr) return;
  if (const bool* flag = value->as_bool()) {
    to = *flag;
  } else {
    wrong(name, "true or false", *value);
  }
}

void OptionReader::whole(std::string_view name, std::int64_t& to) {
  const json::Value* value = take(name);
  if (value == nullptr) return;
  if (const std::int64_t* whole = value->as_int()) {
    to = *whole;
  } else {
    wrong(name, "a whole number", *value);
  }
}

void OptionReader::whole(std::string_view name, int& to) {
  std::int64_t wide = to;
  whole(name, wide);
  to = static_cast<int>(std::clamp<std::int64_t>(wide, std::numeric_limits<int>::min(),
                                                 std::numeric_limits<int>::max()));
}

void OptionReader::number(std::string_view name, double& to) {
  const json::Value* value = take(name);
  if (value == nullptr) return;
  if (const double* number = value->as_double()) {
    to = *number;
  } else if (const std::int64_t* whole = value->as_int()) {
    to = static_cast<double>(*whole);
  } else {
    wrong(name, "a number", *value);
  }
}

bool OptionReader::seed(std::string_view name, std::uint64_t& to) {
  const json::Value* value = take(name);
  if (value == nullptr) return false;
  const std::int64_t* whole = value->as_int();
  if (whole == nullptr || *whole < 0) {
    wrong(name, "a whole number from 0", *value);
    return false;
  }
  to = static_cast<std::uint64_t>(*whole);
  return true;
}

void OptionReader::one_of(std::string_view name, const std::vector<std::string>& names,
                          std::size_t& to) {
  const json::Value* value = take(name);
  if (value == nullptr) return;
  const std::string* text = value->as_string();
  const auto found = text == nullptr ? names.end() : std::ranges::find(names, *text);
  if (found == names.end()) {
    wrong(name, fmt::format("one of {}", fmt::join(names, ", ")), *value);
  } else {
    to = static_cast<std::size_t>(found - names.begin());
  }
}

Status OptionReader::finish() {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : options_) {
    if (std::ranges::find(known_, name) != known_.end()) continue;
    return make_status(Code::kInvalid, "{}: there is no option '{}'{} (there are {})", what_, name,
                       did_you_mean(name, known_), fmt::join(known_, ", "));
  }
  return {};
}

}  // namespace divisi::tune_run
