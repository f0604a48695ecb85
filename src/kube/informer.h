// Informer: a cache of one kind of objects that follows the server, shared by many readers.
//
//   Informer pods(client, {.reflector = {.resource = resources::pods()}});
//   pods.add_index("job", [](const json::Value& pod) {...});
//   pods.add_handler({.on_added = [&](const ObjectPtr& pod) { queue.add(...); }});
//   pods.start();
//
// Loop only. Handlers run on the loop, in the order of the changes, and must not block: they put a
// key into a queue. What is read may be a moment behind the server, never ahead of what handlers
// were told.
#pragma once

#include "kube/object.h"
#include "kube/reflector.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::kube {

struct Handler {
  std::function<void(const ObjectPtr& now)> on_added{};
  std::function<void(const ObjectPtr& before, const ObjectPtr& now)> on_changed{};
  // `last` is the last state that was seen: after a list that lacks it, not the state in which it
  // was deleted (`missed`).
  std::function<void(const ObjectPtr& last, bool missed)> on_deleted{};
  // Everything listed so far was told; once.
  std::function<void()> on_synced{};
};

struct InformerOptions {
  ReflectorOptions reflector{};
  // Changes an object before it is kept: strips what no reader needs. metadata.managedFields and
  // the last applied configuration are always stripped.
  std::function<void(json::Value&)> transform{};
  // Tells on_changed of every object once in a while, against bugs of readers; 0: never.
  io::Duration resync_every{0};
};

class Informer final : private Sink {
 public:
  // The values under which an object is found.
  using Index = std::function<std::vector<std::string>(const json::Value&)>;

  Informer(Client& client, InformerOptions options);
  ~Informer() override;
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  // Before start().
  void add_index(std::string name, Index index);
  // At any time: a late one is told first of what is there. It lives as long as the informer.
  void add_handler(Handler handler);
  void start();
  void stop();

  bool synced() const noexcept { return synced_; }
  std::size_t size() const noexcept { return entries_.size(); }
  ObjectPtr find(std::string_view key) const;  // null when there is none
  std::vector<ObjectPtr> all() const;
  std::vector<ObjectPtr> find_by(std::string_view index, std::string_view value) const;

  const Reflector& reflector() const noexcept { return reflector_; }

 private:
  struct Entry {
    ObjectPtr object;
    std::uint64_t list = 0;                    // the last list or change that had it
    std::vector<std::string> indexed;          // one value list an index, flattened
    std::vector<std::uint32_t> indexed_count;  // how many values of each index
  };
  struct NamedIndex {
    Index index;
    std::unordered_map<std::string, std::vector<std::string>> keys;  // sorted
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  void begin_list() override;
  void listed(json::Value object) override { put(std::move(object)); }
  void end_list() override;
  void changed(json::Value object) override { put(std::move(object)); }
  void deleted(json::Value object) override;

  void put(json::Value object);
  void strip(json::Value& object) const;
  void drop(Entries::iterator entry, bool missed);
  void index(Entry& entry, const json::Value& value);
  void unindex(const std::string& key, Entry& entry);
  void resync();

  Client& client_;
  const InformerOptions options_;
  std::map<std::string, NamedIndex, std::less<>> indexes_;
  std::vector<Handler> handlers_;
  Entries entries_;
  std::uint64_t list_ = 0;
  bool synced_ = false;
  std::unique_ptr<io::Timer> resync_timer_;
  Reflector reflector_;
};

}  // namespace divisi::kube
