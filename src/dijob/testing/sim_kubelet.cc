#include "dijob/testing/sim_kubelet.h"

#include "kube/resource.h"
#include "kube/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using kube::MemoryStore;

constexpr const char* kPods = "/api/v1/pods";
constexpr const char* kNodes = "/api/v1/nodes";
constexpr auto kSilentAfter = 40s;  // the node controller's patience
constexpr auto kEvictAfter = 5min;  // how long the real cluster tolerates a node that is silent
constexpr auto kNodeBack = 20min;

std::string key_of(const json::Value& object) {
  return kube::object_key(object.string_at({"metadata", "namespace"}),
                          object.string_at({"metadata", "name"}));
}

void set_condition(json::Value& pod, const char* type, bool holds) {
  json::Value& conditions = pod["status"]["conditions"];
  if (conditions.as_array() == nullptr) conditions = json::Array{};
  for (json::Value& condition : *conditions.as_array()) {
    if (condition.string_at({"type"}) == type) {
      condition["status"] = holds ? "True" : "False";
      return;
    }
  }
  json::Value made;
  made["type"] = type;
  made["status"] = holds ? "True" : "False";
  conditions.as_array()->push_back(std::move(made));
}

// One state for all containers, as their list in the spec says.
void set_containers(json::Value& pod, bool ready, const json::Value& state) {
  json::Array statuses;
  const json::Value* containers = pod.find_path({"spec", "containers"});
  if (containers != nullptr && containers->as_array() != nullptr) {
    for (const json::Value& container : *containers->as_array()) {
      json::Value status;
      status["name"] = container.string_at({"name"});
      status["ready"] = ready;
      status["restartCount"] = 0;
      status["state"] = state;
      statuses.push_back(std::move(status));
    }
  }
  pod["status"]["containerStatuses"] = std::move(statuses);
}

json::Value terminated(int exit_code, const std::string& when) {
  json::Value state;
  state["terminated"]["exitCode"] = exit_code;
  state["terminated"]["reason"] = exit_code == 0 ? "Completed" : "Error";
  state["terminated"]["finishedAt"] = when;
  return state;
}

bool ended(const json::Value& pod) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

void end_with(json::Value& pod, int exit_code, const std::string& when) {
  pod["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
  set_condition(pod, "Ready", false);
  set_containers(pod, false, terminated(exit_code, when));
}

}  // namespace

std::string owner_of(const json::Value& object) {
  const json::Value* owners = object.find_path({"metadata", "ownerReferences"});
  if (owners == nullptr || owners->as_array() == nullptr) return {};
  for (const json::Value& owner : *owners->as_array()) {
    if (owner.bool_at({"controller"}).value_or(false)) return std::string(owner.string_at({"uid"}));
  }
  return {};
}

SimKubelet::SimKubelet(kube::testing::SimLoop& loop, kube::testing::FakeApi& api,
                       std::uint64_t seed)
    : loop_(loop), api_(api), random_(seed) {}

io::Duration SimKubelet::between(io::Duration least, io::Duration most) {
  return io::Duration(
      std::uniform_int_distribution<io::Duration::rep>(least.count(), most.count())(random_));
}

bool SimKubelet::is(const std::string& key, const std::string& uid) const {
  const json::Value* pod = api_.store.find(kPods, key);
  return pod != nullptr && pod->string_at({"metadata", "uid"}) == uid;
}

bool SimKubelet::stranded(const json::Value& pod) const {
  return dead_.contains(std::string(pod.string_at({"spec", "nodeName"})));
}

int SimKubelet::failures(const std::string& owner) const {
  const auto found = failures_.find(owner);
  return found == failures_.end() ? 0 : found->second;
}

void SimKubelet::edit(const std::string& key, const Edit& edit) {
  const json::Value* before = api_.store.find(kPods, key);
  if (before == nullptr) return;
  json::Value pod = *before;
  edit(pod);
  if (pod == *before) return;
  api_.store.update(kPods, key, std::move(pod));
  api_.changed();
}

