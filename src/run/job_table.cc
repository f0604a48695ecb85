#include "run/job_table.h"

#include "kube/time.h"
#include "run/job.h"

#include <fmt/format.h>

#include <algorithm>

namespace divisi::run {
namespace {

std::string code_text(const std::optional<int>& code) {
  return code ? std::to_string(*code) : "-";
}

std::size_t running_workers(const JobRecord& job) {
  return static_cast<std::size_t>(
      std::ranges::count(job.workers, JobState::kRunning, &WorkerRecord::state));
}

// By `divisi restart` and --watch, and of pods that were made again.
int all_restarts(const JobRecord& job) {
  int restarts = job.restarts;
  for (const WorkerRecord& worker : job.workers) restarts += worker.restarts;
  return restarts;
}

bool has_pods(const JobRecord& job) {
  return job.data.find("manifest") != nullptr;
}

std::string worker_table(const JobRecord& job) {
  std::vector<std::vector<std::string>> rows{
      {"  RANK", "HOST", "GPU", "STATE", "EXIT", "PID", "REASON"}};
  for (const WorkerRecord& worker : job.workers) {
    rows.push_back({fmt::format("  {}", worker.rank), worker.host, worker.gpu ? "yes" : "no",
                    std::string(state_name(worker.state)), code_text(worker.exit_code),
                    worker.process ? std::to_string(worker.process->pid) : "-", worker.reason});
  }
  return "Workers:\n" + columns(rows);
}

std::string pod_table(const JobRecord& job) {
  std::vector<std::vector<std::string>> rows{
      {"  POD", "TASK", "RANK", "ADDRESS", "STATE", "RESTARTS", "EXIT", "REASON"}};
  for (const WorkerRecord& pod : job.workers) {
    rows.push_back({"  " + pod.name, pod.task, std::to_string(pod.rank), pod.host,
                    std::string(state_name(pod.state)), std::to_string(pod.restarts),
                    code_text(pod.exit_code), pod.reason});
  }
  return "Pods:\n" + columns(rows);
}

}  // namespace

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      text += fmt::format("{:<{}}", row[i], widths[i] + 2);
    }
    text += (row.empty() ? "" : row.back()) + "\n";
  }
  return text;
}

std::string age_text(std::chrono::system_clock::duration age) {
  const auto seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(age).count());
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  // As kubectl does: the next unit once there are two of it.
  if (seconds < 2 * kMinute) return fmt::format("{}s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{}m", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{}h", seconds / kHour);
  return fmt::format("{}d", seconds / kDay);
}

std::string job_table(const std::vector<JobRecord>& jobs, bool wide) {
  std::vector<std::vector<std::string>> rows{
      {"NAME", "BACKEND", "STATE", "WORKERS", "EXIT", "RESTARTS", "AGE"}};
  if (wide) rows.front().insert(rows.front().end(), {"ENTRY", "REASON"});
  const auto now = std::chrono::system_clock::now();
  for (const JobRecord& job : jobs) {
    const std::string workers =
        has_ended(job.state) ? std::to_string(job.workers.size())
                             : fmt::format("{}/{}", running_workers(job), job.workers.size());
    rows.push_back({job.name, job.backend, std::string(state_name(job.state)), workers,
                    code_text(job.exit_code), std::to_string(all_restarts(job)),
                    age_text(now - job.created)});
    if (wide) rows.back().insert(rows.back().end(), {job.entry, job.reason});
  }
  return columns(rows);
}

std::string describe_job(const JobRecord& job, const std::string& folder) {
  std::vector<std::vector<std::string>> facts{
      {"Name:", job.name},
      {"Backend:", job.backend},
      {"State:", std::string(state_name(job.state))},
  };
  if (!job.reason.empty()) facts.push_back({"Reason:", job.reason});
  if (job.exit_code) facts.push_back({"Exit code:", std::to_string(*job.exit_code)});
  facts.push_back({job.data.find("manifest") == nullptr ? "Entry:" : "Manifest:", job.entry});
  if (!job.package.empty()) facts.push_back({"Package:", job.package});
  if (!job.package_digest.empty()) facts.push_back({"Digest:", job.package_digest});
  facts.push_back({"Command:", "divisi run " + shell_line(job.command_line)});
  facts.push_back({"Folder:", job.folder});
  facts.push_back({"Started:", kube::rfc3339(job.created)});
  if (job.ended) facts.push_back({"Ended:", kube::rfc3339(*job.ended)});
  facts.push_back({"Attached:", job.detached ? "no" : "yes"});
  facts.push_back({"Restarts:", std::to_string(all_restarts(job))});
  facts.push_back({"Records:", folder});
  return columns(facts) + (has_pods(job) ? pod_table(job) : worker_table(job));
}

}  // namespace divisi::run
