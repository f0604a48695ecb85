#include "dijob/amounts.h"

namespace divisi::dijob {

Result<json::Quantity> read_amount(const json::Value& value) {
  if (const std::string* text = value.as_string()) return json::Quantity::parse(*text);
  if (const std::int64_t* whole = value.as_int()) return json::Quantity(*whole);
  if (value.as_double() != nullptr) return json::Quantity::parse(json::print(value));
  return failure(Code::kInvalid, "a quantity must be a string or a number");
}

Amounts read_amounts(const json::Value* map) {
  Amounts amounts;
  if (map == nullptr || map->as_object() == nullptr) return amounts;
  for (const auto& [name, value] : *map->as_object()) {
    if (const Result<json::Quantity> amount = read_amount(value)) amounts.emplace(name, *amount);
  }
  return amounts;
}

}  // namespace divisi::dijob
