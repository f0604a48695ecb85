#include "dijob/job.h"

#include "dijob/fields.h"
#include "dijob/names.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

namespace divisi::dijob {
namespace {

// What clients of the reference look for at the start of the message.
tl::unexpected<Status> unreadable(std::string_view why) {
  return failure(Code::kInvalid, "failed to convert type: {}", why);
}

// One of the words of `choices`; another one is remembered for check() and stands for the first.
template <class T>
T choose(const std::string& path, std::string_view text,
         std::initializer_list<std::pair<std::string_view, T>> choices,
         std::vector<std::string>& faults) {
  if (text.empty()) return choices.begin()->second;
  std::string words;
  for (const auto& [word, value] : choices) {
    if (word == text) return value;
    words += words.empty() ? "" : ", ";
    words += word;
  }
  faults.push_back(fmt::format("{} must be one of {}, not {}", path, words, quoted(text)));
  return choices.begin()->second;
}

// Absent and null are two things here: the default, and no limit at all.
std::optional<Limit> read_limit(Fields& fields) {
  if (fields.has_null("backoffLimit")) return std::optional<Limit>(std::in_place, std::nullopt);
  const std::optional<int> limit = fields.number("backoffLimit");
  if (!limit) return std::nullopt;
  return Limit(std::max(*limit, 0));
}

std::vector<ExitRule> read_exit_rules(Fields& owner, std::vector<std::string>& faults) {
  std::vector<ExitRule> rules;
  for (Fields& fields : owner.objects("exitCodeRules")) {
    const auto action = choose<ExitAction>(fields.at("action"), fields.text("action"),
                                           {{"Count", ExitAction::kCount},
                                            {"Ignore", ExitAction::kIgnore},
                                            {"FailJob", ExitAction::kFailJob}},
                                           faults);
    rules.push_back({fields.numbers("exitCodes"), action});
    const std::vector<int>& codes = rules.back().codes;
    const auto possible = [](int code) { return code >= 0 && code <= 255; };
    if (codes.empty() || !std::ranges::all_of(codes, possible)) {
      faults.push_back(
          fmt::format("{} must be a list of exit codes from 0 to 255", fields.at("exitCodes")));
    }
  }
  return rules;
}

std::optional<std::chrono::seconds> read_seconds(Fields& fields, std::string_view key,
                                                 std::vector<std::string>& faults) {
  const std::optional<int> seconds = fields.number(key);
  if (!seconds) return std::nullopt;
  if (*seconds < 0) faults.push_back(fmt::format("{} must not be negative", fields.at(key)));
  return std::chrono::seconds(std::max(*seconds, 0));
}

Task read_task(Fields& fields, Job& job) {
  Task task;
  task.type = fields.text("type", "none");
  if (task.type.empty()) task.type = "none";
  task.name = fields.text("name");
  if (task.name.empty() && task.type != "none") task.name = task.type;
  task.sized = fields.number("replicas").has_value();
  task.replicas = fields.number("replicas", 1);
  task.pod_template = read_pod_template(fields, job.warnings);
  task.restart = choose<Restart>(fields.at("restartPolicy"), fields.text("restartPolicy"),
                                 {{"OnFailure", Restart::kOnFailure},
                                  {"Never", Restart::kNever},
                                  {"Always", Restart::kAlways}},
                                 job.faults);
  task.backoff_limit = read_limit(fields);
  task.completes_job = fields.flag("completesJob", false);
  task.min_available = fields.number("minAvailable", 0);
  task.start_after = fields.texts("startAfter");
  task.exit_rules = read_exit_rules(fields, job.faults);
  return task;
}

void read_tasks_form(Fields& spec, Job& job) {
  job.form = Form::kTasks;
  job.backoff_limit = read_limit(spec).value_or(Limit(3));
  job.volumes = spec.values("volumes");
  for (Fields& volume : spec.objects("volumes")) (void)volume.text("name");
  for (Fields& task : spec.objects("tasks")) job.tasks.push_back(read_task(task, job));
}

void read_template_form(Fields& spec, Job& job) {
  job.form = Form::kTemplate;
  job.backoff_limit = read_limit(spec).value_or(Limit(0));
  job.group = spec.text("group");
  job.min_replicas = spec.number("minReplicas", 0);
  job.max_replicas = spec.number("maxReplicas");
  Fields engine = spec.object("engineFields");
  job.topology = engine.text("topology", "star");
  if (job.topology.empty()) job.topology = "star";
  job.parallel_workers = engine.number("parallelWorkers", 1);

  Task workers;
  workers.type = "none";
  workers.replicas = job.min_replicas;
  workers.pod_template = read_pod_template(spec, job.warnings);
  job.tasks.push_back(std::move(workers));
}

void read_metadata(const json::Value& object, Job& job) {
  job.space = object.string_at({"metadata", "namespace"});
  job.name = object.string_at({"metadata", "name"});
  job.uid = object.string_at({"metadata", "uid"});
  job.generation = object.int_at({"metadata", "generation"}).value_or(0);
  job.deleting = !object.string_at({"metadata", "deletionTimestamp"}).empty();
  job.created = object.string_at({"metadata", "creationTimestamp"});
  job.restarted_at = object.string_at({"metadata", "annotations", annotations::kRestartedAt});
}

void read_common(Fields& spec, Job& job) {
  job.priority = spec.text("priority", "normal");
  if (job.priority.empty()) job.priority = "normal";
  const std::string clean = spec.text("cleanPodPolicy");
  job.clean_pods = choose<CleanPods>(
      spec.at("cleanPodPolicy"), clean == "ALL" ? "All" : clean,  // v0.1.0 spelled it so
      {{"Running", CleanPods::kRunning}, {"All", CleanPods::kAll}, {"None", CleanPods::kNone}},
      job.faults);
  job.preemptible = spec.flag("preemptible", false);
  job.replicas = spec.number("replicas");
  job.suspended = spec.flag("suspend", false);
  job.keep_finished = read_seconds(spec, "ttlSecondsAfterFinished", job.faults);
  job.active_deadline = read_seconds(spec, "activeDeadlineSeconds", job.faults);
  job.exit_rules = read_exit_rules(spec, job.faults);
}

}  // namespace

const Task* Job::find_task(std::string_view task) const noexcept {
  const auto found = std::ranges::find(tasks, task, &Task::name);
  return found == tasks.end() ? nullptr : &*found;
}

int Job::want() const noexcept {
  std::int64_t sum = 0;
  for (const Task& task : tasks) sum += std::max(task.replicas, 0);
  return static_cast<int>(std::min<std::int64_t>(sum, std::numeric_limits<int>::max()));
}

Result<Job> read_job(const json::Value& object) {
  Job job;
  Status bad;
  const Fields top(object, "the object", bad);
  if (bad.ok() && top.find("spec") == nullptr) return unreadable("the object has no spec");
  if (!bad.ok()) return unreadable(bad.message());
  Fields spec(*top.find("spec"), "spec", bad);

  const bool has_tasks = spec.find("tasks") != nullptr;
  const bool has_template = spec.find("template") != nullptr;
  if (spec.find("coordinator") != nullptr) {
    if (!has_tasks && !has_template) return unreadable("spec.coordinator is the form of v1alpha1");
    return unreadable(fmt::format("spec has both coordinator and {}: one form only",
                                  has_tasks ? "tasks" : "template"));
  }
  if (has_tasks && has_template)
    return unreadable("spec has both tasks and template: one form only");
  if (bad.ok() && !has_tasks && !has_template)
    return unreadable("spec has neither tasks nor template");

  read_metadata(object, job);
  has_tasks ? read_tasks_form(spec, job) : read_template_form(spec, job);
  read_common(spec, job);
  if (!bad.ok()) return unreadable(bad.message());
  if (job.form == Form::kTasks && job.replicas) {
    const Task* const scaled = scaled_task(job);
    if (scaled != nullptr && !scaled->sized) {
      job.tasks[static_cast<std::size_t>(scaled - job.tasks.data())].replicas = *job.replicas;
    }
  }
  return job;
}

Job resized(Job job, std::size_t task, int replicas) {
  job.tasks.at(task).replicas = replicas;
  return job;
}

const Task* scaled_task(const Job& job) noexcept {
  const auto collector = std::ranges::find(job.tasks, "collector", &Task::type);
  if (collector != job.tasks.end()) return &*collector;
  return job.tasks.size() == 1 ? &job.tasks.front() : nullptr;
}

}  // namespace divisi::dijob
