#include "server/first/turns.h"

#include <utility>

namespace divisi::server::first {

void Turns::take(const std::string& key, std::function<void(std::shared_ptr<void>)> run) {
  const auto [entry, fresh] = waiting_.try_emplace(key);
  entry->second.push_back(std::move(run));
  if (fresh) start_next(key);
}

void Turns::start_next(const std::string& key) {
  reactor_.post([this, key, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto entry = waiting_.find(key);
    if (entry->second.empty()) {
      waiting_.erase(entry);
      return;
    }
    const auto run = std::move(entry->second.front());
    entry->second.pop_front();
    // The deleter runs when the last holder of the turn lets it go.
    run(std::shared_ptr<void>(this, [key, alive](void* self) {
      if (!alive.expired()) static_cast<Turns*>(self)->start_next(key);
    }));
  });
}

}  // namespace divisi::server::first
