#include "dijob/executor.h"

#include "dijob/names.h"
#include "dijob/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace divisi::dijob {
namespace {

bool refused_for_good(const Status& status) {
  return status.code() == Code::kInvalid;
}

// A quota, a limit range, a policy, a missing class: somebody may change that.
bool refused_for_now(const Status& status) {
  // Whatever is made in a name space that goes away goes away with it.
  if (status.message().find("because it is being terminated") != std::string::npos) return false;
  return status.code() == Code::kForbidden || status.code() == Code::kTooManyRequests;
}

// Who has the name that a pod of the job needs; nothing if it is the job's own, which the cache
// will show.
std::optional<std::string> holder_of(Generation generation, const json::Value& pod,
                                     std::string_view job_uid) {
  const json::Value* const owners = pod.find_path({"metadata", "ownerReferences"});
  if (owners != nullptr && owners->as_array() != nullptr) {
    for (const json::Value& owner : *owners->as_array()) {
      if (!owner.bool_at({"controller"}).value_or(false)) continue;
      if (owner.string_at({"uid"}) != job_uid) {
        return fmt::format("belongs to {} {}", owner.string_at({"kind"}),
                           owner.string_at({"name"}));
      }
      if (has_owned_labels(generation, pod)) return std::nullopt;
      return fmt::format("has lost its label {}: set it again, or delete the pod",
                         owned_selector(generation));
    }
  }
  return "belongs to nobody: delete it, or give the job another name";
}

// Events about single pods do not use up what is allowed for those about the job.
constexpr std::string_view kOfPods = "pods";

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
  Generation generation = Generation::kSecond;
  json::Value job{};
  std::string key{};
  std::string space{};
  std::vector<Action> actions{};
  std::size_t started = 0;
  std::size_t before_pods = 0;  // actions[0, before_pods) are no creations of pods
  std::size_t batch = 1;
  std::size_t running = 0;
  bool stop = false;  // the next pods would be refused as well
  Executed outcome{};
  std::function<void(Executed)> done{};
};

Executor::Executor(kube::Client& client, kube::Expectations& expected,
                   kube::EventRecorder& recorder,
                   std::function<std::string(const std::string& job_uid)> make_secret)
    : client_(client),
      expected_(expected),
      recorder_(recorder),
      make_secret_(std::move(make_secret)) {}

void Executor::run(Generation generation, const json::Value& job, std::vector<Action> actions,
                   std::function<void(Executed)> done) {
  auto run = std::make_shared<Run>();
  run->generation = generation;
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
  const bool failed = !run->outcome.status.ok() || !run->outcome.refused.empty() || run->stop;
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
  if (const auto* const pod = std::get_if<DeletePod>(&action)) {
    return pod->force ? force_pod(run, *pod) : delete_pod(run, *pod);
  }
  if (const auto* const each = std::get_if<CreateService>(&action))
    return create_service(run, *each);
  if (const auto* const each = std::get_if<DeleteService>(&action))
    return delete_service(run, *each);
  if (const auto* const each = std::get_if<RepairService>(&action))
    return repair_service(run, *each);
  if (const auto* const each = std::get_if<CreateSecret>(&action)) return create_secret(run, *each);
  if (const auto* const each = std::get_if<Adopt>(&action)) return adopt(run, each->orphan);
  if (const auto* const each = std::get_if<SaveSpec>(&action)) return save_spec(run, *each);
  if (const auto* const each = std::get_if<DeleteSavedSpec>(&action))
    return delete_saved(run, *each);
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
          run->outcome.made_pods = true;
          recorder_.record(run->job, "Normal", "SuccessfulCreate",
                           created_text(run->generation, "pod", name), kOfPods);
          return ended(run, {});
        }
        expected_.created(run->key, name);
        const Status& why = answer.error();
        if (why.code() == Code::kAlreadyExists) return name_holder(run, name);
        if (refused_for_good(why) && run->generation == Generation::kSecond) {
          recorder_.record(run->job, "Warning", "FailedCreate",
                           failed_to_create_text(run->generation, "pod", name, why.message()));
          run->outcome.refused.push_back({name, why.message()});
          return ended(run, {});
        }
        failed_to_create(run, "pod", name, why);
      });
}