// Only as long as the pod is the same one.
void SimKubelet::later(const std::string& key, std::string_view uid, io::Duration delay,
                       std::function<void()> what) {
  const std::uint64_t id = next_timer_++;
  timers_[id] = loop_.after(delay, [this, id, key, uid = std::string(uid), what = std::move(what)] {
    const auto self = std::move(timers_[id]);
    timers_.erase(id);
    if (is(key, uid)) what();
  });
}

void SimKubelet::see(const MemoryStore::Change& change) {
  if (change.collection != kPods) return;
  const json::Value& pod = change.object;
  const std::string key = key_of(pod);
  const std::string uid(pod.string_at({"metadata", "uid"}));
  if (change.type == "ADDED" && automatic) {
    later(key, uid, between(10ms, 800ms), [this, key, uid] { begin(key, uid); });
  }
  const bool marked = pod.find_path({"metadata", "deletionTimestamp"}) != nullptr;
  if (change.type == "MODIFIED" && marked && terminating_.insert(uid).second) {
    terminate(key, uid, pod);
  }
}

void SimKubelet::begin(const std::string& key, const std::string& uid) {
  schedule(key);
  later(key, uid, between(50ms, 2s), [this, key, uid] { start(key, uid); });
}

void SimKubelet::start(const std::string& key, const std::string& uid) {
  const json::Value& pod = *api_.store.find(kPods, key);
  if (stranded(pod) || ended(pod) || terminating_.contains(uid)) return;
  const Fate fate = script(pod);
  if (fate.end == Fate::End::kReject) return fail_with_reason(key, fate.reason);
  run(key, false);
  later(key, uid, between(50ms, 2s), [this, key, uid, fate] { live(key, uid, fate); });
}

void SimKubelet::live(const std::string& key, const std::string& uid, const Fate& fate) {
  const json::Value& pod = *api_.store.find(kPods, key);
  if (stranded(pod) || ended(pod) || terminating_.contains(uid)) return;
  run(key);
  if (fate.end == Fate::End::kNone) return;
  later(key, uid, fate.after, [this, key, uid, fate] {
    const json::Value& now = *api_.store.find(kPods, key);
    if (stranded(now) || ended(now) || terminating_.contains(uid)) return;
    if (fate.end == Fate::End::kSucceed) return succeed(key);
    if (fate.end == Fate::End::kEvict) return fail_with_reason(key, "Evicted");
    fail(key, fate.exit_code);
  });
}

// A process that is asked to end does so sometimes before its pod goes, seen by everybody.
void SimKubelet::terminate(const std::string& key, const std::string& uid, const json::Value& pod) {
  if (stranded(pod)) return;
  if (!automatic) {
    return later(key, uid, 1ms, [this, key] { finish_deletion(key); });
  }
  const std::int64_t grace = pod.int_at({"metadata", "deletionGracePeriodSeconds"}).value_or(30);
  const io::Duration most = std::min<io::Duration>(std::chrono::seconds(grace), 8s);
  const io::Duration usual = between(50ms, std::max<io::Duration>(most, 100ms));
  const io::Duration end = std::max(slow_end_, usual);
  if (random_() % 2 == 0) {
    later(key, uid, end / 2, [this, key] {
      if (stranded(*api_.store.find(kPods, key))) return;
      edit(key, [&](json::Value& now) {
        if (!ended(now)) end_with(now, 143, kube::rfc3339(loop_.wall()));
      });
    });
  }
  later(key, uid, end, [this, key] {
    if (!stranded(*api_.store.find(kPods, key))) finish_deletion(key);
  });
}

void SimKubelet::finish_deletion(const std::string& key) {
  const json::Value* const pod = api_.store.find(kPods, key);
  if (pod == nullptr) return;
  taken_.insert(std::string(pod->string_at({"metadata", "uid"})));
  api_.store.remove(kPods, key);
  api_.changed();
}

