// plan_pod(): what a pod object asks of this machine, as commands, variables and mounts. Pure:
// files are written and processes started elsewhere.
//
// A process on this machine is not a container: it has no image, no network and no readiness probe
// of its own. Each such difference is a line in `limits`; what cannot be run at all is an error,
// in the words that a kubelet would put into the status of the pod.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace divisi::local {

// The files of a volume by their path in it; filled before the pod starts.
struct VolumeFiles {
  std::map<std::string, std::string> files{};
  int mode = 0644;
};

struct Volume {
  enum class Kind { kEmpty, kMemory, kHost, kFiles };
  Kind kind = Kind::kEmpty;
  std::string host_path{};   // kHost
  bool make_folder = false;  // kHost: DirectoryOrCreate
  VolumeFiles content{};     // kFiles
};

struct Mount {
  std::string volume{};
  std::string path{};      // in the container
  std::string sub_path{};  // in the volume
  bool read_only = false;
};

struct ContainerPlan {
  std::string name{};
  std::vector<std::string> command{};
  std::vector<std::pair<std::string, std::string>> environment{};  // in the order of the object
  std::string folder{};  // working directory; empty: the pod's own folder
  std::vector<Mount> mounts{};
  int gpus = 0;
};

struct PodPlan {
  std::vector<ContainerPlan> init{};  // one after the other, before the others
  std::vector<ContainerPlan> containers{};
  std::map<std::string, Volume> volumes{};
  std::string restart_policy = "Always";
  int grace_seconds = 30;
  std::vector<std::string> limits{};  // each a line for the user, without the pod's name
};

// The object of that kind ("ConfigMap", "Secret") and name in the pod's name space; null: none.
using FindObject = std::function<const json::Value*(std::string_view kind, std::string_view name)>;

// Fails with kNotFound for an object that is missing (it may come), kInvalid for what can never
// run.
Result<PodPlan> plan_pod(const json::Value& pod, const FindObject& find);

}  // namespace divisi::local
