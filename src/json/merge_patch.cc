// JSON Merge Patch, RFC 7396.
#include "json/key_index.h"
#include "json/patch.h"
#include "json/pointer.h"

#include <algorithm>

namespace divisi::json {
namespace {

// Removes the members at `positions`, which are in no order.
void erase_members(Object& object, std::vector<std::size_t> positions) {
  if (positions.empty()) return;
  std::ranges::sort(positions);
  auto next = positions.begin();
  std::size_t kept = *next;
  for (std::size_t i = kept; i < object.size(); ++i) {
    if (next != positions.end() && *next == i) {
      ++next;
    } else {
      object[kept++] = std::move(object[i]);
    }
  }
  object.erase(object.begin() + static_cast<std::ptrdiff_t>(kept), object.end());
}

Value operation(std::string_view name, std::string path) {
  Value made;
  made["op"] = std::string(name);
  made["path"] = std::move(path);
  return made;
}

void add_operations(const Value* target, const Value& patch, const std::string& path, Array& out) {
  const Object* const changes = patch.as_object();
  if (changes != nullptr && target != nullptr && target->as_object() != nullptr) {
    for (const Member& change : *changes) {
      add_operations(target->find(change.first), change.second,
                     path + "/" + escape_token(change.first), out);
    }
  } else if (!patch.is_null()) {
    Value whole;
    apply_merge_patch(whole, patch);
    out.push_back(operation("add", path));  // also replaces
    out.back()["value"] = std::move(whole);
  } else if (target != nullptr) {
    out.push_back(operation("remove", path));
  }
}

}  // namespace

void apply_merge_patch(Value& target, const Value& patch) {
  const Object* changes = patch.as_object();
  if (changes == nullptr) {
    target = patch;
    return;
  }
  if (target.as_object() == nullptr) target = Object();
  Object& members = *target.as_object();
  const KeyIndex index(members);
  std::vector<std::size_t> removed;
  for (const Member& change : *changes) {
    const auto position = index.find(change.first);
    if (change.second.is_null()) {
      if (position) removed.push_back(*position);
    } else if (position) {
      apply_merge_patch(members[*position].second, change.second);
    } else {
      // Also what is new may hold nulls, which must not arrive.
      apply_merge_patch(members.emplace_back(change.first, Value()).second, change.second);
    }
  }
  erase_members(members, std::move(removed));
}

Value make_merge_patch(const Value& from, const Value& to) {
  const Object* before = from.as_object();
  const Object* after = to.as_object();
  if (before == nullptr || after == nullptr) return to;
  Object patch;
  const KeyIndex in_before(*before);
  const KeyIndex in_after(*after);
  for (const Member& member : *before) {
    if (!in_after.find(member.first)) patch.emplace_back(member.first, Value());
  }
  for (const Member& member : *after) {
    const auto position = in_before.find(member.first);
    if (!position) {
      patch.push_back(member);
    } else if (const Value& old = (*before)[*position].second; !equivalent(old, member.second)) {
      patch.emplace_back(member.first, make_merge_patch(old, member.second));
    }
  }
  return patch;
}

Value as_json_patch(const Value& target, const Value& merge_patch) {
  Array operations;
  add_operations(&target, merge_patch, "", operations);
  return operations;
}

}  // namespace divisi::json
