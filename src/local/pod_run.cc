#include "local/pod_run.h"

#include "io/crypto.h"
#include "kube/resource.h"
#include "kube/time.h"
#include "local/kubelet.h"
#include "local/pod_folder.h"
#include "local/sandbox.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace divisi::local {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPodObjects = "/api/v1/pods";
// As kubelets wait before they start a container again.
constexpr io::Duration kFirstBackoff = 10s;
constexpr io::Duration kMostBackoff = 5min;

// What of this program's own environment a pod gets: where this machine's programs are.
constexpr std::initializer_list<const char*> kKeptVariables{
    "PATH",       "LANG",        "LC_ALL",       "TZ",        "USER",      "LD_LIBRARY_PATH",
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "PYENV_ROOT"};

std::string timestamp() {
  return kube::rfc3339(std::chrono::system_clock::now());
}

std::string reason_of(int exit_code) {
  return exit_code == 0 ? "Completed" : "Error";
}

json::Value condition(std::string_view type, bool holds) {
  return json::Object{{"type", type}, {"status", holds ? "True" : "False"}};
}

// pip installs into the pod's own home: also with a Python that the distribution manages, and in a
// virtual environment, which knows no user's site.
void add_pip_settings(std::vector<std::pair<std::string, std::string>>& all) {
  const std::string local = std::string(kHome) + "/.local";
  all.emplace_back("PYTHONUSERBASE", local);
  all.emplace_back("PIP_BREAK_SYSTEM_PACKAGES", "1");
  if (std::getenv("VIRTUAL_ENV") == nullptr) {
    all.emplace_back("PIP_USER", "1");
    return;
  }
  all.emplace_back("PIP_TARGET", local + "/site");
  const char* path = std::getenv("PYTHONPATH");
  all.emplace_back("PYTHONPATH", fmt::format("{}/site{}{}", local, path == nullptr ? "" : ":",
                                             path == nullptr ? "" : path));
}

}  // namespace

PodRun::PodRun(io::Reactor& reactor, kube::MemoryApi& api, Kubelet& kubelet, std::string key,
               std::string address)
    : reactor_(reactor),
      api_(api),
      kubelet_(kubelet),
      key_(std::move(key)),
      address_(std::move(address)) {
  const json::Value object = pod();
  uid_ = object.string_at({"metadata", "uid"});
  name_ = object.string_at({"metadata", "name"});
  folder_ = fmt::format("{}/pods/{}-{:016x}", kubelet_.options().folder, name_, io::random_u64());
}

PodRun::~PodRun() {
  containers_.clear();
  init_.clear();
  remove_pod_folder(folder_, plan_);
}

json::Value PodRun::pod() const {
  const json::Value* found = api_.store.find(kPodObjects, key_);
  return found == nullptr ? json::Value() : *found;
}

void PodRun::begin() {
  if (const Status prepared = prepare(); !prepared.ok()) return cannot_run(prepared);
  for (const std::string& line : plan_.limits) kubelet_.limit(line);
  init_.resize(plan_.init.size());
  containers_.resize(plan_.containers.size());
  stage_ = Stage::kInit;
  start_next_init();
}

Status PodRun::prepare() {
  const json::Value object = pod();
  const std::string space(object.string_at({"metadata", "namespace"}));
  const auto find = [&](std::string_view kind, std::string_view name) {
    return kubelet_.find_object(space, kind, name);
  };
  auto plan = plan_pod(object, find);
  if (!plan) return plan.error();
  plan_ = *std::move(plan);
  return fill_pod_folder(folder_, plan_);
}

// An object that is missing may come; nothing else can mend itself.
void PodRun::cannot_run(const Status& why) {
  const bool may_come = why.code() == Code::kNotFound;
  const bool known = !containers_.empty() && containers_.front().message == why.message();
  if (may_come && known) return;  // the status says so already; a write would bring us here again
  const json::Value object = pod();
  const json::Value* spec = object.find_path({"spec", "containers"});
  const std::size_t count =
      spec == nullptr || spec->as_array() == nullptr ? 0 : spec->as_array()->size();
  containers_.resize(count);
  for (State& state : containers_) {
    state.waiting = may_come ? "CreateContainerConfigError" : "CreateContainerError";
    state.message = why.message();
  }
  if (!may_come) stage_ = Stage::kEnded;
  if (may_come) return write_status("Pending");
  kubelet_.limit(fmt::format("pod {} cannot run here: {}", name_, why.message()));
  write_status("Failed", "CannotRun", why.message());
}