void Executor::failed_to_create(const std::shared_ptr<Run>& run, std::string_view kind,
                                const std::string& name, const Status& why) {
  // A first-generation job waits for an edit of what is invalid; a restart would change nothing.
  const bool waits = run->generation == Generation::kFirst && refused_for_good(why);
  if (!refused_for_now(why) && !waits) return ended(run, why);
  std::string text = failed_to_create_text(run->generation, kind, name, why.message());
  recorder_.record(run->job, "Warning", "FailedCreate", text);
  run->stop = true;
  if (run->outcome.blocked.empty()) run->outcome.blocked = std::move(text);
  ended(run, {});
}

// The other pods of the job are made all the same.
void Executor::name_holder(const std::shared_ptr<Run>& run, const std::string& pod) {
  client_.get(kube::resources::pods(), run->space, pod, {},
              [this, run, pod](const Result<json::Value>& found) {
                const auto holder = found ? holder_of(run->generation, *found,
                                                      run->job.string_at({"metadata", "uid"}))
                                          : std::nullopt;
                if (!holder) {
                  return ended(run, make_status(Code::kConflict, "pod {} is there already", pod));
                }
                std::string text = failed_to_create_text(
                    run->generation, "pod", pod, fmt::format("a pod of that name {}", *holder));
                recorder_.record(run->job, "Warning", "FailedCreate", text);
                // Of several always the same one: the condition does not flicker.
                std::string& blocked = run->outcome.blocked;
                if (blocked.empty() || text < blocked) blocked = std::move(text);
                ended(run, {});
              });
}

void Executor::adopt(const std::shared_ptr<Run>& run, const Orphan& orphan) {
  json::Value patch;
  patch["metadata"]["uid"] = orphan.uid;  // of that one only
  json::Array owners =
      orphan.owners.as_array() == nullptr ? json::Array{} : *orphan.owners.as_array();
  const std::string_view uid = run->job.string_at({"metadata", "uid"});
  std::erase_if(owners, [&](const json::Value& each) { return each.string_at({"uid"}) == uid; });
  owners.emplace_back(json::Object{{"apiVersion", owner_api_version(run->generation)},
                                   {"kind", dijobs().kind},
                                   {"name", run->job.string_at({"metadata", "name"})},
                                   {"uid", uid},
                                   {"controller", true},
                                   {"blockOwnerDeletion", true}});
  patch["metadata"]["ownerReferences"] = std::move(owners);
  const kube::Resource& resource =
      orphan.service ? kube::resources::services() : kube::resources::pods();
  const std::string_view kind = orphan.service ? "service" : "pod";
  client_.patch(
      resource, run->space, orphan.name, kube::PatchType::kMerge, patch,
      {.answer = kube::Answer::kMetadata},
      [this, run, kind, name = orphan.name, uid = orphan.uid](const Result<json::Value>& answer) {
        if (answer || gone(answer.error())) return ended(run, {});
        const Status& why = answer.error();
        if (why.code() != Code::kForbidden && why.code() != Code::kInvalid) return ended(run, why);
        recorder_.record(run->job, "Warning", "FailedAdopt",
                         fmt::format("{} {} has the labels of the job and no owner, and cannot "
                                     "become the job's: {}; it is left alone",
                                     kind, name, why.message()));
        run->outcome.unadopted.push_back(uid);
        ended(run, {});
      });
}

// Not worth to wait for: without it the job goes on, but for a bad edit.
void Executor::save_spec(const std::shared_ptr<Run>& run, const SaveSpec& action) {
  client_.create(revisions(), run->space, action.object, {.answer = kube::Answer::kNone},
                 [this, run, generation = action.object.int_at({"revision"}).value_or(0)](
                     const Result<json::Value>& answer) {
                   if (answer || answer.error().code() == Code::kAlreadyExists) {
                     run->outcome.saved_until = generation;
                   } else {
                     recorder_.record(run->job, "Warning", "FailedCreate",
                                      fmt::format("failed to save the spec: error: {}",
                                                  answer.error().message()));
                   }
                   ended(run, {});
                 });
}

