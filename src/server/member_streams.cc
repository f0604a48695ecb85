#include "server/member_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace divisi::server {
namespace {

constexpr auto kTick = std::chrono::seconds(15);  // shorter than what proxies call idle

// Some lists of a large job. Who has not taken that much does not read.
constexpr std::size_t kMaxUnsent = std::size_t{512} << 10;

std::string event(std::string_view name, std::string_view data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

}  // namespace

MemberStreams::MemberStreams(io::Reactor& reactor, JobSource& source, Describe describe)
    : reactor_(reactor), source_(source), describe_(std::move(describe)) {
  follow_jobs();
  follow_pods();
  tick_ = reactor_.after(kTick, [this] { tick(); });
}

// The informers live in the source; they may tell for a moment longer than we are there.
void MemberStreams::follow_jobs() {
  kube::Handler handler;
  handler.on_added = [this, alive = std::weak_ptr(alive_)](const kube::ObjectPtr& job) {
    if (!alive.expired()) changed(job->key());
  };
  handler.on_changed = [this, alive = std::weak_ptr(alive_)](const kube::ObjectPtr& before,
                                                             const kube::ObjectPtr& now) {
    if (alive.expired()) return;
    if (before->uid() != now->uid()) end(before->key(), before->uid());
    changed(now->key());
  };
  handler.on_deleted = [this, alive = std::weak_ptr(alive_)](const kube::ObjectPtr& last, bool) {
    if (!alive.expired()) end(last->key(), last->uid());
  };
  source_.jobs().add_handler(std::move(handler));
}

void MemberStreams::follow_pods() {
  const auto pod_changed = [this, alive = std::weak_ptr(alive_)](const kube::ObjectPtr& pod) {
    if (alive.expired() || by_job_.empty()) return;
    for (const std::string& key : JobSource::pod_job_keys(pod->value())) changed(key);
  };
  kube::Handler handler;
  handler.on_added = pod_changed;
  handler.on_changed = [pod_changed](const kube::ObjectPtr&, const kube::ObjectPtr& now) {
    pod_changed(now);
  };
  handler.on_deleted = [pod_changed](const kube::ObjectPtr& last, bool) { pod_changed(last); };
  handler.on_synced = [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    for (const auto& [key, streams] : by_job_) changed(key);
  };
  source_.pods().add_handler(std::move(handler));
}

void MemberStreams::add(const std::shared_ptr<http::ServerCall>& call, const JobId& id,
                        const json::Value& object, std::string members) {
  auto stream = std::make_shared<Stream>();
  stream->call = call;
  stream->key = id.key();
  stream->uid = std::string(object.string_at({"metadata", "uid"}));
  by_job_[stream->key].push_back(stream);
  ++size_;
  call->start({200,
               "",
               {{"Content-Type", "text/event-stream"},
                {"Cache-Control", "no-cache"},
                {"X-Accel-Buffering", "no"}}});
  send(stream, event("members", members));
  stream->told = std::move(members);
  call->on_gone([this, weak = std::weak_ptr(stream), alive = std::weak_ptr(alive_)] {
    if (const auto gone = weak.lock(); gone && !alive.expired()) drop(gone);
  });
  changed(id.key());  // between what the caches had and now
}

void MemberStreams::changed(const std::string& key) {
  if (!by_job_.contains(key)) return;
  const bool first = changed_.empty();
  changed_.insert(key);
  if (!first) return;
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) tell_changed();
  });
}

void MemberStreams::tell_changed() {
  const std::set<std::string> keys = std::exchange(changed_, {});
  if (!source_.in_step()) return;  // all is told again when they are
  for (const std::string& key : keys) {
    const auto job = source_.cached_job(key);
    if (!job) continue;  // it was read live: the cache will have it, and tell
    const std::string members = describe_(*job);
    if (members.empty()) continue;
    for (const StreamPtr& stream : of_job(key)) {
      if (stream->uid != job->string_at({"metadata", "uid"}) || stream->told == members) continue;
      stream->told = members;
      send(stream, event("members", members));
    }
  }
}

std::vector<MemberStreams::StreamPtr> MemberStreams::of_job(const std::string& key) const {
  const auto found = by_job_.find(key);
  return found == by_job_.end() ? std::vector<StreamPtr>() : found->second;
}

void MemberStreams::send(const StreamPtr& stream, std::string text) {
  if (stream->call->unsent() > kMaxUnsent) return drop(stream);
  stream->call->write(std::move(text));
}

void MemberStreams::end(const std::string& key, const std::string& uid) {
  for (const StreamPtr& stream : of_job(key)) {
    if (stream->uid != uid) continue;
    stream->call->write(event("gone", "{}"));
    stream->call->finish();
    drop(stream);
  }
}

void MemberStreams::end_all() {
  size_ = 0;
  for (const auto& [key, streams] : std::exchange(by_job_, {})) {
    for (const StreamPtr& stream : streams) stream->call->finish();
  }
}

// Letting go of a call that is not finished closes its connection.
void MemberStreams::drop(const StreamPtr& stream) {
  const auto found = by_job_.find(stream->key);
  if (found == by_job_.end()) return;
  size_ -= std::erase(found->second, stream);
  if (found->second.empty()) by_job_.erase(found);
}

void MemberStreams::tick() {
  tick_ = reactor_.after(kTick, [this] { tick(); });
  std::vector<StreamPtr> streams;
  for (const auto& [key, of_key] : by_job_) {
    streams.insert(streams.end(), of_key.begin(), of_key.end());
  }
  for (const StreamPtr& stream : streams) {
    // A job that came and went before the cache saw it.
    if (source_.in_step() && !source_.jobs().find(stream->key)) {
      end(stream->key, stream->uid);
    } else {
      send(stream, ": still here\n\n");
    }
  }
}

}  // namespace divisi::server