void SimKubelet::schedule(const std::string& key) {
  edit(key, [this](json::Value& pod) {
    if (pod.string_at({"spec", "nodeName"}).empty()) {
      std::vector<std::string> alive;
      for (const std::string& node : nodes_) {
        if (!dead_.contains(node)) alive.push_back(node);
      }
      pod["spec"]["nodeName"] = alive[random_() % alive.size()];
    }
    set_condition(pod, "PodScheduled", true);
  });
}

void SimKubelet::run(const std::string& key, bool ready) {
  schedule(key);
  edit(key, [&](json::Value& pod) {
    const std::string now = kube::rfc3339(loop_.wall());
    pod["status"]["phase"] = "Running";
    if (pod.find_path({"status", "startTime"}) == nullptr) pod["status"]["startTime"] = now;
    if (pod.find_path({"status", "podIP"}) == nullptr) {
      pod["status"]["podIP"] = fmt::format("10.0.{}.{}", next_ip_ / 250, next_ip_ % 250 + 1);
      ++next_ip_;
    }
    json::Value state;
    state["running"]["startedAt"] = now;
    set_condition(pod, "Ready", ready);
    set_containers(pod, ready, state);
  });
}

void SimKubelet::succeed(const std::string& key) {
  schedule(key);
  edit(key, [this](json::Value& pod) { end_with(pod, 0, kube::rfc3339(loop_.wall())); });
}

void SimKubelet::fail(const std::string& key, int exit_code) {
  schedule(key);
  edit(key, [&](json::Value& pod) {
    end_with(pod, exit_code, kube::rfc3339(loop_.wall()));
    ++failures_[owner_of(pod)];
  });
}

void SimKubelet::fail_with_reason(const std::string& key, const std::string& reason) {
  edit(key, [&](json::Value& pod) {
    pod["status"]["phase"] = "Failed";
    pod["status"]["reason"] = reason;
    pod["status"]["message"] = "The node said " + reason;
    set_condition(pod, "Ready", false);
    if (reason == "Evicted") ++failures_[owner_of(pod)];
  });
}

void SimKubelet::register_nodes() {
  for (const std::string& node : nodes_) {
    json::Value object;
    object["metadata"]["name"] = node;
    api_.store.create(kNodes, node, std::move(object), kube::rfc3339(loop_.wall()));
  }
  api_.changed();
}

void SimKubelet::taint(const std::string& node, const std::vector<std::string>& keys) {
  const json::Value* const before = api_.store.find(kNodes, node);
  if (before == nullptr) return;
  json::Value object = *before;
  json::Array taints;
  for (const std::string& key : keys) {
    taints.emplace_back(json::Object{{"key", key}, {"effect", "NoExecute"}});
  }
  object["spec"]["taints"] = std::move(taints);
  api_.store.update(kNodes, node, std::move(object));
  api_.changed();
}

void SimKubelet::kill_node(const std::string& node) {
  // One stays, so that there is always somewhere to go.
  if (dead_.size() + 1 >= nodes_.size() || !dead_.insert(node).second) return;
  const auto for_each_pod = [this, node](const std::function<void(const std::string&)>& what) {
    std::vector<std::string> found;
    for (const auto& [key, pod] : api_.store.all(kPods)) {
      if (pod.string_at({"spec", "nodeName"}) == node) found.push_back(key);
    }
    for (const std::string& key : found) what(key);
    api_.changed();
  };
  const std::uint64_t silent = next_timer_++;
  timers_[silent] =
      loop_.after(kSilentAfter, [this, node] { taint(node, {"node.kubernetes.io/unreachable"}); });
  const std::uint64_t evict = next_timer_++;
  timers_[evict] = loop_.after(kEvictAfter, [this, for_each_pod] {
    for_each_pod([this](const std::string& key) { api_.verbs.remove(kPods, key); });
  });
  const std::uint64_t back = next_timer_++;
  timers_[back] = loop_.after(kNodeBack, [this, node, for_each_pod] {
    for_each_pod([this](const std::string& key) { finish_deletion(key); });
    dead_.erase(node);
    taint(node, {});
  });
}

}  // namespace divisi::dijob::testing
