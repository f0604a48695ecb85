#include "kube/informer.h"

#include "io/jitter.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {

Informer::Informer(Client& client, InformerOptions options)
    : client_(client),
      options_(std::move(options)),
      reflector_(client, options_.reflector, *this) {}

Informer::~Informer() = default;

void Informer::add_index(std::string name, Index index) {
  DIVISI_CHECK(entries_.empty(), "indexes are added before an informer starts");
  indexes_[std::move(name)].index = std::move(index);
}

void Informer::add_handler(Handler handler) {
  if (handler.on_added) {
    for (const auto& [key, entry] : entries_) handler.on_added(entry.object);
  }
  if (synced_ && handler.on_synced) handler.on_synced();
  handlers_.push_back(std::move(handler));
}

void Informer::start() {
  reflector_.start();
  if (options_.resync_every > io::Duration(0)) resync();
}

void Informer::stop() {
  reflector_.stop();
  resync_timer_.reset();
}

ObjectPtr Informer::find(std::string_view key) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? nullptr : entry->second.object;
}

std::vector<ObjectPtr> Informer::all() const {
  std::vector<ObjectPtr> found;
  found.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) found.push_back(entry.object);
  return found;
}

std::vector<ObjectPtr> Informer::find_by(std::string_view name, std::string_view value) const {
  const auto named = indexes_.find(name);
  DIVISI_CHECK(named != indexes_.end(), "an index is added before it is asked");
  std::vector<ObjectPtr> found;
  const auto keys = named->second.keys.find(std::string(value));
  if (keys == named->second.keys.end()) return found;
  found.reserve(keys->second.size());
  for (const std::string& key : keys->second) found.push_back(entries_.find(key)->second.object);
  return found;
}

void Informer::begin_list() {
  ++list_;
}

void Informer::end_list() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.list != list_) drop(entry, true);
    entry = next;
  }
  if (std::exchange(synced_, true)) return;
  for (const Handler& handler : handlers_) {
    if (handler.on_synced) handler.on_synced();
  }
}

void Informer::strip(json::Value& object) const {
  if (options_.transform) options_.transform(object);
  if (json::Value* metadata = object.find("metadata"); metadata != nullptr) {
    metadata->erase("managedFields");
    if (json::Value* annotations = metadata->find("annotations"); annotations != nullptr) {
      annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
    }
  }
}

void Informer::put(json::Value object) {
  strip(object);
  auto made = std::make_shared<const Object>(object);
  auto [entry, added] = entries_.try_emplace(made->key());
  entry->second.list = list_;
  const ObjectPtr before = std::exchange(entry->second.object, made);
  // A list repeats what is known.
  if (before != nullptr && before->resource_version() == made->resource_version() &&
      before->uid() == made->uid()) {
    entry->second.object = before;
    return;
  }
  unindex(entry->first, entry->second);
  index(entry->second, object);
  for (const Handler& handler : handlers_) {
    if (before == nullptr) {
      if (handler.on_added) handler.on_added(made);
    } else if (before->uid() != made->uid()) {
      // Deleted and made again between two looks.
      if (handler.on_deleted) handler.on_deleted(before, true);
      if (handler.on_added) handler.on_added(made);
    } else if (handler.on_changed) {
      handler.on_changed(before, made);
    }
  }
}

void Informer::deleted(json::Value object) {
  strip(object);
  const auto made = std::make_shared<const Object>(object);
  const auto entry = entries_.find(made->key());
  if (entry == entries_.end()) return;  // never seen: nobody was told of it
  // The name may have been taken by a successor that a list has shown already.
  if (entry->second.object->uid() != made->uid()) return;
  entry->second.object = made;
  drop(entry, false);
}

void Informer::drop(Entries::iterator entry, bool missed) {
  unindex(entry->first, entry->second);
  const ObjectPtr last = entry->second.object;
  entries_.erase(entry);
  for (const Handler& handler : handlers_) {
    if (handler.on_deleted) handler.on_deleted(last, missed);
  }
}

void Informer::index(Entry& entry, const json::Value& value) {
  const std::string& key = entry.object->key();
  for (auto& [name, named] : indexes_) {
    std::vector<std::string> values = named.index(value);
    entry.indexed_count.push_back(static_cast<std::uint32_t>(values.size()));
    for (std::string& one : values) {
      std::vector<std::string>& keys = named.keys[one];
      const auto place = std::ranges::lower_bound(keys, key);
      if (place == keys.end() || *place != key) keys.insert(place, key);
      entry.indexed.push_back(std::move(one));
    }
  }
}

void Informer::unindex(const std::string& key, Entry& entry) {
  std::size_t next = 0;
  std::size_t which = 0;
  for (auto& [name, named] : indexes_) {
    if (which == entry.indexed_count.size()) break;
    for (std::uint32_t count = entry.indexed_count[which++]; count > 0; --count) {
      const auto keys = named.keys.find(entry.indexed[next++]);
      if (keys == named.keys.end()) continue;  // the same value twice
      const auto place = std::lower_bound(keys->second.begin(), keys->second.end(), key);
      if (place != keys->second.end() && *place == key) keys->second.erase(place);
      if (keys->second.empty()) named.keys.erase(keys);
    }
  }
  entry.indexed.clear();
  entry.indexed_count.clear();
}

void Informer::resync() {
  // A tenth more or less, so that the informers of many processes do not come together.
  const double share = 0.9 + 0.2 * io::jitter();
  const auto delay = std::chrono::duration_cast<io::Duration>(options_.resync_every * share);
  resync_timer_ = client_.reactor().after(delay, [this] {
    for (const ObjectPtr& object : all()) {
      for (const Handler& handler : handlers_) {
        if (handler.on_changed) handler.on_changed(object, object);
      }
    }
    resync();
  });
}

}  // namespace divisi::kube
