// JobTemplate: the DIJob and the ConfigMap of a YAML file, from which every trial's are made.
//
//   DIVISI_TRY(JobTemplate jobs, JobTemplate::parse(text, "dijob.yml", {}));
//   DIVISI_TRY_STATUS(jobs.check_names(project, project + "-99999"));
//   DIVISI_TRY(TrialObjects made, jobs.fill({.name = "cartpole-3", ...}));
//
// A value: safe to read from any thread.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::trials {

// Labels of everything that is made for a trial, and of its pods.
inline constexpr std::string_view kStudyLabel = "hpo/study";
inline constexpr std::string_view kTrialLabel = "hpo/trial";
inline constexpr std::string_view kProjectLabel = "hpo/project";
// Annotations. Which scheduler made it: what exists already is ours only if this is equal.
inline constexpr std::string_view kRunNote = "hpo/run";
// What configuration it runs: a trial of the same one may take it over.
inline constexpr std::string_view kConfigNote = "hpo/config";

// A ConfigMap holds 1 MiB, its other fields included.
inline constexpr std::size_t kMaxMainFile = std::size_t{900} << 10;

struct TrialSpec {
  std::string name{};   // of the task, and of its DIJob
  std::string trial{};  // the step's id
  std::string task{};   // the task's number
  std::string project{};
  std::string study{};
  std::string run{};
  std::string config{};     // a digest
  std::string main_file{};  // the text of config.py
};

struct TrialObjects {
  json::Value job{};
  json::Value config_map{};
  std::string yaml() const;  // both documents
};

class JobTemplate {
 public:
  // `file` names the text in messages. `remote_path` where given wins over the template's
  // projectPath, which stands under metadata or spec; it is an error if there is none. `reporter`
  // where given is put in front of the command of the first task (divisi-report, as the image has
  // it).
  static Result<JobTemplate> parse(std::string_view yaml, std::string_view file,
                                   std::string_view remote_path, std::string_view reporter = {});

  const std::string& name() const { return name_; }                // metadata.name
  const std::string& space() const { return space_; }              // metadata.namespace, or ""
  const std::string& remote_path() const { return remote_path_; }  // where the programs run
  const std::string& config_path() const { return config_path_; }  // config.py in the pod, or ""
  const std::string& container() const { return container_; }      // in which they run
  std::string pod_name(std::string_view task_name) const;

  // A pod that sees the project path as the trial's pod did, where that is on a volume that
  // outlives pods; its file kHelperStamp is from `since`, seconds after 1970. Null: the path dies
  // with its pod.
  struct HelperPlace {
    std::string node{};
    std::string job_uid{};  // the helper goes with the job
    std::int64_t since = 0;
  };
  json::Value helper(const TrialSpec& trial, const HelperPlace& place) const;

  // Whether the names that are derived from the longest task name of the project are good.
  Status check_names(std::string_view project, std::string_view longest_task_name) const;

  // kInvalid for a main file that does not fit into a ConfigMap.
  Result<TrialObjects> fill(const TrialSpec& trial) const;

 private:
  Status take_job(json::Value document, std::string_view file);
  Status take_path(std::string_view given, std::string_view file);
  Status take_pod(std::string_view file);
  Status take_reporter(std::string_view reporter, std::string_view file);

  json::Value job_;
  json::Value config_map_;
  std::string name_;
  std::string space_;
  std::string remote_path_;
  std::string config_path_;
  std::string container_;
  std::string role_;  // the name of the first task
};

inline constexpr std::string_view kHelperContainer = "results";
inline constexpr std::string_view kHelperStamp = "/tmp/divisi-started";
std::string helper_name(std::string_view task_name);
std::string config_map_name(std::string_view task_name);

}  // namespace divisi::trials
