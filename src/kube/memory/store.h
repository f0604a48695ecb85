// MemoryStore: objects with versions and a history, as the store of an API server has them.
#pragma once

#include "json/value.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::kube {

class MemoryStore {
 public:
  struct Change {
    std::uint64_t version = 0;
    std::string collection{};  // "/api/v1/pods"
    std::string type{};        // "ADDED", "MODIFIED", "DELETED"
    json::Value object{};
  };
  using Objects = std::map<std::string, json::Value>;  // by "space/name"

  // Null when there is none.
  const json::Value* find(const std::string& collection, const std::string& key) const;
  const Objects& all(const std::string& collection) const;
  const std::map<std::string, Objects>& collections() const noexcept { return collections_; }
  bool has_uid(std::string_view uid) const { return uids_.contains(uid); }
  // Told of every change when it has been made; must not change the store itself.
  std::function<void(const Change&)> on_change{};

  // Sets uid, creationTimestamp and resourceVersion.
  const json::Value& create(const std::string& collection, const std::string& key,
                            json::Value object, const std::string& now);
  const json::Value& update(const std::string& collection, const std::string& key,
                            json::Value object);
  json::Value remove(const std::string& collection, const std::string& key);

  std::uint64_t version() const noexcept { return version_; }
  const std::vector<Change>& history() const noexcept { return history_; }
  // Watches from before this version get 410.
  std::uint64_t compacted() const noexcept { return compacted_; }
  void compact() { compacted_ = version_; }
  // Drops all but the newest `keep` entries of the history.
  void trim_history(std::size_t keep);

 private:
  void remember(const std::string& collection, const char* type, const json::Value& object);
  const json::Value& put(const std::string& collection, const std::string& key, const char* type,
                         json::Value object);

  std::map<std::string, Objects> collections_;
  std::vector<Change> history_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;
  std::uint64_t next_uid_ = 1;
  std::set<std::string, std::less<>> uids_;
};

}  // namespace divisi::kube
