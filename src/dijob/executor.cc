#include "dijob/executor.h"

#include "dijob/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

bool refused_for_good(const Status& status) {
  // Whatever is made in a name space that goes away goes away with it.
  if (status.message().find("because it is being terminated") != std::string::npos) return false;
  return status.code() == Code::kInvalid || status.code() == Code::kForbidden;
}

bool gone(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kConflict;
}

// A pod that has ended, or never began, goes without a grace period.
bool was_deleted_at_once(const json::Value& answer) {
  const json::Value* const finalizers = answer.find_path({"metadata", "finalizers"});
  if (finalizers != nullptr) return false;
  return answer.string_at({"metadata", "deletionTimestamp"}).empty() ||
         answer.int_at({"metadata", "deletionGracePeriodSeconds"}) == 0;
}

}  // namespace

std::string service_expectation(std::string_view name) {
  return fmt::format("service/{}", name);
}

struct Executor::Run {
  json::Value job{};
  std::string key{};
  std::string space{};
  std::vector<Action> actions{};
  std::size_t started = 0;
  std::size_t before_pods = 0;  // actions[0, before_pods) are no creations of pods
  std::size_t batch = 1;
  std::size_t running = 0;
  Executed outcome{};
  std::function<void(Executed)> done{};
};

Executor::Executor(kube::Client& client, kube::Expectations& expected,
                   kube::EventRecorder& recorder, std::function<std::string()> make_secret)
    : client_(client),
      expected_(expected),
      recorder_(recorder),
      make_secret_(std::move(make_secret)) {}

void Executor::run(const json::Value& job, std::vector<Action> actions,
                   std::function<void(Executed)> done) {
  auto run = std::make_shared<Run>();
  run->job = job;
  run->space = job.string_at({"metadata", "namespace"});
  run->key = kube::object_key(run->space, job.string_at({"metadata", "name"}));
  for (Action& action : actions) {
    if (!std::holds_alternative<CreatePod>(action)) run->actions.push_back(std::move(action));
  }
  run->before_pods = run->actions.size();
  for (Action& action : actions) {
    if (std::holds_alternative<CreatePod>(action)) run->actions.push_back(std::move(action));
  }
  run->done = std::move(done);
  ++running_;
  next(run);
}

// The next batch, or the end.
void Executor::next(const std::shared_ptr<Run>& run) {
  const bool failed = !run->outcome.status.ok() || !run->outcome.refused.empty();
  if (failed || run->started == run->actions.size()) {
    --running_;
    return std::exchange(run->done, nullptr)(std::move(run->outcome));
  }
  const std::size_t first = run->started;
  if (first < run->before_pods) {
    run->started = run->before_pods;
  } else {
    run->started = std::min(run->actions.size(), first + run->batch);
    run->batch *= 2;
  }
  run->running = run->started - first;
  for (std::size_t i = first; i < run->started; ++i) start(run, i);
}

void Executor::start(const std::shared_ptr<Run>& run, std::size_t index) {
  const Action& action = run->actions[index];
  if (const auto* const pod = std::get_if<CreatePod>(&action)) return create_pod(run, *pod);
  if (const auto* const pod = std::get_if<DeletePod>(&action)) return delete_pod(run, *pod);
  if (const auto* const each = std::get_if<CreateService>(&action))
    return create_service(run, *each);
  if (const auto* const each = std::get_if<DeleteService>(&action))
    return delete_service(run, *each);
  if (std::holds_alternative<CreateSecret>(action)) return create_secret(run);
  delete_job(run);
}

void Executor::ended(const std::shared_ptr<Run>& run, Status status) {
  if (!status.ok() && run->outcome.status.ok()) run->outcome.status = std::move(status);
  if (--run->running == 0) next(run);
}

void Executor::create_pod(const std::shared_ptr<Run>& run, const CreatePod& action) {
  expected_.expect_created(run->key, action.name);
  client_.create(
      kube::resources::pods(), run->space, action.object, {.answer = kube::Answer::kNone},
      [this, run, name = action.name](const Result<json::Value>& answer) {
        if (answer) {
          recorder_.record(run->job, "Normal", "SuccessfulCreate",
                           fmt::format("pod {} was successfully created", name));
          return ended(run, {});
        }
        expected_.created(run->key, name);
        const Status& why = answer.error();
        if (refused_for_good(why)) {
          recorder_.record(run->job, "Warning", "FailedCreate",
                           fmt::format("failed to create pod: {} error: {}", name, why.message()));
          run->outcome.refused.push_back({name, why.message()});
          return ended(run, {});
        }
        ended(run, why);
      });
}

