#include "server/first/pod_writer.h"

#include "kube/retry.h"
#include "server/envelope.h"

#include <chrono>
#include <utility>

namespace divisi::server::first {
namespace {

constexpr int kTries = 5;
// A client waits for its answer; a call that hangs takes 30 s by itself.
constexpr auto kTryFor = std::chrono::seconds(20);

// After these the API server may have done what was asked, or may do it when asked again. A quota
// that many requests change at once refuses a new pod with a conflict.
bool is_passing(Code code) {
  return code == Code::kUnavailable || code == Code::kTimeout || code == Code::kInternal ||
         code == Code::kTooManyRequests || code == Code::kConflict;
}

std::string expectation_key(const json::Value& pod) {
  return kube::object_key(pod.string_at({"metadata", "namespace"}),
                          pod.string_at({"metadata", "labels", dijob::first::labels::kJob}));
}

bool is_going(const json::Value& pod) {
  return !pod.string_at({"metadata", "deletionTimestamp"}).empty();
}

}  // namespace

struct PodWriter::Try {
  io::TimePoint started;
  json::Value pod;
  std::string space;
  std::string name;
  std::string uid;
  std::string key;
  int tries = 0;
  kube::Backoff backoff{{std::chrono::milliseconds(50), std::chrono::seconds(2)}};
  std::string annotation;
  std::string value;
  bool at_once = false;    // remove
  bool unchanged = false;  // annotate
  std::function<void(Result<json::Value>)> created;
  std::function<void(Result<bool>)> removed;
  std::function<void(Status)> annotated;

