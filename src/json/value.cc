#include "json/value.h"

#include <algorithm>
#include <cmath>

namespace divisi::json {
namespace {

// Exact, where a conversion of the integer to double would call neighbours equal.
bool same_number(std::int64_t integer, double number) noexcept {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  return number >= -kTwoTo63 && number < kTwoTo63 && std::trunc(number) == number &&
         static_cast<std::int64_t>(number) == integer;
}

std::vector<const Member*> sorted_members(const Object& object) {
  std::vector<const Member*> members;
  members.reserve(object.size());
  for (const Member& member : object) members.push_back(&member);
  std::ranges::sort(members, [](const Member* a, const Member* b) { return a->first < b->first; });
  return members;
}

bool equivalent_objects(const Object& a, const Object& b) {
  if (a.size() != b.size()) return false;
  const auto same = [](const Member& x, const Member& y) {
    return x.first == y.first && equivalent(x.second, y.second);
  };
  const auto same_keys = [](const Member& x, const Member& y) { return x.first == y.first; };
  if (std::ranges::equal(a, b, same_keys)) {
    return std::ranges::equal(a, b, same);
  }
  const auto sorted_a = sorted_members(a);
  const auto sorted_b = sorted_members(b);
  return std::ranges::equal(sorted_a, sorted_b,
                            [&](const Member* x, const Member* y) { return same(*x, *y); });
}

}  // namespace

Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(Value&& other) noexcept = default;

const Value* Value::find(std::string_view key) const noexcept {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Value* Value::find(std::string_view key) noexcept {
  Object* object = as_object();
  if (object == nullptr) return nullptr;
  for (Member& member : *object) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Value& Value::operator[](std::string_view key) {
  if (Value* found = find(key)) return *found;
  if (as_object() == nullptr) data_ = Object();
  return as_object()->emplace_back(std::string(key), Value()).second;
}

bool Value::erase(std::string_view key) {
  Object* object = as_object();
  if (object == nullptr) return false;
  const auto found =
      std::ranges::find_if(*object, [&](const Member& member) { return member.first == key; });
  if (found == object->end()) return false;
  object->erase(found);
  return true;
}

const Value* Value::find_path(Path path) const noexcept {
  const Value* value = this;
  for (const std::string_view key : path) {
    value = value->find(key);
    if (value == nullptr) return nullptr;
  }
  return value;
}

std::string_view Value::string_at(Path path) const noexcept {
  const Value* value = find_path(path);
  const std::string* text = value == nullptr ? nullptr : value->as_string();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::optional<std::int64_t> Value::int_at(Path path) const noexcept {
  const Value* value = find_path(path);
  const std::int64_t* integer = value == nullptr ? nullptr : value->as_int();
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

std::optional<bool> Value::bool_at(Path path) const noexcept {
  const Value* value = find_path(path);
  const bool* flag = value == nullptr ? nullptr : value->as_bool();
  return flag == nullptr ? std::nullopt : std::optional(*flag);
}

std::string_view Value::kind() const noexcept {
  if (is_null()) return "null";
  if (as_bool() != nullptr) return "bool";
  if (as_int() != nullptr || as_double() != nullptr) return "number";
  if (as_string() != nullptr) return "string";
  return as_array() != nullptr ? "array" : "object";
}

bool equivalent(const Value& a, const Value& b) {
  if (a.as_int() != nullptr && b.as_double() != nullptr) {
    return same_number(*a.as_int(), *b.as_double());
  }
  if (a.as_double() != nullptr && b.as_int() != nullptr) {
    return same_number(*b.as_int(), *a.as_double());
  }
  if (a.as_array() != nullptr && b.as_array() != nullptr) {
    return std::ranges::equal(*a.as_array(), *b.as_array(), equivalent);
  }
  if (a.as_object() != nullptr && b.as_object() != nullptr) {
    return equivalent_objects(*a.as_object(), *b.as_object());
  }
  return a == b;
}

}  // namespace divisi::json
