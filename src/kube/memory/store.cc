#include "kube/memory/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace divisi::kube {

const MemoryStore::Objects& MemoryStore::all(const std::string& collection) const {
  static const Objects none;
  const auto found = collections_.find(collection);
  return found == collections_.end() ? none : found->second;
}

const json::Value* MemoryStore::find(const std::string& collection, const std::string& key) const {
  const Objects& objects = all(collection);
  const auto found = objects.find(key);
  return found == objects.end() ? nullptr : &found->second;
}

void MemoryStore::remember(const std::string& collection, const char* type,
                           const json::Value& object) {
  history_.push_back({version_, collection, type, object});
  if (on_change) on_change(history_.back());
}

const json::Value& MemoryStore::put(const std::string& collection, const std::string& key,
                                    const char* type, json::Value object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  json::Value& kept = collections_[collection][key] = std::move(object);
  remember(collection, type, kept);
  return kept;
}

const json::Value& MemoryStore::create(const std::string& collection, const std::string& key,
                                       json::Value object, const std::string& now) {
  const std::string uid = fmt::format("00000000-0000-4000-8000-{:012}", next_uid_++);
  object["metadata"]["uid"] = uid;
  uids_.insert(uid);
  object["metadata"]["creationTimestamp"] = now;
  return put(collection, key, "ADDED", std::move(object));
}

const json::Value& MemoryStore::update(const std::string& collection, const std::string& key,
                                       json::Value object) {
  return put(collection, key, "MODIFIED", std::move(object));
}

void MemoryStore::trim_history(std::size_t keep) {
  if (history_.size() <= keep) return;
  const auto end = history_.end() - static_cast<std::ptrdiff_t>(keep);
  compacted_ = std::max(compacted_, std::prev(end)->version);
  history_.erase(history_.begin(), end);
}

json::Value MemoryStore::remove(const std::string& collection, const std::string& key) {
  Objects& objects = collections_[collection];
  json::Value last = std::move(objects.find(key)->second);
  objects.erase(key);
  last["metadata"]["resourceVersion"] = std::to_string(++version_);
  uids_.erase(std::string(last.string_at({"metadata", "uid"})));
  remember(collection, "DELETED", last);
  return last;
}

}  // namespace divisi::kube
