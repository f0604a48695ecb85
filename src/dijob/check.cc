// What a job must be beside readable. The first three texts are those of the reference, in its
// order: clients compare them.
#include "dijob/check_pod.h"
#include "dijob/fields.h"
#include "dijob/job.h"
#include "dijob/pod.h"
#include "json/selector.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace divisi::dijob {
namespace {

constexpr std::size_t kMaxLabel = 63;  // of DNS: service, host name, label value

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return make_status(Code::kInvalid, text, std::forward<Args>(args)...);
}

std::string task_path(std::size_t index) {
  return fmt::format("spec.tasks[{}]", index);
}

bool is_lower_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= kMaxLabel && is_lower_alnum(text.front()) &&
         is_lower_alnum(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_lower_alnum(c) || c == '-'; });
}

// --- the texts of the reference ---

Status check_types_and_names(const Job& job) {
  std::set<std::string_view> seen;
  for (const Task& task : job.tasks) {
    if (task.type != "none" && !seen.insert(task.type).second) {
      return bad("the number of {} task is more than one", task.type);
    }
  }
  for (const Task& task : job.tasks) {
    if (task.name.empty()) return bad("none type task has no name");
  }
  seen.clear();
  for (const Task& task : job.tasks) {
    if (!seen.insert(task.name).second)
      return bad("there is more than one task named {}", task.name);
  }
  return {};
}

// --- names ---

Status check_length(std::string_view what, const std::string& name) {
  if (name.size() <= kMaxLabel) return {};
  return bad("the {} {} would have {} characters; at most {} are allowed", what, quoted(name),
             name.size(), kMaxLabel);
}

Status check_job_name(const Job& job) {
  if (job.name.find('.') != std::string::npos) {
    return bad("the job name {} contains a dot, which its service and host names cannot have",
               quoted(job.name));
  }
  if (!is_dns_label(job.name) && job.name.size() <= kMaxLabel) {
    return bad("the job name {} must be of lower-case letters, digits and -", quoted(job.name));
  }
  if (job.form == Form::kTemplate && job.name.front() >= '0' && job.name.front() <= '9') {
    return bad("the job name {} begins with a digit, which its service of the same name cannot",
               quoted(job.name));
  }
  return check_length("service name", service_name(job));
}

Status check_task_name(const Job& job, const Task& task, const std::string& path) {
  if (!is_dns_label(task.name)) {
    return bad("{}.name {} must be of lower-case letters, digits and -, at most {}", path,
               quoted(task.name), kMaxLabel);
  }
  return check_length("pod name", pod_name(job, {task.name, std::max(task.replicas - 1, 0), 0}, 0));
}

// --- words and numbers ---

Status check_word(const std::string& path, std::string_view word,
                  std::initializer_list<std::string_view> allowed) {
  if (std::ranges::find(allowed, word) != allowed.end()) return {};
  return bad("{} must be one of {}, not {}", path, fmt::join(allowed, ", "), quoted(word));
}

Status check_total(std::int64_t processes) {
  if (processes <= kMaxReplicas) return {};
  return bad("the job asks for {} replicas; more than {} are refused", processes, kMaxReplicas);
}

Status check_task(const Job& job, const Task& task, const std::string& path) {
  DIVISI_TRY_STATUS(
      check_word(path + ".type", task.type, {"learner", "collector", "evaluator", "none"}));
  if (task.replicas < 1) return bad("{}.replicas must be at least 1, not {}", path, task.replicas);
  DIVISI_TRY_STATUS(check_task_name(job, task, path));
  if (task.min_available < 0 || task.min_available > task.replicas) {
    return bad("{}.minAvailable must be from 0 to its {} replicas, not {}", path, task.replicas,
               task.min_available);
  }
  return check_pod_template(job, task, path + ".template");
}

// --- the order of starting ---

// Takes away, again and again, the tasks that wait for none of those left: what cannot be taken
// away waits for itself.
Status check_start_order(const Job& job) {
  std::set<std::string_view> waiting;
  for (std::size_t i = 0; i < job.tasks.size(); ++i) {
    waiting.insert(job.tasks[i].name);
    for (const std::string& other : job.tasks[i].start_after) {
      if (job.find_task(other) == nullptr) {
        return bad("{}.startAfter names {}, which is no task of the job", task_path(i),
                   quoted(other));
      }
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const Task& task : job.tasks) {
      const auto is_waiting = [&](const std::string& other) { return waiting.contains(other); };
      if (std::ranges::none_of(task.start_after, is_waiting)) {
        changed |= waiting.erase(task.name) > 0;
      }
    }
  }
  if (waiting.empty()) return {};
  return bad("startAfter makes a circle of the tasks {}", fmt::join(waiting, ", "));
}

// --- the two forms ---

Status check_tasks_form(const Job& job) {
  if (job.tasks.empty()) return bad("spec.tasks is empty: a job needs a task");
  std::int64_t total = 0;
  for (std::size_t i = 0; i < job.tasks.size(); ++i) {
    DIVISI_TRY_STATUS(check_task(job, job.tasks[i], task_path(i)));
    total += job.tasks[i].replicas;
  }
  DIVISI_TRY_STATUS(check_total(total));
  return check_start_order(job);
}

Status check_template_form(const Job& job) {
  DIVISI_TRY_STATUS(
      check_word("spec.engineFields.topology", job.topology, {"star", "alone", "mesh"}));
  if (job.parallel_workers < 1) {
    return bad("spec.engineFields.parallelWorkers must be at least 1, not {}",
               job.parallel_workers);
  }
  if (job.min_replicas < 0)
    return bad("spec.minReplicas must not be negative, but is {}", job.min_replicas);
  const int most = job.max_replicas.value_or(job.min_replicas);
  if (job.max_replicas && (*job.max_replicas < 1 || most < job.min_replicas)) {
    return bad("spec.maxReplicas must be at least 1 and at least minReplicas ({}), not {}",
               job.min_replicas, most);
  }
  const int asked = std::max(most, job.tasks.front().replicas);
  DIVISI_TRY_STATUS(check_total(std::int64_t{asked} * job.parallel_workers));
  DIVISI_TRY_STATUS(json::check_label_value(job.group).with_context("spec.group"));
  const int last = std::max(asked - 1, 0);
  DIVISI_TRY_STATUS(check_length("pod name", pod_name(job, {"", last, last}, 0)));
  return check_pod_template(job, job.tasks.front(), "spec.template");
}

}  // namespace

Status check(const Job& job) {
  DIVISI_TRY_STATUS(job.form == Form::kTasks ? check_types_and_names(job) : Status());
  DIVISI_TRY_STATUS(check_job_name(job));
  if (!job.faults.empty()) return bad("{}", job.faults.front());
  DIVISI_TRY_STATUS(check_word("spec.priority", job.priority, {"normal", "high"}));
  DIVISI_TRY_STATUS(check_volumes(job.volumes, "spec.volumes"));
  return job.form == Form::kTasks ? check_tasks_form(job) : check_template_form(job);
}

Status can_run(const Job& job, const ClusterNames& names) {
  DIVISI_TRY_STATUS(check(job));
  return check_lists(job, names);
}

}  // namespace divisi::dijob