void PodRun::start_next_init() {
  for (std::size_t i = 0; i < init_.size(); ++i) {
    if (init_[i].ended) continue;
    if (const Status status = start(plan_.init[i], init_[i], true, i); !status.ok()) {
      return cannot_run(make_status(Code::kInvalid, "{}", status.message()));
    }
    return write_status("Pending");
  }
  start_containers();
}

void PodRun::start_containers() {
  stage_ = Stage::kRunning;
  for (std::size_t i = 0; i < containers_.size(); ++i) {
    if (const Status status = start(plan_.containers[i], containers_[i], false, i); !status.ok()) {
      return cannot_run(make_status(Code::kInvalid, "{}", status.message()));
    }
  }
  write_status("Running");
}

std::vector<std::pair<std::string, std::string>> PodRun::environment(const ContainerPlan& plan,
                                                                     State& state) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const char* name : kKeptVariables) {
    if (const char* value = std::getenv(name)) all.emplace_back(name, value);
  }
  all.emplace_back("HOME", kHome);
  all.emplace_back("HOSTNAME", name_);
  add_pip_settings(all);
  if (plan.gpus > 0) {
    state.gpus = kubelet_.take_gpus(plan.gpus);
    all.emplace_back("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(state.gpus, ",")));
  } else if (kubelet_.options().gpus > 0) {
    all.emplace_back("CUDA_VISIBLE_DEVICES", "");
  }
  all.insert(all.end(), plan.environment.begin(), plan.environment.end());
  return all;
}

Status PodRun::start(const ContainerPlan& plan, State& state, bool init, std::size_t index) {
  SandboxOptions sandbox;
  sandbox.hostname = name_.substr(0, 63);
  sandbox.binds = binds_of(folder_, plan_, plan, kubelet_.hosts_file());
  sandbox.folder = plan.folder.empty() ? kHome : plan.folder;
  sandbox.environment = environment(plan, state);
  const std::string logs = kubelet_.options().folder + "/logs";
  std::error_code ignored;  // opening the log tells
  std::filesystem::create_directories(logs, ignored);

  ContainerOptions options;
  options.command = plan.command;
  auto arguments = bubblewrap_arguments(sandbox);
  if (!arguments) return arguments.error();
  options.sandbox = *std::move(arguments);
  options.guard = kubelet_.options().guard;
  options.log = fmt::format("{}/{}.{}.log", logs, name_, plan.name);
  options.on_line = [output = kubelet_.options().on_output, pod = name_, container = plan.name](
                        std::string_view line) { output(pod, container, line); };
  options.on_end = [this, &reactor = reactor_, weak = std::weak_ptr(alive_), init,
                    index](io::ExitStatus status) {
    reactor.post([this, weak, init, index, status] {
      if (weak.lock() != nullptr) on_end(init, index, status);
    });
  };
  auto made = Container::start(std::move(options));
  if (!made) return made.error();
  state.process = *std::move(made);
  state.started = timestamp();
  state.ended = false;
  return {};
}

void PodRun::on_end(bool init, std::size_t index, io::ExitStatus status) {
  State& state = (init ? init_ : containers_)[index];
  state.process.reset();
  kubelet_.return_gpus(std::exchange(state.gpus, {}));
  state.ended = true;
  state.signal = status.signal;
  state.exit_code = status.signal != 0 ? 128 + status.signal : status.code;
  state.finished = timestamp();
  if (terminating_) return settle();
  if (init) {
    if (state.exit_code == 0) return start_next_init();
    stage_ = Stage::kEnded;
    return write_status("Failed");
  }
  if (restarts(state)) return restart_later(index);
  settle();
}

bool PodRun::restarts(const State& state) const {
  return plan_.restart_policy == "Always" ||
         (plan_.restart_policy == "OnFailure" && state.exit_code != 0);
}

void PodRun::restart_later(std::size_t index) {
  State& state = containers_[index];
  const io::Duration wait =
      std::min(kMostBackoff, kFirstBackoff * (1 << std::min(state.restarts, 8)));
  ++state.restarts;
  state.ended = false;
  state.waiting = "CrashLoopBackOff";
  state.restart_timer = reactor_.after(wait, [this, index] {
    const Status status = start(plan_.containers[index], containers_[index], false, index);
    if (!status.ok()) return cannot_run(make_status(Code::kInvalid, "{}", status.message()));
    write_status("Running");
  });
  write_status("Running");
}

