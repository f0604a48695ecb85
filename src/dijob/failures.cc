#include "dijob/failures.h"

#include "kube/time.h"

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

const json::Value* Failures::find(std::string_view pod) const {
  const json::Value* const all = status_.find("failures");
  return all == nullptr ? nullptr : all->find(pod);
}

bool Failures::known(std::string_view pod, std::string_view uid) const {
  const json::Value* const entry = find(pod);
  if (entry == nullptr) return false;
  if (entry->string_at({"uid"}) == uid) return true;
  const json::Value* const older = entry->find("older");
  return older != nullptr && older->as_array() != nullptr &&
         std::ranges::find(*older->as_array(), json::Value(uid)) != older->as_array()->end();
}

bool Failures::failed_in(std::string_view pod, int restart) const {
  const json::Value* const entry = find(pod);
  return entry != nullptr && entry->int_at({"restart"}) == restart;
}

void Failures::enter(std::string_view pod, std::string_view uid, const Pod* failed, WallTime now) {
  if (known(pod, uid) && !uid.empty()) return;
  json::Value& entry = status_["failures"][pod];
  const std::int64_t before = ran_long(failed) ? 0 : entry.int_at({"count"}).value_or(0);
  if (const std::string last(entry.string_at({"uid"})); !last.empty()) {
    json::Value& older = entry["older"];
    if (older.as_array() == nullptr) older = json::Array{};
    older.as_array()->emplace_back(last);
    if (older.as_array()->size() > kOlder) older.as_array()->erase(older.as_array()->begin());
  }
  entry["uid"] = uid;
  entry["count"] = before + 1;
  entry["time"] = kube::rfc3339(now);
  entry["restart"] = status_.number("restarts");
}

void Failures::enter_refused(std::string_view pod, WallTime now) {
  enter(pod, "", nullptr, now);
}

std::optional<std::chrono::milliseconds> Failures::wait(std::string_view pod, WallTime now) const {
  const json::Value* const entry = find(pod);
  if (entry == nullptr) return std::nullopt;
  const auto since = kube::parse_time(entry->string_at({"time"}));
  const std::chrono::seconds pause = wait_after(entry->int_at({"count"}).value_or(0));
  // A clock that was set back must not make the pause longer than it is.
  if (!since || pause.count() == 0 || *since > now + std::chrono::seconds(1)) return std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*since + pause - now);
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

void Failures::forget(std::string_view pod) {
  if (find(pod) == nullptr) return;
  status_["failures"].erase(pod);
  if (status_["failures"].as_object()->empty()) status_.erase("failures");
}

}  // namespace divisi::dijob
