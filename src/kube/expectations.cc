#include "kube/expectations.h"

namespace divisi::kube {

void Expectations::expect(const std::string& key, char kind, std::string object) {
  Pending& pending = pending_[key];
  pending.objects.insert(kind + std::move(object));
  pending.since = reactor_.now();
}

void Expectations::settle(const std::string& key, char kind, std::string_view object) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  auto& objects = found->second.objects;
  if (const auto one = objects.find(kind + std::string(object)); one != objects.end())
    objects.erase(one);
  if (objects.empty()) pending_.erase(found);
}

bool Expectations::satisfied(const std::string& key) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return true;
  if (reactor_.now() - found->second.since < believed_) return false;
  pending_.erase(found);
  return true;
}

}  // namespace divisi::kube