void Executor::delete_saved(const std::shared_ptr<Run>& run, const DeleteSavedSpec& action) {
  client_.remove(revisions(), run->space, action.name, {},
                 [this, run](const Result<json::Value>&) { ended(run, {}); });
}

// A cache of nodes may be behind: the server itself says that the node is lost.
void Executor::force_pod(const std::shared_ptr<Run>& run, const DeletePod& action) {
  client_.get(kube::resources::nodes(), "", action.node, {},
              [this, run, action](const Result<json::Value>& node) {
                const bool lost = node ? is_unreachable(*node) || is_out_of_service(*node)
                                       : node.error().code() == Code::kNotFound;
                if (lost) return delete_pod(run, action);
                ended(run, node ? Status() : node.error());
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
                           deleted_text(run->generation, "pod", name), kOfPods);
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
            failed_to_delete_text(run->generation, "pod", name, answer.error().message()));
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
                           created_text(run->generation, "service", name));
          return ended(run, {});
        }
        expected_.created(run->key, service_expectation(name));
        const bool is_there = answer.error().code() == Code::kAlreadyExists;
        if (is_there && run->generation == Generation::kFirst) return ended(run, {});
        if (refused_for_now(answer.error())) {
          return failed_to_create(run, "service", name, answer.error());
        }
        recorder_.record(
            run->job, "Warning", "FailedCreate",
            failed_to_create_text(run->generation, "service", name, answer.error().message()));
        ended(run, answer.error());
      });
}

void Executor::delete_service(const std::shared_ptr<Run>& run, const DeleteService& action) {
  kube::DeleteOptions options;
  options.uid = action.uid;
  client_.remove(kube::resources::services(), run->space, action.name, options,
                 [this, run, name = action.name](const Result<json::Value>& answer) {
                   if (!answer && !gone(answer.error())) {
                     recorder_.record(run->job, "Warning", "FailedDelete",
                                      failed_to_delete_text(run->generation, "service", name,
                                                            answer.error().message()));
                     return ended(run, answer.error());
                   }
                   if (answer) {
                     recorder_.record(run->job, "Normal", "SuccessfulDelete",
                                      deleted_text(run->generation, "service", name));
                   }
                   ended(run, {});
                 });
}

void Executor::repair_service(const std::shared_ptr<Run>& run, const RepairService& action) {
  client_.patch(kube::resources::services(), run->space, action.name, kube::PatchType::kMerge,
                action.patch, {.answer = kube::Answer::kNone},
                [this, run, name = action.name](const Result<json::Value>& answer) {
                  if (answer) {
                    recorder_.record(run->job, "Warning", "ServiceRepaired",
                                     fmt::format("the selector of service {} was edited, and no "
                                                 "longer found the pods of the job",
                                                 name));
                  }
                  ended(run, answer || gone(answer.error()) ? Status() : answer.error());
                });
}

// One that is there already is this job's: a part of the uid is in its name.
void Executor::create_secret(const std::shared_ptr<Run>& run, const CreateSecret& action) {
  Job job;  // what it is called: the rest of the spec may be in repair
  job.space = run->space;
  job.name = run->job.string_at({"metadata", "name"});
  job.uid = run->job.string_at({"metadata", "uid"});
  client_.create(kube::resources::secrets(), run->space,
                 dijob::make_secret(job, make_secret_(job.uid)), {.answer = kube::Answer::kNone},
                 [this, run, name = secret_name(job),
                  was_there = action.was_there](const Result<json::Value>& answer) {
                   if (answer) run->outcome.made_secret = true;
                   if (answer || answer.error().code() == Code::kAlreadyExists) {
                     return ended(run, {});
                   }
                   // A full quota refuses even what is there already.
                   if (was_there && refused_for_now(answer.error())) return ended(run, {});
                   failed_to_create(run, "secret", name, answer.error());
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
