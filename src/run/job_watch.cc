#include "run/job_watch.h"

#include "run/cluster_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace divisi::run {
namespace {

// So much may wait to be printed before the server is held back.
constexpr std::size_t kMostWaiting = std::size_t{4} << 20;

kube::InformerOptions owners_options(BackendKind kind, const std::string& space,
                                     const std::string& name) {
  kube::InformerOptions options;
  options.reflector.space = space;
  if (kind == BackendKind::kDijob) {
    options.reflector.resource = dijobs();
    options.reflector.field_selector = "metadata.name=" + name;
  } else {
    options.reflector.resource = batch_jobs();
    options.reflector.label_selector = pod_labels(kind, name);
  }
  return options;
}

kube::InformerOptions pods_options(BackendKind kind, const std::string& space,
                                   const std::string& name) {
  kube::InformerOptions options;
  options.reflector.space = space;
  options.reflector.resource = kube::resources::pods();
  options.reflector.label_selector = pod_labels(kind, name);
  return options;
}

bool has_owner(const json::Value& object, const std::vector<std::string>& uids) {
  const json::Value* const owners = object.find_path({"metadata", "ownerReferences"});
  if (owners == nullptr || owners->as_array() == nullptr) return false;
  return std::ranges::any_of(*owners->as_array(), [&](const json::Value& owner) {
    return std::ranges::find(uids, owner.string_at({"uid"})) != uids.end();
  });
}

}  // namespace

std::string pod_labels(BackendKind kind, const std::string& name) {
  return kind == BackendKind::kDijob ? "diengine/job=" + name
                                     : fmt::format("{}={}", kJobLabel, name);
}

std::vector<std::string> owner_uids(const JobRecord& record) {
  std::vector<std::string> uids;
  const json::Value* const kept = record.data.find("uids");
  if (kept == nullptr || kept->as_array() == nullptr) return uids;
  for (const json::Value& uid : *kept->as_array()) {
    if (uid.as_string() != nullptr) uids.push_back(*uid.as_string());
  }
  return uids;
}

std::vector<json::Value> pods_of(std::vector<json::Value> pods,
                                 const std::vector<std::string>& uids) {
  std::erase_if(pods, [&](const json::Value& pod) { return !has_owner(pod, uids); });
  return pods;
}

JobWatch::JobWatch(ClusterLink& link, BackendKind kind, const JobRecord& record,
                   PodLogsOptions options)
    : link_(link), uids_(owner_uids(record)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  link_.session().reactor().run_on_loop([&] {
    kube::Client& client = link_.session().client();
    logs_ = std::make_unique<PodLogs>(
        client, link_.space(), std::move(options),
        [this](OutputLine line) { add_line(std::move(line)); }, [this] { tell_change(); });
    owners_ =
        std::make_unique<kube::Informer>(client, owners_options(kind, link_.space(), record.name));
    pods_ =
        std::make_unique<kube::Informer>(client, pods_options(kind, link_.space(), record.name));
    owners_->add_handler(
        {.on_added = [this](const kube::ObjectPtr&) { tell_change(); },
         .on_changed = [this](const kube::ObjectPtr&, const kube::ObjectPtr&) { tell_change(); },
         .on_deleted = [this](const kube::ObjectPtr&, bool) { tell_change(); },
         .on_synced = [this] { tell_change(); }});
    pods_->add_handler({.on_added = [this](const kube::ObjectPtr& pod) { pod_changed(pod); },
                        .on_changed = [this](const kube::ObjectPtr&,
                                             const kube::ObjectPtr& pod) { pod_changed(pod); },
                        .on_deleted =
                            [this](const kube::ObjectPtr& pod, bool) {
                              logs_->gone(pod->uid());
                              tell_change();
                            },
                        .on_synced = [this] { tell_change(); }});
    owners_->start();
    pods_->start();
  });
}

JobWatch::~JobWatch() {
  link_.session().reactor().run_on_loop([this] {
    pods_.reset();
    owners_.reset();
    logs_.reset();
  });
}

bool JobWatch::is_ours(const json::Value& object, bool by_owner) const {
  if (by_owner) return has_owner(object, uids_);
  return std::ranges::find(uids_, object.string_at({"metadata", "uid"})) != uids_.end();
}

void JobWatch::pod_changed(const kube::ObjectPtr& pod) {
  const json::Value value = pod->value();
  if (is_ours(value, true)) logs_->look_at(value);
  tell_change();
}

void JobWatch::tell_change() {
  changed_ = true;
  wake();
}

void JobWatch::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void JobWatch::add_line(OutputLine line) {
  const std::lock_guard lock(mutex_);
  bytes_ += line.text.size() + sizeof line;
  lines_.push_back(std::move(line));
  if (lines_.size() == 1) wake();
  if (paused_ || bytes_ < kMostWaiting) return;
  paused_ = true;
  link_.session().reactor().post([this] {
    if (logs_ != nullptr) logs_->pause(true);
  });
}

std::vector<OutputLine> JobWatch::take_lines() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  std::vector<OutputLine> lines;
  bool was_paused = false;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
    bytes_ = 0;
    was_paused = std::exchange(paused_, false);
  }
  if (was_paused) {
    link_.session().reactor().run_on_loop([this] { logs_->pause(false); });
  }
  return lines;
}

JobWatch::Seen JobWatch::seen() {
  Seen seen;
  std::vector<kube::ObjectPtr> owners;
  std::vector<kube::ObjectPtr> pods;
  link_.session().reactor().run_on_loop([&] {
    seen.synced = owners_->synced() && pods_->synced();
    owners = owners_->all();
    pods = pods_->all();
    for (const kube::Informer* informer : {owners_.get(), pods_.get()}) {
      seen.errors += informer->reflector().counters().errors;
      const Status& why = informer->reflector().last_error();
      if (why.code() == Code::kForbidden || why.code() == Code::kUnauthorized) seen.trouble = why;
    }
    seen.logs_settled = logs_->settled();
    if (!logs_->trouble().ok()) seen.trouble = logs_->trouble();
  });
  for (const kube::ObjectPtr& owner : owners) {
    json::Value value = owner->value();
    if (is_ours(value, false)) seen.owners.push_back(std::move(value));
  }
  for (const kube::ObjectPtr& pod : pods) {
    json::Value value = pod->value();
    if (is_ours(value, true)) seen.pods.push_back(std::move(value));
  }
  return seen;
}

void JobWatch::look_at(std::vector<json::Value> pods) {
  link_.session().reactor().run_on_loop([&] {
    for (const json::Value& pod : pods) {
      if (is_ours(pod, true)) logs_->look_at(pod);
    }
  });
  tell_change();
}

}  // namespace divisi::run
