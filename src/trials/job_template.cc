#include "trials/job_template.h"

#include "json/yaml.h"
#include "trials/pod_results.h"

#include <algorithm>
#include <array>

namespace divisi::trials {
namespace {

constexpr std::string_view kApiVersion = "diengine.opendilab.org/v2alpha1";
constexpr std::string_view kVolume = "config-py";
constexpr std::string_view kMainFile = "config.py";
constexpr int kHelperSeconds = 120;   // a helper that is forgotten ends by itself
constexpr std::size_t kMaxName = 63;  // of a DNS label

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_label(std::string_view text) {
  return !text.empty() && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-'; });
}

// The nearest name that can be used: "Cart_Pole_" is "cart-pole".
std::string suggestion(std::string_view project, std::size_t most) {
  std::string text;
  for (const char c : project) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (is_letter_or_digit(lower)) {
      text += lower;
    } else if (!text.empty() && text.back() != '-') {
      text += '-';
    }
  }
  text.resize(std::min(text.size(), most));
  while (!text.empty() && text.back() == '-') text.pop_back();
  return text.empty() ? "trials" : text;
}

json::Value* first_of(json::Value* list) {
  if (list == nullptr || list->as_array() == nullptr || list->as_array()->empty()) return nullptr;
  return &list->as_array()->front();
}

json::Value* member(json::Value* value, std::initializer_list<std::string_view> path) {
  for (const std::string_view key : path) {
    if (value == nullptr) return nullptr;
    value = value->find(key);
  }
  return value;
}

json::Value* named(json::Value* list, std::string_view name) {
  if (list == nullptr || list->as_array() == nullptr) return nullptr;
  const auto found = std::ranges::find_if(
      *list->as_array(), [&](const json::Value& each) { return each.string_at({"name"}) == name; });
  return found == list->as_array()->end() ? nullptr : &*found;
}

json::Value* first_task(json::Value& job) {
  return first_of(member(&job, {"spec", "tasks"}));
}

// Only the fields that the resource has: templates hold their anchors at the top.
void keep_only(json::Value& document, std::initializer_list<std::string_view> known) {
  std::erase_if(*document.as_object(), [&](const json::Member& each) {
    return std::ranges::find(known, each.first) == known.end();
  });
}

void set_variable(json::Value& container, std::string_view name, const std::string& value) {
  json::Value& list = container["env"];
  if (list.as_array() == nullptr) list = json::Array{};
  if (named(&list, name) != nullptr) return;  // the template's own wins
  list.as_array()->emplace_back(json::Object{{"name", name}, {"value", value}});
}

void set_labels(json::Value& metadata, const TrialSpec& trial) {
  json::Value& labels = metadata["labels"];
  labels[kStudyLabel] = trial.study;
  labels[kTrialLabel] = trial.trial;
  labels[kProjectLabel] = trial.project;
}

void mark(json::Value& metadata, const TrialSpec& trial) {
  set_labels(metadata, trial);
  metadata["annotations"][kRunNote] = trial.run;
  metadata["annotations"][kConfigNote] = trial.config;
}

// Whether what is written to the volume stays when the pod is gone.
bool outlives_pods(const json::Value& volume) {
  static constexpr std::array kOfThePod{"emptyDir",    "configMap", "secret",
                                        "downwardAPI", "projected", "ephemeral"};
  return std::ranges::none_of(kOfThePod,
                              [&](const char* kind) { return volume.find(kind) != nullptr; });
}

bool inside(std::string_view path, std::string_view folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.remove_suffix(1);
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// The mount through which the path is reached.
const json::Value* mount_of(const json::Value& container, std::string_view path) {
  const json::Value* mounts = container.find("volumeMounts");
  const json::Value* best = nullptr;
  if (mounts == nullptr || mounts->as_array() == nullptr) return nullptr;
  for (const json::Value& each : *mounts->as_array()) {
    const std::string_view place = each.string_at({"mountPath"});
    if (place.empty() || !inside(path, place)) continue;
    if (best == nullptr || best->string_at({"mountPath"}).size() < place.size()) best = &each;
  }
  return best;
}

void copy(const json::Value& from, json::Value& to,
          std::initializer_list<std::string_view> fields) {
  for (const std::string_view field : fields) {
    if (const json::Value* value = from.find(field)) to[field] = *value;
  }
}

}  // namespace

std::string helper_name(std::string_view task_name) {
  return fmt::format("{}-results", task_name);
}

std::string config_map_name(std::string_view task_name) {
  return fmt::format("{}-{}", kVolume, task_name);
}

std::string TrialObjects::yaml() const {
  return json::print_yaml(job) + "---\n" + json::print_yaml(config_map);
}

Result<JobTemplate> JobTemplate::parse(std::string_view yaml, std::string_view file,
                                       std::string_view remote_path, std::string_view reporter) {
  auto documents = json::parse_yaml(yaml);
  if (!documents) return failure(documents.error().with_context(file));
  JobTemplate made;
  for (json::Value& document : *documents) {
    const std::string kind(document.string_at({"kind"}));
    json::Value& place = kind == "DIJob" ? made.job_ : made.config_map_;
    if (kind != "DIJob" && kind != "ConfigMap") {
      return failure(Code::kInvalid,
                     "{}: a document of kind '{}': a template holds one DIJob and one ConfigMap",
                     file, kind);
    }
    if (!place.is_null()) return failure(Code::kInvalid, "{}: more than one {}", file, kind);
    place = std::move(document);
  }
  for (const auto& [kind, place] :
       {std::pair("DIJob", &made.job_), std::pair("ConfigMap", &made.config_map_)}) {
    if (place->is_null()) {
      return failure(Code::kInvalid,
                     "{}: there is no {}: a template holds one DIJob and one ConfigMap", file,
                     kind);
    }
  }
  if (const Status bad = made.take_job(std::move(made.job_), file); !bad.ok()) return failure(bad);
  if (const Status bad = made.take_path(remote_path, file); !bad.ok()) return failure(bad);
  if (const Status bad = made.take_pod(file); !bad.ok()) return failure(bad);
  if (const Status bad = made.take_reporter(reporter, file); !bad.ok()) return failure(bad);
  keep_only(made.config_map_,
            {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"});
  return made;
}

Status JobTemplate::take_job(json::Value document, std::string_view file) {
  job_ = std::move(document);
  if (job_.string_at({"apiVersion"}) != kApiVersion) {
    return make_status(Code::kInvalid, "{}: the DIJob is of apiVersion '{}': trials are {}", file,
                       job_.string_at({"apiVersion"}), kApiVersion);
  }
  name_ = job_.string_at({"metadata", "name"});
  space_ = job_.string_at({"metadata", "namespace"});
  if (name_.empty()) {
    return make_status(Code::kInvalid, "{}: the DIJob has no metadata.name", file);
  }
  keep_only(job_, {"apiVersion", "kind", "metadata", "spec"});
  return {};
}

Status JobTemplate::take_path(std::string_view given, std::string_view file) {
  std::string path(given);
  for (const std::string_view part : {"metadata", "spec"}) {
    if (path.empty()) path = job_.string_at({part, "projectPath"});
    if (job_.find(part) != nullptr) job_[part].erase("projectPath");
  }
  if (path.empty()) {
    return make_status(
        Code::kInvalid,
        "{}: neither metadata nor spec of the DIJob has projectPath, the folder of the pod in "
        "which the main file runs: add it, or give k8s_remote_project_path",
        file);
  }
  if (path.front() != '/') {
    return make_status(Code::kInvalid,
                       "the project path {} is relative: a path of the pod begins with /", path);
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  remote_path_ = std::move(path);
  return {};
}

Status JobTemplate::take_pod(std::string_view file) {
  json::Value* task = first_task(job_);
  if (task == nullptr) return make_status(Code::kInvalid, "{}: the DIJob has no spec.tasks", file);
  role_ = task->string_at({"name"});
  if (role_.empty() && task->string_at({"type"}) != "none") role_ = task->string_at({"type"});
  if (role_.empty()) return make_status(Code::kInvalid, "{}: the first task has no name", file);
  if (named(member(task, {"template", "spec", "volumes"}), kVolume) == nullptr) {
    return make_status(
        Code::kInvalid,
        "{}: the pod of the first task has no volume {}: the main file comes into the pod as the "
        "ConfigMap of that volume",
        file, kVolume);
  }
  json::Value* container = first_of(member(task, {"template", "spec", "containers"}));
  if (container == nullptr) {
    return make_status(Code::kInvalid, "{}: the pod of the first task has no containers", file);
  }
  container_ = container->string_at({"name"});
  json::Value* mount = named(container->find("volumeMounts"), kVolume);
  if (mount != nullptr) {
    config_path_ = fmt::format("{}/{}", mount->string_at({"mountPath"}), kMainFile);
  }
  return {};
}

Status JobTemplate::take_reporter(std::string_view reporter, std::string_view file) {
  if (reporter.empty()) return {};
  json::Value& container = *first_of(member(first_task(job_), {"template", "spec", "containers"}));
  json::Value* command = container.find("command");
  if (command == nullptr || command->as_array() == nullptr || command->as_array()->empty()) {
    return make_status(
        Code::kInvalid,
        "{}: the first container of the first task has no command that the reporter {} could run: "
        "write the image's own one as command",
        file, reporter);
  }
  command->as_array()->insert(command->as_array()->begin(), json::Value(reporter));
  return {};
}

std::string JobTemplate::pod_name(std::string_view task_name) const {
  return fmt::format("{}-{}-0", task_name, role_);
}

json::Value JobTemplate::helper(const TrialSpec& trial, const HelperPlace& place) const {
  json::Value job = job_;
  json::Value* spec = member(first_task(job), {"template", "spec"});
  const json::Value& container = *first_of(spec->find("containers"));
  const json::Value* mount = mount_of(container, remote_path_);
  if (mount == nullptr) return {};
  const json::Value* volume = named(spec->find("volumes"), mount->string_at({"name"}));
  if (volume == nullptr || !outlives_pods(*volume)) return {};

  json::Value made = json::Object{{"apiVersion", "v1"}, {"kind", "Pod"}};
  made["metadata"]["name"] = helper_name(trial.name);
  set_labels(made["metadata"], trial);
  if (!place.job_uid.empty()) {
    made["metadata"]["ownerReferences"] = json::Array{json::Object{{"apiVersion", kApiVersion},
                                                                   {"kind", "DIJob"},
                                                                   {"name", trial.name},
                                                                   {"uid", place.job_uid}}};
  }
  json::Value& pod = made["spec"];
  copy(*spec, pod, {"securityContext", "imagePullSecrets", "tolerations"});
  pod["restartPolicy"] = "Never";
  pod["terminationGracePeriodSeconds"] = 0;
  pod["activeDeadlineSeconds"] = kHelperSeconds;
  if (!place.node.empty()) pod["nodeName"] = place.node;
  pod["volumes"] = json::Array{*volume};
  json::Value helper = json::Object{{"name", kHelperContainer}};
  copy(container, helper, {"image", "imagePullPolicy", "securityContext"});
  helper["command"] = json::Array{
      "sh", "-c",
      fmt::format("touch -d @{} {} && sleep {}", place.since, kHelperStamp, kHelperSeconds)};
  helper["volumeMounts"] = json::Array{*mount};
  pod["containers"] = json::Array{std::move(helper)};
  return made;
}

Status JobTemplate::check_names(std::string_view project, std::string_view longest) const {
  const std::array names{pod_name(longest), config_map_name(longest)};
  const std::string& worst = names[0].size() < names[1].size() ? names[1] : names[0];
  const std::size_t added = worst.size() - project.size();
  const std::size_t most = added < kMaxName ? kMaxName - added : 1;
  if (!is_label(project) || !is_label(names[0])) {
    return make_status(
        Code::kInvalid,
        "'{}' cannot name pods (as in {}): lower-case letters, digits and -, a letter or digit "
        "first and last; try '{}'",
        project, names[0], suggestion(project, most));
  }
  if (worst.size() > kMaxName) {
    return make_status(
        Code::kInvalid,
        "the project name '{}' leads to names of {} characters ({}), {} are allowed; try '{}'",
        project, worst.size(), worst, kMaxName, suggestion(project, most));
  }
  return {};
}

Result<TrialObjects> JobTemplate::fill(const TrialSpec& trial) const {
  if (trial.main_file.size() > kMaxMainFile) {
    return failure(Code::kInvalid,
                   "the main file of {} has {} bytes, more than the {} that fit into a ConfigMap: "
                   "move data out of it",
                   trial.name, trial.main_file.size(), kMaxMainFile);
  }
  TrialObjects made{job_, config_map_};
  made.job["metadata"]["name"] = trial.name;
  mark(made.job["metadata"], trial);

  json::Value& pod = (*first_task(made.job))["template"];
  set_labels(pod["metadata"], trial);
  json::Value& spec = pod["spec"];
  (*named(spec.find("volumes"), kVolume))["configMap"]["name"] = config_map_name(trial.name);
  // Collectors and further learners report as the first task does.
  for (json::Value& task : *made.job["spec"]["tasks"].as_array()) {
    json::Value* const container = first_of(member(&task, {"template", "spec", "containers"}));
    if (container == nullptr) continue;
    set_variable(*container, "HPO_TRIAL_ID", trial.trial);
    set_variable(*container, "HPO_TASK_ID", trial.task);
    set_variable(*container, "HPO_TASK_NAME", trial.name);
    set_variable(*container, "HPO_PROJECT", trial.project);
    set_variable(*container, "HPO_RESULT_FILE", result_file(remote_path_, trial.name));
    set_variable(*container, "HPO_METRICS_FILE", metrics_file(remote_path_, trial.name));
  }

  made.config_map["metadata"]["name"] = config_map_name(trial.name);
  mark(made.config_map["metadata"], trial);
  made.config_map["data"][kMainFile] = trial.main_file;
  return made;
}

}  // namespace divisi::trials
