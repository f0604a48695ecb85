#include "tune_run/search_space.h"

#include "base/nearest_name.h"
#include "divisi/study.h"
#include "json/yaml.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace divisi::tune_run {
namespace {

using Numbers = std::vector<double>;

struct SpaceKind {
  std::string_view name;
  std::size_t count;  // of its arguments, all numbers
  std::string_view form;
  tune::HyperValue (*make)(const Numbers&);
};

constexpr auto kAnyCount = std::numeric_limits<std::size_t>::max();

const std::vector<SpaceKind>& space_kinds() {
  static const std::vector<SpaceKind> kinds{
      {"uniform", 2, "LOW,HIGH", [](const Numbers& n) { return tune::uniform(n[0], n[1]); }},
      {"quniform", 3, "START,END,STEP",
       [](const Numbers& n) { return tune::quniform(n[0], n[1], n[2]); }},
      {"randint", 2, "FIRST,LAST", [](const Numbers& n) { return tune::randint(n[0], n[1]); }},
      {"qrandint", 3, "FIRST,LAST,STEP",
       [](const Numbers& n) { return tune::quniform(n[0], n[1], n[2]).then("int"); }},
      {"loguniform", 2, "LOW,HIGH", [](const Numbers& n) { return tune::loguniform(n[0], n[1]); }},
      {"qloguniform", 3, "LOW,HIGH,STEP",
       [](const Numbers& n) { return tune::qloguniform(n[0], n[1], n[2]); }},
      {"lograndint", 2, "FIRST,LAST",
       [](const Numbers& n) { return tune::lograndint(n[0], n[1]); }},
      {"normal", 2, "MEAN,DEVIATION", [](const Numbers& n) { return tune::normal(n[0], n[1]); }},
      {"choice", kAnyCount, "A,B,...", nullptr},
      {"fixed", 1, "VALUE", nullptr},
  };
  return kinds;
}

const SpaceKind* find_space_kind(std::string_view name) {
  const auto found = std::ranges::find(space_kinds(), name, &SpaceKind::name);
  return found == space_kinds().end() ? nullptr : &*found;
}

std::vector<std::string> space_kind_names() {
  std::vector<std::string> names;
  for (const SpaceKind& kind : space_kinds()) names.emplace_back(kind.name);
  return names;
}

Result<tune::HyperValue> make_space(const SpaceKind& kind, const json::Value& arguments,
                                    const std::string& place) {
  const auto* list = arguments.as_array();
  try {
    if (kind.name == "fixed") return tune::fixed(from_json(arguments));
    if (list == nullptr) {
      return failure(Code::kInvalid, "{}: {} takes a list [{}], not {}", place, kind.name,
                     kind.form, json::print(arguments));
    }
    if (kind.name == "choice") {
      Value::Array alternatives;
      for (const json::Value& item : *list) alternatives.push_back(from_json(item));
      return tune::choice(std::move(alternatives));
    }
    Numbers numbers;
    for (const json::Value& item : *list) {
      if (const double* number = item.as_double()) numbers.push_back(*number);
      if (const auto* whole = item.as_int()) numbers.push_back(static_cast<double>(*whole));
    }
    if (numbers.size() != kind.count || list->size() != kind.count) {
      return failure(Code::kInvalid, "{}: {} takes {} numbers ({}), not {}", place, kind.name,
                     kind.count, kind.form, json::print(arguments));
    }
    return kind.make(numbers);
  } catch (const UsageError& error) {
    return failure(Code::kInvalid, "{}: {}", place, error.what());
  }
}

// A map with one key that names a space; a list behind a key that nearly does is refused, because
// it would become a constant that nobody meant.
Result<const SpaceKind*> space_of(const json::Object& object, const std::string& place) {
  if (object.size() != 1) return nullptr;
  const auto& [name, arguments] = object.front();
  if (const SpaceKind* kind = find_space_kind(name)) return kind;
  const std::vector<std::string> names = space_kind_names();
  const std::string meant = nearest_name(name, names);
  if (arguments.as_array() == nullptr || meant.empty()) return nullptr;
  return failure(Code::kInvalid, "{}: there is no space '{}', did you mean '{}'?", place, name,
                 meant);
}

std::string inner_place(const std::string& place, std::string_view key) {
  return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
}

Result<tune::Structure> structure_of(const json::Value& tagged, const std::string& place) {
  if (const auto* items = tagged.as_array()) {
    std::vector<tune::Structure> list;
    for (std::size_t i = 0; i < items->size(); ++i) {
      DIVISI_TRY(tune::Structure item,
                 structure_of((*items)[i], inner_place(place, std::to_string(i))));
      list.push_back(std::move(item));
    }
    return tune::Structure::list(std::move(list));
  }
  const auto* object = tagged.as_object();
  if (object == nullptr) return tune::Structure(from_json(tagged));
  DIVISI_TRY(const SpaceKind* kind, space_of(*object, place));
  if (kind != nullptr) {
    DIVISI_TRY(tune::HyperValue value, make_space(*kind, object->front().second, place));
    return tune::Structure(std::move(value));
  }
  std::vector<tune::Structure::Entry> entries;
  for (const auto& [key, inner] : *object) {
    DIVISI_TRY(tune::Structure entry, structure_of(inner, inner_place(place, key)));
    entries.emplace_back(key, std::move(entry));
  }
  return tune::Structure::map(std::move(entries));
}

json::Value sorted_keys(const json::Value& value) {
  if (const auto* items = value.as_array()) {
    json::Array sorted;
    for (const json::Value& item : *items) sorted.push_back(sorted_keys(item));
    return sorted;
  }
  const auto* object = value.as_object();
  if (object == nullptr) return value;
  json::Object sorted;
  for (const auto& [key, inner] : *object) sorted.emplace_back(key, sorted_keys(inner));
  std::ranges::sort(sorted, {}, &json::Member::first);
  return sorted;
}

std::string transforms_text(const tune::HyperValue& value) {
  json::Array list;
  for (const auto& transform : value.transforms()) {
    list.push_back(
        json::Array{transform.name, to_json(transform.operand), transform.operand_first});
  }
  return json::print(list);
}

// The arguments of "KIND:A,B": what a list in YAML would hold.
Result<json::Value> flag_arguments(std::string_view text) {
  return json::parse_yaml_one(fmt::format("[{}]", text));
}

Result<std::pair<std::string, json::Value>> read_short_flag(std::string_view flag) {
  const std::size_t equals = flag.find('=');
  const std::size_t colon = flag.find(':', equals);
  const auto wrong = [&](std::string_view why) {
    return failure(Code::kInvalid,
                   "--space {}: {}; write NAME=KIND:ARGUMENTS, for example lr=loguniform:1e-5,1e-1",
                   flag, why);
  };
  if (equals == std::string_view::npos || equals == 0) return wrong("a name and '=' are missing");
  const std::string_view kind_name = flag.substr(equals + 1, colon - equals - 1);
  const SpaceKind* kind = find_space_kind(kind_name);
  if (kind == nullptr) {
    const std::vector<std::string> names = space_kind_names();
    return wrong(fmt::format("there is no space '{}'{} (there are {})", kind_name,
                             did_you_mean(kind_name, names), fmt::join(names, ", ")));
  }
  const std::string_view arguments =
      colon == std::string_view::npos ? std::string_view() : flag.substr(colon + 1);
  Result<json::Value> list = flag_arguments(arguments);
  if (!list) return wrong(list.error().message());
  const json::Array& items = *list->as_array();
  json::Value operand = *list;
  if (kind->name == "fixed") {
    if (items.size() != 1) return wrong("fixed takes one value");
    operand = items.front();
  }
  return std::pair(std::string(flag.substr(0, equals)),
                   json::Value(json::Object{{std::string(kind->name), std::move(operand)}}));
}

Result<json::Object> read_space_flag(std::string_view flag) {
  const std::size_t colon = flag.find(": ");
  const std::size_t equals = flag.find('=');
  if (colon != std::string_view::npos && colon < equals) {
    Result<json::Value> yaml = json::parse_yaml_one(flag);
    if (yaml && yaml->as_object() != nullptr) return *yaml->as_object();
    return failure(Code::kInvalid, "--space {}: {}", flag,
                   yaml ? "not NAME: {KIND: [ARGUMENTS]}" : yaml.error().message());
  }
  DIVISI_TRY(auto entry, read_short_flag(flag));
  return json::Object{std::move(entry)};
}

Status insert_at(json::Value& space, std::string_view path, json::Value value) {
  json::Value* place = &space;
  for (std::string_view rest = path;;) {
    const std::size_t dot = rest.find('.');
    const std::string_view key = rest.substr(0, dot);
    if (key.empty()) return make_status(Code::kInvalid, "the name '{}' has an empty part", path);
    const bool inside = !place->is_null() && place->as_object() == nullptr;
    if (inside) return make_status(Code::kInvalid, "'{}' lies inside of another value", path);
    place = &(*place)[key];
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  if (!place->is_null())
    return make_status(Code::kInvalid, "the variable '{}' is there twice", path);
  *place = std::move(value);
  return {};
}

}  // namespace

std::vector<tune::Space> SearchSpace::spaces() const {
  std::vector<tune::Space> all;
  for (const tune::HyperValue& value : values) all.push_back(value.space());
  return all;
}

Result<SearchSpace> parse_space(const json::Value& tagged) {
  if (tagged.as_object() == nullptr) {
    return failure(Code::kInvalid, "space: a map of variables is expected, not {}", tagged.kind());
  }
  DIVISI_TRY(tune::Structure structure, structure_of(tagged, ""));
  // flatten() goes by sorted keys and names() by the keys as written: sorted, both agree.
  DIVISI_TRY(const tune::Structure sorted, structure_of(sorted_keys(tagged), ""));
  SearchSpace space{std::move(structure), sorted.names(), sorted.flatten(), ""};
  if (space.values.empty()) {
    return failure(Code::kInvalid,
                   "space: nothing to search; give at least one variable, for example "
                   "lr: {{loguniform: [1e-5, 1e-1]}}");
  }
  std::vector<std::string> transforms;
  for (const tune::HyperValue& value : space.values) transforms.push_back(transforms_text(value));
  space.text = tune::space_text(space.names, space.spaces(), transforms);
  return space;
}

Status add_space_flag(json::Value& space, std::string_view flag) {
  Result<json::Object> entries = read_space_flag(flag);
  if (!entries) return entries.error();
  for (auto& [name, value] : *entries) {
    if (Status status = insert_at(space, name, std::move(value)); !status.ok()) {
      return status.with_context(fmt::format("--space {}", flag));
    }
  }
  return {};
}

}  // namespace divisi::tune_run