// When nothing runs any more the pod has ended, or is removed if that was asked for.
void PodRun::settle() {
  const auto runs = [](const State& state) { return state.process != nullptr; };
  const bool any = std::ranges::any_of(init_, runs) || std::ranges::any_of(containers_, runs);
  if (terminating_) {
    if (!any) remove_object();
    return;
  }
  const auto waits = [](const State& state) { return !state.ended; };
  if (any || std::ranges::any_of(containers_, waits)) return write_status("Running");
  stage_ = Stage::kEnded;
  const bool failed =
      std::ranges::any_of(containers_, [](const State& s) { return s.exit_code != 0; });
  write_status(failed ? "Failed" : "Succeeded");
}

void PodRun::terminate() {
  if (std::exchange(terminating_, true)) return;
  for (std::vector<State>* list : {&init_, &containers_}) {
    for (State& state : *list) {
      state.restart_timer.reset();
      if (state.process != nullptr) state.process->stop();
    }
  }
  grace_timer_ = reactor_.after(std::chrono::seconds(plan_.grace_seconds), [this] {
    for (std::vector<State>* list : {&init_, &containers_}) {
      for (State& state : *list) {
        if (state.process != nullptr) state.process->kill();
      }
    }
  });
  settle();
}

// Posted: the kubelet removes this object when the pod is gone.
void PodRun::remove_object() {
  reactor_.post([weak = std::weak_ptr(alive_), &api = api_, key = key_] {
    if (weak.lock() == nullptr || api.store.find(kPodObjects, key) == nullptr) return;
    api.store.remove(kPodObjects, key);
    api.changed();
  });
}

void PodRun::write_status(std::string_view phase, std::string_view reason,
                          std::string_view message) {
  json::Value object = pod();
  if (object.string_at({"metadata", "uid"}) != uid_) return;
  const auto list = [&](const std::vector<State>& states, const char* specs) {
    json::Array out;
    const json::Value* given = object.find_path({"spec", specs});
    for (std::size_t i = 0; i < states.size(); ++i) {
      const State& state = states[i];
      const bool runs = state.process != nullptr;
      json::Value entry;
      entry["name"] = (*given->as_array())[i].string_at({"name"});
      entry["image"] = (*given->as_array())[i].string_at({"image"});
      entry["ready"] = runs;
      entry["started"] = runs;
      entry["restartCount"] = state.restarts;
      if (runs) {
        entry["state"]["running"]["startedAt"] = state.started;
      } else if (state.ended) {
        json::Value& end = entry["state"]["terminated"];
        end["exitCode"] = state.exit_code;
        if (state.signal != 0) end["signal"] = state.signal;
        end["reason"] = reason_of(state.exit_code);
        end["startedAt"] = state.started;
        end["finishedAt"] = state.finished;
      } else {
        entry["state"]["waiting"]["reason"] = state.waiting;
        if (!state.message.empty()) entry["state"]["waiting"]["message"] = state.message;
      }
      out.push_back(std::move(entry));
    }
    return out;
  };
  json::Value& status = object["status"];
  status["phase"] = phase;
  status["podIP"] = address_;
  status["podIPs"] = json::Array{json::Object{{"ip", address_}}};
  status["hostIP"] = "127.0.0.1";
  if (status.find("startTime") == nullptr) status["startTime"] = timestamp();
  if (!reason.empty()) status["reason"] = reason;
  if (!message.empty()) status["message"] = message;
  const bool ready = phase == "Running" && std::ranges::all_of(containers_, [](const State& state) {
                       return state.process != nullptr;
                     });
  status["conditions"] =
      json::Array{condition("PodScheduled", true), condition("Initialized", stage_ != Stage::kInit),
                  condition("ContainersReady", ready), condition("Ready", ready)};
  if (!init_.empty()) status["initContainerStatuses"] = list(init_, "initContainers");
  status["containerStatuses"] = list(containers_, "containers");
  api_.store.update(kPodObjects, key_, std::move(object));
  api_.changed();
}

}  // namespace divisi::local
