#include "json/strategic.h"

#include "json/key_index.h"
#include "json/strategic_lists.h"
#include "json/strategic_schema.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace divisi::json {
namespace {

using Strategy = FieldSchema::Strategy;

Status merge_object(Value& target, const Value& patch, const TypeSchema* type);

Status merge_list_field(Array& target, const Array& changes, const Array& order,
                        const FieldSchema& field) {
  const Array before = target;
  DIVISI_TRY_STATUS(field.merge_key.empty() ? add_scalars(target, changes)
                                            : merge_elements(target, changes, field, merge_object));
  return order_elements(target, order, before, field.merge_key);
}

// $retainKeys: [a, b] drops every other field of the target; the patch may only speak of these.
Status retain_keys(Object& target, const Object& patch, const Value& directive) {
  std::unordered_set<std::string_view> kept;
  if (directive.as_array() == nullptr) return {Code::kInvalid, "$retainKeys is no list"};
  for (const Value& key : *directive.as_array()) {
    if (key.as_string() == nullptr) return {Code::kInvalid, "$retainKeys is no list of names"};
    kept.insert(*key.as_string());
  }
  for (const auto& [key, value] : patch) {
    if (!is_directive(key) && !value.is_null() && !kept.contains(key)) {
      return make_status(Code::kInvalid, "the patch has \"{}\", which is not in its $retainKeys",
                         key);
    }
  }
  std::erase_if(target, [&](const Member& member) { return !kept.contains(member.first); });
  return {};
}

Status delete_scalars(Value& target, std::string_view name, const Value& directive) {
  if (directive.as_array() == nullptr) {
    return make_status(Code::kInvalid, "{}{} is no list", kDeleteFromPrimitiveList, name);
  }
  Value* list = target.find(name);
  if (list == nullptr || list->as_array() == nullptr) return {};
  return remove_scalars(*list->as_array(), *directive.as_array());
}

// $setElementOrder/FIELD for a list that the patch leaves as it is otherwise.
Status reorder(Value& target, std::string_view name, const Value& order, const TypeSchema* type) {
  const FieldSchema& field = find_field(type, name);
  Value* list = target.find(name);
  if (order.as_array() == nullptr || field.strategy != Strategy::kMerge) {
    return make_status(Code::kInvalid, "{}{} is no list, or not of a list that is merged",
                       kSetElementOrder, name);
  }
  if (list == nullptr || list->as_array() == nullptr) return {};
  const Array before = *list->as_array();
  return order_elements(*list->as_array(), *order.as_array(), before, field.merge_key);
}

// What a field that was there becomes.
Status merge_field(Value& target, const Value& change, const Value* order,
                   const FieldSchema& field) {
  if (target.as_object() != nullptr && change.as_object() != nullptr &&
      field.strategy != Strategy::kReplace) {
    return merge_object(target, change, field.type);
  }
  if (field.strategy == Strategy::kMerge && change.as_array() != nullptr) {
    if (target.as_array() == nullptr) target = Array();
    const Array& changes = *change.as_array();
    const Array* wanted = order == nullptr ? nullptr : order->as_array();
    if (wanted != nullptr) DIVISI_TRY_STATUS(check_order(changes, *wanted, field.merge_key));
    return merge_list_field(*target.as_array(), changes, wanted == nullptr ? changes : *wanted,
                            field);
  }
  target = without_directives(change).value_or(Value(Object()));
  return {};
}

Status merge_members(Value& target, const Object& patch, const TypeSchema* type) {
  const auto order_of = [&](std::string_view name) -> const Value* {
    const auto found = std::ranges::find_if(patch, [&](const Member& member) {
      return member.first.starts_with(kSetElementOrder) &&
             std::string_view(member.first).substr(kSetElementOrder.size()) == name;
    });
    return found == patch.end() ? nullptr : &found->second;
  };
  Object& members = *target.as_object();
  const KeyIndex index(members);
  std::unordered_set<std::string_view> removed;
  for (const auto& [key, change] : patch) {
    if (is_directive(key)) continue;
    const auto position = index.find(key);
    const FieldSchema& field = find_field(type, key);
    const bool merged_list = field.strategy == Strategy::kMerge && change.as_array() != nullptr;
    if (change.is_null()) {
      removed.insert(key);
    } else if (position || merged_list) {
      Value& old = position ? members[*position].second : members.emplace_back(key, Value()).second;
      const Value* order = merged_list ? order_of(key) : nullptr;
      DIVISI_TRY_STATUS(merge_field(old, change, order, field).with_context(key));
    } else if (auto added = without_directives(change)) {
      members.emplace_back(key, *std::move(added));
    }
  }
  std::erase_if(members, [&](const Member& member) { return removed.contains(member.first); });
  return {};
}

Status merge_object(Value& target, const Value& patch, const TypeSchema* type) {
  const Object& changes = *patch.as_object();
  if (const Value* directive = patch.find(kPatch)) {
    const std::string* word = directive->as_string();
    if (word == nullptr || (*word != "replace" && *word != "delete" && *word != "merge")) {
      return {Code::kInvalid, "$patch is not replace, delete or merge"};
    }
    if (*word != "merge") {
      target = without_directives(patch).value_or(Value(Object()));
      return {};
    }
  }
  if (const Value* keys = patch.find(kRetainKeys)) {
    DIVISI_TRY_STATUS(retain_keys(*target.as_object(), changes, *keys));
  }
  for (const auto& [key, value] : changes) {
    const std::string_view name = key;
    if (name.starts_with(kDeleteFromPrimitiveList)) {
      DIVISI_TRY_STATUS(
          delete_scalars(target, name.substr(kDeleteFromPrimitiveList.size()), value));
    } else if (name.starts_with(kSetElementOrder)) {
      const std::string_view field = name.substr(kSetElementOrder.size());
      if (patch.find(field) == nullptr) {
        DIVISI_TRY_STATUS(reorder(target, field, value, type).with_context(field));
      }
    }
  }
  return merge_members(target, changes, type);
}

}  // namespace

bool has_strategic_schema(ObjectType type) noexcept {
  return find_schema(type) != nullptr;
}

Status apply_strategic_patch(Value& target, ObjectType type, const Value& patch) {
  const TypeSchema* schema = find_schema(type);
  if (schema == nullptr) {
    return make_status(Code::kInvalid,
                       "{} of {} takes no strategic merge patch; custom resources take merge patch",
                       type.kind, type.api_version);
  }
  if (patch.as_object() == nullptr || target.as_object() == nullptr) {
    return {Code::kInvalid, "a strategic merge patch and its target are objects"};
  }
  Value patched = target;
  if (const Status status = merge_object(patched, patch, schema); !status.ok()) {
    return status.with_context("strategic merge patch");
  }
  target = std::move(patched);
  return {};
}

}  // namespace divisi::json
