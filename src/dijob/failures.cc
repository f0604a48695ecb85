#include "dijob/failures.h"

#include <algorithm>

namespace divisi::dijob {
namespace {

constexpr std::chrono::seconds kFirstWait{10};
constexpr std::chrono::seconds kLongestWait{600};
constexpr std::chrono::seconds kForgiven{600};  // a pod that ran so long begins anew
constexpr std::size_t kOlder = 4;  // failed pods of a seat that an old cache may still show

std::chrono::seconds wait_after(std::int64_t failures) {
  if (failures < 2) return std::chrono::seconds(0);
  const int doublings = static_cast<int>(std::min<std::int64_t>(failures - 2, 10));
  return std::min(kLongestWait, kFirstWait * (1 << doublings));
}

bool ran_long(const Pod* pod) {
  return pod != nullptr && pod->started && pod->ended && *pod->ended - *pod->started >= kForgiven;
}

}  // namespace

const SeatFailures* Failures::find(std::string_view pod) const {
  const auto found = status_->failures.find(pod);
  return found == status_->failures.end() ? nullptr : &found->second;
}

bool Failures::known(std::string_view pod, std::string_view uid) const {
  const SeatFailures* const entry = find(pod);
  if (entry == nullptr) return false;
  return entry->uid == uid || std::ranges::find(entry->older, uid) != entry->older.end();
}

bool Failures::failed_in(std::string_view pod, int restart) const {
  const SeatFailures* const entry = find(pod);
  return entry != nullptr && entry->restart == restart;
}

void Failures::enter(std::string_view pod, std::string_view uid, const Pod* failed, WallTime now) {
  if (known(pod, uid) && !uid.empty()) return;
  SeatFailures& entry = status_->failures[std::string(pod)];
  if (!entry.uid.empty()) {
    entry.older.push_back(entry.uid);
    if (entry.older.size() > kOlder) entry.older.erase(entry.older.begin());
  }
  entry.uid = uid;
  entry.count = (ran_long(failed) ? 0 : entry.count) + 1;
  entry.time = std::chrono::floor<std::chrono::seconds>(now);  // as it is written
  entry.restart = status_->restarts.value_or(0);
}

void Failures::enter_refused(std::string_view pod, WallTime now) {
  enter(pod, "", nullptr, now);
}

std::optional<std::chrono::milliseconds> Failures::wait(std::string_view pod, WallTime now) const {
  const SeatFailures* const entry = find(pod);
  if (entry == nullptr) return std::nullopt;
  const std::chrono::seconds pause = wait_after(entry->count);
  // A clock that was set back must not make the pause longer than it is.
  if (!entry->time || pause.count() == 0 || *entry->time > now + std::chrono::seconds(1)) {
    return std::nullopt;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*entry->time + pause - now);
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

void Failures::forget(std::string_view pod) {
  const auto found = status_->failures.find(pod);
  if (found != status_->failures.end()) status_->failures.erase(found);
}

}  // namespace divisi::dijob
