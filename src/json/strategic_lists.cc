#include "json/strategic_lists.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace divisi::json {
namespace {

// The text that two elements share when they are the same one.
Result<std::string> identity(const Value& element, std::string_view merge_key) {
  const bool scalar = element.as_object() == nullptr && element.as_array() == nullptr;
  if (merge_key.empty()) {
    if (!scalar) return failure(Code::kInvalid, "an element of a list of scalars is no scalar");
    return print(element);
  }
  if (element.as_object() == nullptr) {
    return failure(Code::kInvalid, "an element of the list is {}, not an object", element.kind());
  }
  const Value* key = element.find(merge_key);
  if (key == nullptr) return failure(Code::kInvalid, "an element of the list has no {}", merge_key);
  return print(*key);
}

using Positions = std::unordered_map<std::string, std::size_t>;

std::string_view directive_of(const Value& element) {
  return element.string_at({kPatch});
}

// An element that says something about the list instead of being part of it.
bool is_instruction(const Value& element) {
  return directive_of(element) == "replace" || directive_of(element) == "delete";
}

// Where each element stands; of equal ones, the first.
Result<Positions> positions_of(const Array& list, std::string_view merge_key) {
  Positions positions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (is_instruction(list[i])) continue;
    DIVISI_TRY(std::string key, identity(list[i], merge_key));
    positions.emplace(std::move(key), i);
  }
  return positions;
}

// An element of a list with the place it shall have.
struct Placed {
  Value value;
  std::pair<std::size_t, std::size_t> rank;  // in the order asked for, then as it came
  std::optional<std::size_t> before;         // its place in the list as it was
};

}  // namespace

bool is_directive(std::string_view key) noexcept {
  return key == kPatch || key == kRetainKeys || key.starts_with(kSetElementOrder) ||
         key.starts_with(kDeleteFromPrimitiveList);
}

std::optional<Value> without_directives(const Value& patch) {
  if (const Array* array = patch.as_array()) {
    Array items;
    for (const Value& item : *array) {
      if (directive_of(item) == "replace" && item.as_object()->size() == 1) continue;
      if (auto kept = without_directives(item)) items.push_back(*std::move(kept));
    }
    return items;
  }
  const Object* object = patch.as_object();
  if (object == nullptr) return patch;
  if (directive_of(patch) == "delete") return std::nullopt;
  Object members;
  for (const auto& [key, value] : *object) {
    if (is_directive(key) || value.is_null()) continue;
    if (auto kept = without_directives(value)) members.emplace_back(key, *std::move(kept));
  }
  return members;
}

Status merge_elements(Array& target, const Array& changes, const FieldSchema& field,
                      MergeObject merge_object) {
  std::unordered_set<std::string> deleted;
  bool replace = false;
  for (const Value& change : changes) {
    if (change.as_object() == nullptr) {
      return make_status(Code::kInvalid, "an element of the patch is {}, not an object",
                         change.kind());
    }
    const std::string_view directive = directive_of(change);
    if (directive == "replace") {
      replace = true;
    } else if (directive == "delete") {
      auto key = identity(change, field.merge_key);
      if (!key) return std::move(key).error();
      deleted.insert(*std::move(key));
    } else if (directive != "merge" && change.find(kPatch) != nullptr) {
      return {Code::kInvalid, "$patch is not replace, delete or merge"};
    }
  }
  if (replace) target.clear();
  std::erase_if(target, [&](const Value& element) {
    const auto key = identity(element, field.merge_key);
    return key && deleted.contains(*key);
  });
  auto positions = positions_of(target, field.merge_key);
  if (!positions) return std::move(positions).error();
  for (const Value& change : changes) {
    if (is_instruction(change)) continue;
    auto key = identity(change, field.merge_key);
    if (!key) return std::move(key).error();
    const auto [found, fresh] = positions->emplace(*key, target.size());
    if (fresh) {
      target.push_back(without_directives(change).value_or(Value(Object())));
    } else {
      DIVISI_TRY_STATUS(merge_object(target[found->second], change, field.type).with_context(*key));
    }
  }
  return {};
}

Status add_scalars(Array& target, const Array& added) {
  auto positions = positions_of(target, {});
  if (!positions) return std::move(positions).error();
  for (const Value& value : added) {
    auto key = identity(value, {});
    if (!key) return std::move(key).error();
    if (positions->emplace(*std::move(key), target.size()).second) target.push_back(value);
  }
  return {};
}

Status remove_scalars(Array& target, const Array& removed) {
  auto positions = positions_of(removed, {});
  if (!positions) return std::move(positions).error();
  std::erase_if(target, [&](const Value& value) { return positions->contains(print(value)); });
  return {};
}

Status order_elements(Array& merged, const Array& order, const Array& before,
                      std::string_view merge_key) {
  auto ranks = positions_of(order, merge_key);
  if (!ranks) return std::move(ranks).error();
  auto old_places = positions_of(before, merge_key);
  if (!old_places) return std::move(old_places).error();
  std::vector<Placed> ordered;
  std::vector<Placed> others;
  for (Value& value : merged) {
    auto key = identity(value, merge_key);
    if (!key) return std::move(key).error();
    const auto old_place = old_places->find(*key);
    Placed placed{std::move(value), {}, std::nullopt};
    if (old_place != old_places->end()) placed.before = old_place->second;
    if (const auto rank = ranks->find(*key); rank != ranks->end()) {
      placed.rank = {rank->second, ordered.size()};
      ordered.push_back(std::move(placed));
    } else {
      others.push_back(std::move(placed));
    }
  }
  std::ranges::sort(ordered, [](const Placed& a, const Placed& b) { return a.rank < b.rank; });
  merged.clear();
  auto next = ordered.begin();
  for (Placed& other : others) {
    // What is new goes in front of what the patch does not speak of, as in Kubernetes.
    while (next != ordered.end() && (!next->before || next->before < other.before)) {
      merged.push_back(std::move((next++)->value));
    }
    merged.push_back(std::move(other.value));
  }
  for (; next != ordered.end(); ++next) merged.push_back(std::move(next->value));
  return {};
}

Status check_order(const Array& changes, const Array& order, std::string_view merge_key) {
  auto ranks = positions_of(order, merge_key);
  if (!ranks) return std::move(ranks).error();
  std::size_t next = 0;
  for (const Value& change : changes) {
    if (is_instruction(change)) continue;
    auto key = identity(change, merge_key);
    if (!key) return std::move(key).error();
    const auto rank = ranks->find(*key);
    if (rank == ranks->end() || rank->second < next) {
      return make_status(Code::kInvalid, "{} is not where $setElementOrder has it", *key);
    }
    next = rank->second + 1;
  }
  return {};
}

}  // namespace divisi::json