  Try(json::Value object, io::TimePoint now)
      : started(now),
        pod(std::move(object)),
        space(pod.string_at({"metadata", "namespace"})),
        name(pod.string_at({"metadata", "name"})),
        uid(pod.string_at({"metadata", "uid"})),
        key(expectation_key(pod)) {}
};

kube::Done PodWriter::guarded(std::function<void(Result<json::Value>)> done) const {
  return [done = std::move(done), alive = std::weak_ptr(alive_)](Result<json::Value> outcome) {
    if (!alive.expired()) done(std::move(outcome));
  };
}

bool PodWriter::retry(const std::shared_ptr<Try>& one, const Status& why,
                      void (PodWriter::*again)(const std::shared_ptr<Try>&)) {
  const bool late = client_.reactor().now() - one->started > kTryFor;
  if (!is_passing(why.code()) || one->tries >= kTries || late) return false;
  const std::uint64_t id = next_timer_++;
  timers_[id] = client_.reactor().after(one->backoff.next(), [this, one, again, id] {
    const auto ended = std::move(timers_.at(id));
    timers_.erase(id);
    (this->*again)(one);
  });
  return true;
}

void PodWriter::look(const std::shared_ptr<Try>& one,
                     std::function<void(const Result<json::Value>& found)> then) {
  client_.get(kube::resources::pods(), one->space, one->name, {}, guarded(std::move(then)));
}

void PodWriter::create(json::Value pod, std::string made_for,
                       std::function<void(Result<json::Value>)> done) {
  pod["metadata"]["annotations"][kMadeFor] = made_for;
  const auto one = std::make_shared<Try>(std::move(pod), client_.reactor().now());
  one->value = std::move(made_for);
  source_.expectations().expect_created(one->key, one->name);
  one->created = [this, one_key = one->key, name = one->name,
                  done = std::move(done)](Result<json::Value> outcome) {
    if (!outcome) source_.expectations().created(one_key, name);
    done(std::move(outcome));
  };
  create_again(one);
}

void PodWriter::create_again(const std::shared_ptr<Try>& one) {
  ++one->tries;
  client_.create(
      kube::resources::pods(), one->space, one->pod, {},
      guarded([this, one](Result<json::Value> answer) { create_ended(one, std::move(answer)); }));
}

void PodWriter::create_ended(const std::shared_ptr<Try>& one, Result<json::Value> answer) {
  if (answer) return one->created(std::move(answer));
  const Status why = std::move(answer).error();
  if (retry(one, why, &PodWriter::create_again)) return;
  if (why.code() != Code::kAlreadyExists) {
    return one->created(failure(Code::kInternal, "{}", why.message()));
  }
  look(one, [one, why](const Result<json::Value>& found) {
    // Whether it is ours must be known: taking another name would make a second pod.
    if (!found && found.error().code() != Code::kNotFound) {
      return one->created(failure(Code::kInternal, "{}", found.error().message()));
    }
    const bool same = found && !is_going(*found) &&
                      found->string_at({"metadata", "annotations", kMadeFor}) == one->value;
    one->created(same ? found : Result<json::Value>(failure(why)));
  });
}

void PodWriter::remove(const json::Value& pod, bool at_once,
                       std::function<void(Result<bool>)> done) {
  const auto one = std::make_shared<Try>(pod, client_.reactor().now());
  one->at_once = at_once;
  source_.expectations().expect_deleted(one->key, one->uid);
  one->removed = [this, key = one->key, uid = one->uid,
                  done = std::move(done)](Result<bool> outcome) {
    if (!outcome || !*outcome) source_.expectations().deleted(key, uid);
    done(std::move(outcome));
  };
  remove_again(one);
}

void PodWriter::remove_again(const std::shared_ptr<Try>& one) {
  ++one->tries;
  kube::DeleteOptions options;
  options.uid = one->uid;
  if (one->at_once) options.grace_seconds = 0;
  client_.remove(
      kube::resources::pods(), one->space, one->name, options,
      guarded([this, one](const Result<json::Value>& answer) { remove_ended(one, answer); }));
}

void PodWriter::remove_ended(const std::shared_ptr<Try>& one, const Result<json::Value>& answer) {
  if (answer) return one->removed(true);
  const Status& why = answer.error();
  // With a conflict another pod has the name now. After a first try it may have been ours.
  if (why.code() == Code::kNotFound || why.code() == Code::kConflict) {
    return one->removed(one->tries > 1);
  }
  if (retry(one, why, &PodWriter::remove_again)) return;
  one->removed(failure(Code::kInternal, "{}", why.message()));
}

void PodWriter::annotate(const json::Value& pod, std::string_view key, std::string value,
                         bool unchanged, std::function<void(Status)> done) {
  const auto one = std::make_shared<Try>(pod, client_.reactor().now());
  one->unchanged = unchanged;
  one->annotation = key;
  one->value = std::move(value);
  one->annotated = std::move(done);
  annotate_again(one);
}

void PodWriter::annotate_again(const std::shared_ptr<Try>& one) {
  ++one->tries;
  json::Value patch;
  json::Value& metadata = patch["metadata"];
  metadata["uid"] = one->uid;
  if (one->unchanged) {
    metadata["resourceVersion"] = one->pod.string_at({"metadata", "resourceVersion"});
  }
  metadata["annotations"][one->annotation] = one->value;
  kube::WriteOptions options;
  options.answer = kube::Answer::kMetadata;
  client_.patch(
      kube::resources::pods(), one->space, one->name, kube::PatchType::kMerge, patch, options,
      guarded([this, one](const Result<json::Value>& answer) { annotate_ended(one, answer); }));
}

void PodWriter::annotate_ended(const std::shared_ptr<Try>& one, const Result<json::Value>& answer) {
  if (answer) return one->annotated({});
  const Status& why = answer.error();
  const bool conflict = why.code() == Code::kConflict || why.code() == Code::kNotFound;
  if (!conflict && retry(one, why, &PodWriter::annotate_again)) return;
  if (!conflict) return one->annotated({Code::kInternal, why.message()});
  // It may have been changed by an earlier try of ours whose answer was lost.
  look(one, [one, why](const Result<json::Value>& found) {
    const bool same = one->tries > 1 && found &&
                      found->string_at({"metadata", "uid"}) == one->uid &&
                      found->string_at({"metadata", "annotations", one->annotation}) == one->value;
    one->annotated(same ? Status() : Status(Code::kConflict, why.message()));
  });
}

}  // namespace divisi::server::first
