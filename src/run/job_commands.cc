#include "run/job_commands.h"

#include "base/nearest_name.h"
#include "divisi/export.h"
#include "json/yaml.h"
#include "kube/time.h"
#include "run/backend.h"
#include "run/command_support.h"
#include "run/environment.h"
#include "run/job_table.h"
#include "run/manifest_backend.h"
#include "run/run_command.h"
#include "run/settings.h"
#include "run/signal_pipe.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>

namespace divisi::run {
namespace {

// As the other side says it; what cannot be asked is Unknown, with the reason.
void refresh(const JobRecords& records, JobRecord& record) {
  if (has_ended(record.state)) return;
  auto backend = backend_of(record);
  const Status status = backend ? (*backend)->refresh(records, record) : std::move(backend).error();
  if (status.ok()) return;
  record.state = JobState::kUnknown;
  record.reason = status.message();
}

std::string print_records(const std::vector<JobRecord>& jobs, const std::string& format) {
  if (format == "table" || format == "wide") return job_table(jobs, format == "wide");
  if (format == "name") {
    std::string names;
    for (const JobRecord& job : jobs) names += job.name + "\n";
    return names;
  }
  json::Array items;
  for (const JobRecord& job : jobs) items.push_back(to_json(job));
  if (format == "json") return json::print(json::Value(std::move(items)), 2) + "\n";
  return json::print_yaml(json::Value(std::move(items)));
}

Result<std::chrono::system_clock::time_point> parse_since(const std::string& text) {
  if (const auto time = kube::parse_time(text)) return *time;
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  const std::string unit(end, text.data() + text.size());
  const double seconds = unit.empty() || unit == "s" ? 1
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                         : unit == "d"               ? 86400
                                                     : 0;
  if (error != std::errc() || seconds == 0 || amount < 0 || amount * seconds > 1e9) {
    return failure(Code::kInvalid,
                   "--since: '{}' is neither 90s, 10m, 2h, 1d nor a time like "
                   "2026-01-31T10:00:00Z",
                   launch::shown(text));
  }
  return std::chrono::system_clock::now() -
         std::chrono::milliseconds(static_cast<std::int64_t>(amount * seconds * 1000));
}

// Ranks, or "gpu" and "worker" for those with and without a GPU; of pods also their names and those
// of their tasks.
Status choose_workers(const std::vector<std::string>& texts, const JobRecord& record,
                      FollowOptions& options) {
  std::vector<std::string> names;
  for (const WorkerRecord& worker : record.workers) {
    if (worker.name.empty()) continue;
    names.push_back(worker.task);
    names.push_back(worker.name);
  }
  for (const std::string& text : texts) {
    for (const std::string& part : launch::split_list(text)) {
      if (std::ranges::find(names, part) != names.end()) {
        options.workers.insert(part);
      } else if (part == "gpu" || part == "worker") {
        for (const WorkerRecord& worker : record.workers) {
          if (worker.gpu == (part == "gpu")) options.ranks.insert(worker.rank);
        }
      } else if (!names.empty() && part.find_first_not_of("0123456789") != std::string::npos) {
        return make_status(Code::kInvalid, "--task: {} has neither a task nor a pod {}{}",
                           record.name, launch::shown(part),
                           did_you_mean(std::string_view(part).substr(0, 64), names));
      } else {
        const int last = static_cast<int>(record.workers.size()) - 1;
        const auto rank = launch::parse_int(part, 0, std::max(last, 0), "--task");
        if (!rank) return rank.error();
        options.ranks.insert(*rank);
      }
    }
  }
  return {};
}

int parallel_workers_of(const JobRecord& record) {
  const auto line = parse_run_line(record.command_line);
  if (!line) return 1;
  const auto given = line->given.find("parallel-workers");
  if (given == line->given.end()) return 1;
  return launch::parse_int(given->second.values.back(), 1, 1 << 20, "").value_or(1);
}

struct LogsRequest {
  std::string name;
  bool follow = false;
  bool previous = false;
  bool timestamps = false;
  std::vector<std::string> tasks;
  std::string since;
};

Status print_logs(const LogsRequest& request) {
  auto records = our_records();
  if (!records) return records.error();
  auto found = find_job(*records, request.name);
  if (!found) return found.error();
  JobRecord* const record = &found->record;
  auto backend = backend_of(*record);
  if (!backend) return backend.error();
  FollowOptions options;
  options.follow = request.follow;
  options.previous = request.previous;
  DIVISI_TRY_STATUS(choose_workers(request.tasks, *record, options));
  if (!request.since.empty()) {
    const auto since = parse_since(request.since);
    if (!since) return since.error();
    options.since = *since;
  }
  const SignalPipe signals;
  options.wake_fd = signals.fd();
  options.on_wake = [] { return false; };
  PrintingSink sink(stdout, stderr,
                    {.parallel_workers = parallel_workers_of(*record),
                     .coloured = colours_wanted(stdout),
                     .timestamps = request.timestamps,
                     .program = "divisi logs"});
  const Status status = (*backend)->follow(*records, *record, options, sink);
  // Whoever follows may go away; that is no failure.
  return status.code() == Code::kCancelled ? Status() : status;
}

Status delete_job(const JobRecords& records, const std::string& name, bool now) {
  auto found = find_job(records, name);
  if (!found) return found.error();
  JobRecord* const record = &found->record;
  auto backend = backend_of(*record);
  if (!backend) return backend.error();
  DIVISI_TRY_STATUS((*backend)->stop(records, *record, now));
  DIVISI_TRY_STATUS(wait_until_ended(**backend, records, *record));
  DIVISI_TRY_STATUS((*backend)->remove(records, *record));
  return found->recorded ? records.remove(name) : Status();
}

// The line of a job as one that starts it again: detached, under the same name.
Result<CommandLine> line_of(const JobRecords& records, const JobRecord& record) {
  DIVISI_TRY(CommandLine line, parse_run_line(record.command_line));
  for (const char* const flag : {"wait", "logs", "delete", "watch"}) line.given.erase(flag);
  // What came on standard input was kept.
  if (line.manifest == "-") line.manifest = records.job_folder(record.name) + "/" + kManifestFile;
  line.given["name"] = {{record.name}, "the command line"};
  line.given["detach"] = {{"true"}, "the command line"};
  line.given["backend"] = {{record.backend}, "the command line"};
  // The same cluster, whatever the kubeconfig says by now.
  for (const char* const flag : {"kubeconfig", "context", "namespace"}) {
    const std::string value(record.data.string_at({flag}));
    if (!value.empty()) line.given[flag] = {{value}, "the job's record"};
  }
  return line;
}

int restart_job(const std::string& name, bool now) {
  constexpr const char* kProgram = "divisi restart";
  const auto records = our_records();
  if (!records) return complain(kProgram, records.error());
  auto record = records->load(name);
  if (!record) return complain(kProgram, record.error());
  auto backend = backend_of(*record);
  if (!backend) return complain(kProgram, backend.error());
  Status status = (*backend)->stop(*records, *record, now);
  if (status.ok()) status = wait_until_ended(**backend, *records, *record);
  if (status.ok()) status = (*backend)->remove(*records, *record);
  if (!status.ok()) return complain(kProgram, status);
  std::error_code error;
  std::filesystem::current_path(record->folder, error);
  if (error) {
    return complain(kProgram,
                    make_status(Code::kNotFound, "the folder that {} was started in, {}: {}", name,
                                record->folder, error.message()));
  }
  const auto line = line_of(*records, *record);
  if (!line) return complain(kProgram, line.error());
  return run_line(*line, record->restarts + 1);
}

}  // namespace

int jobs_main(Words words) {
  return guarded("divisi jobs", [&] {
    std::string format = "table";
    bool running = false;
    CLI::App app("All jobs that were started with divisi run, on every backend.", "divisi jobs");
    app.add_option("-o,--output", format, "table, wide, json, yaml or name")
        ->check(CLI::IsMember({"table", "wide", "json", "yaml", "name"}));
    app.add_flag("--running", running, "Only those that have not ended");
    app.footer("Examples:\n  divisi jobs\n  divisi jobs --running -o json");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    const auto records = our_records();
    if (!records) return complain("divisi jobs", records.error());
    std::vector<std::string> problems;
    std::vector<JobRecord> jobs = records->list(&problems);
    for (JobRecord& job : jobs) refresh(*records, job);
    Status away;
    for (JobRecord& other : jobs_without_record(jobs, &away)) jobs.push_back(std::move(other));
    if (!away.ok()) problems.push_back(away.message());
    if (running) std::erase_if(jobs, [](const JobRecord& job) { return has_ended(job.state); });
    for (const std::string& problem : problems) {
      complain("divisi jobs", make_status(Code::kInvalid, "{}", problem));
    }
    return print_all(print_records(jobs, format));
  });
}

int logs_main(Words words) {
  return guarded("divisi logs", [&] {
    LogsRequest request;
    CLI::App app("The output of a job's workers, merged.", "divisi logs");
    app.add_option("job", request.name, "Its name")->required();
    app.add_flag("-f,--follow", request.follow, "Until the job has ended");
    app.add_option("--task", request.tasks, "Only these workers: 0,2, gpu or worker")
        ->allow_extra_args(false);
    app.add_option("--since", request.since, "Only lines since 10m ago, or since a time");
    app.add_flag("--timestamps", request.timestamps, "The time in front of each line");
    app.add_flag("--previous", request.previous, "Of the replicas before the last restart");
    app.footer("Examples:\n  divisi logs train -f\n  divisi logs train --task 0 --since 10m");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    const Status status = print_logs(request);
    return status.ok() ? 0 : complain("divisi logs", status);
  });
}

int describe_main(Words words) {
  return guarded("divisi describe", [&] {
    std::string name;
    std::string format = "table";
    CLI::App app("A job: how it was started, its workers, how it stands.", "divisi describe");
    app.add_option("job", name, "Its name")->required();
    app.add_option("-o,--output", format, "table, wide, json or yaml")
        ->check(CLI::IsMember({"table", "wide", "json", "yaml"}));
    app.footer("Examples:\n  divisi describe train\n  divisi describe train -o yaml");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    const auto records = our_records();
    if (!records) return complain("divisi describe", records.error());
    auto found = find_job(*records, name);
    if (!found) return complain("divisi describe", found.error());
    JobRecord* const record = &found->record;
    refresh(*records, *record);
    if (format == "json") return print_all(json::print(to_json(*record), 2) + "\n");
    if (format == "yaml") return print_all(json::print_yaml(to_json(*record)));
    return print_all(describe_job(*record, records->job_folder(name)));
  });
}

int delete_main(Words words) {
  return guarded("divisi delete", [&] {
    std::vector<std::string> names;
    bool now = false;
    CLI::App app("Ends jobs and removes what they left.", "divisi delete");
    app.add_option("jobs", names, "Their names")->required();
    app.add_flag("--now", now, "Without the grace that workers have");
    app.footer("Examples:\n  divisi delete train\n  divisi delete --now train-a train-b");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    const auto records = our_records();
    if (!records) return complain("divisi delete", records.error());
    int code = 0;
    for (const std::string& name : names) {
      const Status status = delete_job(*records, name, now);
      if (!status.ok()) code = complain("divisi delete", status);
    }
    return code;
  });
}

int restart_main(Words words) {
  return guarded("divisi restart", [&] {
    std::string name;
    bool now = false;
    CLI::App app("Ends a job and starts it again, detached, with the code as it is now.",
                 "divisi restart");
    app.add_option("job", name, "Its name")->required();
    app.add_flag("--now", now, "Without the grace that workers have");
    app.footer("Examples:\n  divisi restart train");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    return restart_job(name, now);
  });
}

int version_main(Words words) {
  return guarded("divisi version", [&] {
    std::string format = "table";
    CLI::App app("The version of this program.", "divisi version");
    app.add_option("-o,--output", format, "table, json or yaml")
        ->check(CLI::IsMember({"table", "json", "yaml"}));
    if (const auto code = parse_words(app, std::move(words))) return *code;
    json::Value value;
    value["divisi"] = DIVISI_VERSION;
    value["abi"] = DIVISI_ABI_VERSION;
    value["compatibleWith"] = "DI-engine v0.5.3";
    if (format == "json") return print_all(json::print(value, 2) + "\n");
    if (format == "yaml") return print_all(json::print_yaml(value));
    return print_all(fmt::format("divisi {} (ABI {}), compatible with DI-engine v0.5.3\n",
                                 DIVISI_VERSION, DIVISI_ABI_VERSION));
  });
}

}  // namespace divisi::run