void Executor::delete_pod(const std::shared_ptr<Run>& run, const DeletePod& action) {
  if (!action.force) expected_.expect_deleted(run->key, action.uid);
  kube::DeleteOptions options;
  options.uid = action.uid;
  options.answer = kube::Answer::kMetadata;
  // The server would do so by itself for one that has ended, but in two writes.
  if (action.ended || action.force) options.grace_seconds = 0;
  client_.remove(
      kube::resources::pods(), run->space, action.name, options,
      [this, run, name = action.name, uid = action.uid](const Result<json::Value>& answer) {
        if (answer) {
          recorder_.record(run->job, "Normal", "SuccessfulDelete",
                           fmt::format("pod {} was successfully deleted", name));
          if (was_deleted_at_once(*answer)) {
            run->outcome.gone.push_back(uid);
            expected_.deleted(run->key, uid);
          }
          return ended(run, {});
        }
        expected_.deleted(run->key, uid);
        if (gone(answer.error())) return ended(run, {});
        recorder_.record(
            run->job, "Warning", "FailedDelete",
            fmt::format("failed to delete pod: {} error: {}", name, answer.error().message()));
        ended(run, answer.error());
      });
}

void Executor::create_service(const std::shared_ptr<Run>& run, const CreateService& action) {
  const std::string name(action.object.string_at({"metadata", "name"}));
  expected_.expect_created(run->key, service_expectation(name));
  client_.create(
      kube::resources::services(), run->space, action.object, {.answer = kube::Answer::kNone},
      [this, run, name](const Result<json::Value>& answer) {
        if (answer) {
          recorder_.record(run->job, "Normal", "SuccessfulCreate",
                           fmt::format("service {} was successfully created", name));
          return ended(run, {});
        }
        expected_.created(run->key, service_expectation(name));
        recorder_.record(
            run->job, "Warning", "FailedCreate",
            fmt::format("failed to create service: {} error: {}", name, answer.error().message()));
        ended(run, answer.error());
      });
}

void Executor::delete_service(const std::shared_ptr<Run>& run, const DeleteService& action) {
  client_.remove(kube::resources::services(), run->space, action.name, {},
                 [this, run, name = action.name](const Result<json::Value>& answer) {
                   if (!answer && !gone(answer.error())) {
                     recorder_.record(run->job, "Warning", "FailedDelete",
                                      fmt::format("failed to delete service: {} error: {}", name,
                                                  answer.error().message()));
                     return ended(run, answer.error());
                   }
                   if (answer) {
                     recorder_.record(run->job, "Normal", "SuccessfulDelete",
                                      fmt::format("service {} was successfully deleted", name));
                   }
                   ended(run, {});
                 });
}

// One that is there already is this job's: a part of the uid is in its name.
void Executor::create_secret(const std::shared_ptr<Run>& run) {
  auto job = read_job(run->job);
  if (!job) return ended(run, job.error());
  client_.create(kube::resources::secrets(), run->space, dijob::make_secret(*job, make_secret_()),
                 {.answer = kube::Answer::kNone}, [this, run](const Result<json::Value>& answer) {
                   const bool made = answer || answer.error().code() == Code::kAlreadyExists;
                   run->outcome.made_secret |= made;
                   ended(run, made ? Status() : answer.error());
                 });
}

void Executor::delete_job(const std::shared_ptr<Run>& run) {
  kube::DeleteOptions options;
  options.uid = run->job.string_at({"metadata", "uid"});
  options.propagation = "Background";
  client_.remove(dijobs(), run->space, run->job.string_at({"metadata", "name"}), options,
                 [this, run](const Result<json::Value>& answer) {
                   ended(run, answer || gone(answer.error()) ? Status() : answer.error());
                 });
}

}  // namespace divisi::dijob
