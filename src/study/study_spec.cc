#include "study/study_spec.h"

#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

json::Array strings_to_json(const std::vector<std::string>& strings) {
  json::Array array;
  for (const std::string& one : strings) array.emplace_back(one);
  return array;
}

const json::Array& array_at(const json::Value& value, std::string_view key) {
  static const json::Array kNone;
  const json::Value* found = value.find(key);
  const json::Array* array = found == nullptr ? nullptr : found->as_array();
  return array == nullptr ? kNone : *array;
}

std::string text_at(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  return found == nullptr || found->is_null() ? std::string() : json::print(*found);
}

std::string joined(const json::Array& items) {
  std::string text;
  for (const json::Value& item : items) text += (text.empty() ? "" : ", ") + json::print(item);
  return text;
}

// What is drawn, before any transform.
std::string draw_text(const json::Value& variable) {
  const auto member = [&](std::string_view key) {
    const json::Value* found = variable.find(key);
    return found == nullptr ? std::string("?") : json::print(*found);
  };
  const std::string_view kind = variable.string_at({"kind"});
  if (kind == "fixed") return fmt::format("one of {}", member("count"));
  if (kind == "separate") {
    return fmt::format("quniform({}, {}, {})", member("lower"), member("upper"), member("step"));
  }
  return fmt::format("uniform({}, {})", member("lower"), member("upper"));
}

// The constructor that makes a space with this only transform, with the arguments that were given:
// bounds of logarithmic spaces are stored as logarithms.
std::string constructor_text(const json::Value& variable, const json::Array& transform) {
  const std::string* name = transform.empty() ? nullptr : transform[0].as_string();
  if (name == nullptr) return {};
  if (*name == "int" && variable.find("step") != nullptr) {
    const json::Value* lower = variable.find("lower");
    const json::Value* upper = variable.find("upper");
    const bool ones = json::equivalent(*variable.find("step"), json::Value(1));
    if (!ones || lower == nullptr || upper == nullptr) return {};
    return fmt::format("randint({}, {})", json::print(*lower), json::print(*upper));
  }
  const json::Array* operands = transform.size() > 1 ? transform[1].as_array() : nullptr;
  if (operands == nullptr) return {};
  if (*name == "choice") return fmt::format("choice([{}])", joined(*operands));
  if (*name == "exp") return fmt::format("loguniform({})", joined(*operands));
  if (*name == "qexp") return fmt::format("qloguniform({})", joined(*operands));
  if (*name == "intexp") return fmt::format("lograndint({})", joined(*operands));
  return {};
}

// A variable as its user wrote it, as far as that is known.
std::string variable_text(const json::Value& variable) {
  const json::Array& transforms = array_at(variable, "transforms");
  if (transforms.empty()) return draw_text(variable);
  if (transforms.size() == 1 && transforms[0].as_array() != nullptr) {
    std::string text = constructor_text(variable, *transforms[0].as_array());
    if (!text.empty()) return text;
  }
  return fmt::format("{} with the transforms [{}]", draw_text(variable), joined(transforms));
}

// The members of two variables of one name.
std::string member_difference(const std::string& name, const json::Value& stored,
                              const json::Value& given) {
  for (const char* const key : {"kind", "lower", "upper", "step", "count", "transforms"}) {
    const json::Value* old_one = stored.find(key);
    const json::Value* new_one = given.find(key);
    const json::Value none;
    const json::Value& was = old_one == nullptr ? none : *old_one;
    const json::Value& is = new_one == nullptr ? none : *new_one;
    if (json::equivalent(was, is)) continue;
    const std::string before = variable_text(stored);
    const std::string after = variable_text(given);
    if (before != after) {
      return fmt::format("variable '{}' was {} and is {}", name, before, after);
    }
    return fmt::format("the {} of variable '{}' was {} and is {}", key, name, json::print(was),
                       json::print(is));
  }
  return {};
}

const json::Value* named(const json::Array& variables, std::string_view name) {
  for (const json::Value& one : variables) {
    if (one.string_at({"name"}) == name) return &one;
  }
  return nullptr;
}

}  // namespace

Result<json::Value> json_of(const std::string& text, std::string_view what) {
  Result<json::Value> value = json::parse(text, {.max_bytes = std::size_t{1} << 30U});
  if (value) return value;
  return failure(Code::kInvalid, "{} is not JSON: {}", what, value.error().message());
}

Result<json::Value> spec_to_json(const StudySpec& spec) {
  json::Value value = json::Object{};
  if (!spec.space.empty()) {
    DIVISI_TRY(value["space"], json_of(spec.space, "the space of a study"));
  }
  json::Array maximize;
  for (const bool one : spec.maximize) maximize.emplace_back(one);
  value["maximize"] = std::move(maximize);
  value["targets"] = strings_to_json(spec.targets);
  value["algorithm"] = spec.algorithm;
  DIVISI_TRY(value["options"], json_of(spec.options.empty() ? "{}" : spec.options,
                                       "the options of a study's algorithm"));
  value["created"] = number_to_json(spec.created);
  return value;
}

StudySpec spec_from_json(std::string name, const json::Value& value) {
  StudySpec spec{.name = std::move(name), .space = text_at(value, "space"), .maximize = {}};
  for (const json::Value& one : array_at(value, "maximize")) {
    spec.maximize.push_back(one.as_bool() != nullptr && *one.as_bool());
  }
  for (const json::Value& one : array_at(value, "targets")) {
    if (one.as_string() != nullptr) spec.targets.push_back(*one.as_string());
  }
  spec.algorithm = value.string_at({"algorithm"});
  spec.options = text_at(value, "options");
  if (const json::Value* created = value.find("created")) {
    spec.created = number_from_json(*created).value_or(0);
  }
  return spec;
}

json::Value number_to_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

Result<double> number_from_json(const json::Value& value) {
  if (const double* number = value.as_double()) return *number;
  if (const std::int64_t* whole = value.as_int()) return static_cast<double>(*whole);
  const std::string* text = value.as_string();
  if (text != nullptr && *text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text != nullptr && *text == "inf") return std::numeric_limits<double>::infinity();
  if (text != nullptr && *text == "-inf") return -std::numeric_limits<double>::infinity();
  return failure(Code::kInvalid, "{} is not a number", json::print(value));
}

std::string space_difference(const std::string& stored, const std::string& given) {
  if (stored == given) return {};
  const Result<json::Value> was = json::parse(stored);
  const Result<json::Value> is = json::parse(given);
  if (!was || !is) return "one of them is not described";
  const json::Array& old_ones = array_at(*was, "variables");
  const json::Array& new_ones = array_at(*is, "variables");
  for (const json::Value& one : old_ones) {
    const std::string name(one.string_at({"name"}));
    const json::Value* now = named(new_ones, name);
    if (now == nullptr) return fmt::format("variable '{}' is not there any more", name);
    if (std::string found = member_difference(name, one, *now); !found.empty()) return found;
  }
  for (const json::Value& one : new_ones) {
    const std::string_view name = one.string_at({"name"});
    if (named(old_ones, name) == nullptr) return fmt::format("variable '{}' is new", name);
  }
  for (std::size_t i = 0; i < old_ones.size() && i < new_ones.size(); ++i) {
    const std::string_view name = new_ones[i].string_at({"name"});
    if (old_ones[i].string_at({"name"}) != name) {
      return fmt::format("variable '{}' has another place", name);
    }
  }
  return {};
}

}  // namespace divisi::tune
