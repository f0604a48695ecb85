#include "local/pod_plan.h"

#include "http/base64.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

namespace divisi::local {
namespace {

const json::Array& list_at(const json::Value& object, std::string_view key) {
  static const json::Array none;
  const json::Value* found = object.find(key);
  const json::Array* list = found == nullptr ? nullptr : found->as_array();
  return list == nullptr ? none : *list;
}

std::string text_at(const json::Value& object, json::Path path) {
  return std::string(object.string_at(path));
}

// $(NAME) becomes the value of a variable that was set before, $$(NAME) the text $(NAME), as
// kubelets do it. A name that is not set stays as it is.
std::string expand(std::string_view text,
                   const std::vector<std::pair<std::string, std::string>>& variables) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    if (text[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    const std::size_t close = text[i + 1] == '(' ? text.find(')', i + 2) : std::string_view::npos;
    if (close == std::string_view::npos) {
      out += '$';
      continue;
    }
    const std::string_view name = text.substr(i + 2, close - i - 2);
    const auto found =
        std::ranges::find(variables, name, [](const auto& v) { return std::string_view(v.first); });
    out +=
        found == variables.end() ? text.substr(i, close - i + 1) : std::string_view(found->second);
    i = close;
  }
  return out;
}

void set_variable(std::vector<std::pair<std::string, std::string>>& variables, std::string name,
                  std::string value) {
  const auto found =
      std::ranges::find(variables, name, &std::pair<std::string, std::string>::first);
  if (found != variables.end()) variables.erase(found);
  variables.emplace_back(std::move(name), std::move(value));
}

// "metadata.labels['app']" and the like.
std::optional<std::string> field_of_pod(const json::Value& pod, const std::string& path) {
  const std::size_t bracket = path.find("['");
  if (bracket != std::string::npos && path.ends_with("']")) {
    const std::string map =
        path.substr(path.rfind('.', bracket) + 1, bracket - path.rfind('.', bracket) - 1);
    return text_at(pod, {"metadata", map, path.substr(bracket + 2, path.size() - bracket - 4)});
  }
  if (path == "metadata.name" || path == "metadata.namespace" || path == "metadata.uid") {
    return text_at(pod, {"metadata", path.substr(9)});
  }
  if (path == "status.podIP" || path == "status.hostIP") return text_at(pod, {"status", "podIP"});
  if (path == "status.podIPs") return text_at(pod, {"status", "podIP"});
  if (path == "spec.nodeName" || path == "spec.serviceAccountName") {
    return text_at(pod, {"spec", path.substr(5)});
  }
  return std::nullopt;
}

// One value of a ConfigMap or a Secret; nothing when it has no such key.
Result<std::optional<std::string>> value_of(const json::Value& object, const std::string& key) {
  if (const json::Value* plain = object.find_path({"data", key})) {
    const std::string* text = plain->as_string();
    if (text == nullptr) return failure(Code::kInvalid, "data.{} is no string", key);
    if (object.string_at({"kind"}) != "Secret") return std::optional(*text);
    auto bytes = http::decode_base64(*text);
    if (!bytes) return failure(Code::kInvalid, "data.{} is not base64", key);
    return bytes;
  }
  if (const json::Value* text = object.find_path({"stringData", key});
      text != nullptr && text->as_string() != nullptr) {
    return std::optional(*text->as_string());
  }
  if (const json::Value* bytes = object.find_path({"binaryData", key});
      bytes != nullptr && bytes->as_string() != nullptr) {
    auto decoded = http::decode_base64(*bytes->as_string());
    if (!decoded) return failure(Code::kInvalid, "binaryData.{} is not base64", key);
    return decoded;
  }
  return std::optional<std::string>();
}

std::set<std::string> keys_of(const json::Value& object) {
  std::set<std::string> keys;
  for (const char* map : {"data", "stringData", "binaryData"}) {
    const json::Value* found = object.find(map);
    if (found == nullptr || found->as_object() == nullptr) continue;
    for (const json::Member& member : *found->as_object()) keys.insert(member.first);
  }
  return keys;
}

Result<const json::Value*> object_named(const FindObject& find, std::string_view kind,
                                        std::string_view name, bool optional) {
  const json::Value* found = find(kind, name);
  if (found == nullptr && !optional) {
    return failure(Code::kNotFound, "{} \"{}\" not found",
                   kind == "Secret" ? "secret" : "configmap", name);
  }
  return found;
}

bool is_optional(const json::Value& reference) {
  return reference.bool_at({"optional"}).value_or(false);
}

class PodReader {
 public:
  PodReader(const json::Value& pod, const FindObject& find) : pod_(pod), find_(find) {}

  Result<PodPlan> read() {
    const json::Value* spec = pod_.find("spec");
    if (spec == nullptr) return failure(Code::kInvalid, "the pod has no spec");
    plan_.restart_policy =
        spec->string_at({"restartPolicy"}).empty() ? "Always" : text_at(*spec, {"restartPolicy"});
    plan_.grace_seconds = static_cast<int>(std::clamp<std::int64_t>(
        spec->int_at({"terminationGracePeriodSeconds"}).value_or(30), 0, 24 * 3600));
    for (const json::Value& volume : list_at(*spec, "volumes"))
      if (Status status = read_volume(volume); !status.ok()) return failure(std::move(status));
    for (const json::Value& container : list_at(*spec, "initContainers")) {
      DIVISI_TRY(ContainerPlan made, read_container(container));
      plan_.init.push_back(std::move(made));
    }
    for (const json::Value& container : list_at(*spec, "containers")) {
      DIVISI_TRY(ContainerPlan made, read_container(container));
      plan_.containers.push_back(std::move(made));
    }
    if (plan_.containers.empty()) return failure(Code::kInvalid, "the pod has no containers");
    return std::move(plan_);
  }

 private:
  void limit(std::string line) {
    if (std::ranges::find(plan_.limits, line) == plan_.limits.end())
      plan_.limits.push_back(std::move(line));
  }

  Status read_volume(const json::Value& volume) {
    const std::string name = text_at(volume, {"name"});
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      return make_status(Code::kInvalid, "volume \"{}\": that is no name of a volume", name);
    }
    if (const json::Value* empty = volume.find("emptyDir")) {
      plan_.volumes[name].kind =
          empty->string_at({"medium"}) == "Memory" ? Volume::Kind::kMemory : Volume::Kind::kEmpty;
      return {};
    }
    if (const json::Value* host = volume.find("hostPath")) {
      const std::string path = text_at(*host, {"path"});
      if (!path.starts_with('/'))
        return make_status(Code::kInvalid, "volume \"{}\": hostPath \"{}\" is not absolute", name,
                           path);
      plan_.volumes[name] = {.kind = Volume::Kind::kHost,
                             .host_path = path,
                             .make_folder = host->string_at({"type"}) == "DirectoryOrCreate" ||
                                            host->string_at({"type"}).empty()};
      return {};
    }
    Volume made{.kind = Volume::Kind::kFiles};
    if (const json::Value* config = volume.find("configMap")) {
      DIVISI_TRY_STATUS(add_files(made.content, *config, "ConfigMap", "name", name));
    } else if (const json::Value* secret = volume.find("secret")) {
      DIVISI_TRY_STATUS(add_files(made.content, *secret, "Secret", "secretName", name));
    } else if (const json::Value* projected = volume.find("projected")) {
      DIVISI_TRY_STATUS(add_projected(made.content, *projected, name));
    } else if (const json::Value* fields = volume.find("downwardAPI")) {
      DIVISI_TRY_STATUS(add_fields(made.content, *fields, name));
    } else {
      return make_status(Code::kInvalid,
                         "volume \"{}\" is of a kind that needs a cluster; without one there are "
                         "emptyDir, hostPath, "
                         "configMap, secret, projected and downwardAPI",
                         name);
    }
    plan_.volumes[name] = std::move(made);
    return {};
  }

  Status add_files(VolumeFiles& to, const json::Value& source, std::string_view kind,
                   std::string_view name_key, const std::string& volume) {
    const auto object =
        object_named(find_, kind, source.string_at({name_key}), is_optional(source));
    if (!object) return object.error();
    to.mode = static_cast<int>(source.int_at({"defaultMode"}).value_or(0644)) & 0777;
    // The processes of a pod all run as this user; others of this machine are no part of the pod.
    if (kind == "Secret") to.mode &= 0700;
    if (*object == nullptr) return {};
    const json::Array& items = list_at(source, "items");
    if (items.empty()) {
      for (const std::string& key : keys_of(**object))
        DIVISI_TRY_STATUS(add_file(to, **object, key, key, volume));
      return {};
    }
    for (const json::Value& item : items) {
      DIVISI_TRY_STATUS(
          add_file(to, **object, text_at(item, {"key"}), text_at(item, {"path"}), volume));
    }
    return {};
  }

  static Status check_path(const std::string& path, const std::string& volume) {
    if (path.empty() || path.starts_with('/') || path.find("..") != std::string::npos) {
      return make_status(Code::kInvalid, "volume \"{}\": path \"{}\" leads out of the volume",
                         volume, path);
    }
    return {};
  }

  static Status add_file(VolumeFiles& to, const json::Value& object, const std::string& key,
                         const std::string& path, const std::string& volume) {
    DIVISI_TRY_STATUS(check_path(path, volume));
    const auto value = value_of(object, key);
    if (!value) return value.error();
    if (!*value) {
      return make_status(Code::kInvalid, "volume \"{}\": {} \"{}\" has no key \"{}\"", volume,
                         object.string_at({"kind"}), object.string_at({"metadata", "name"}), key);
    }
    to.files[path] = **value;
    return {};
  }

  Status add_projected(VolumeFiles& to, const json::Value& projected, const std::string& volume) {
    for (const json::Value& source : list_at(projected, "sources")) {
      if (const json::Value* config = source.find("configMap")) {
        DIVISI_TRY_STATUS(add_files(to, *config, "ConfigMap", "name", volume));
      } else if (const json::Value* secret = source.find("secret")) {
        DIVISI_TRY_STATUS(add_files(to, *secret, "Secret", "name", volume));
      } else if (const json::Value* fields = source.find("downwardAPI")) {
        DIVISI_TRY_STATUS(add_fields(to, *fields, volume));
      } else {
        limit("service account tokens are not mounted: there is no cluster to talk to");
      }
    }
    return {};
  }

  Status add_fields(VolumeFiles& to, const json::Value& source, const std::string& volume) {
    for (const json::Value& item : list_at(source, "items")) {
      const std::string field = text_at(item, {"fieldRef", "fieldPath"});
      const auto value = field_of_pod(pod_, field);
      if (!value)
        return make_status(Code::kInvalid, "volume \"{}\": no field \"{}\" of a pod", volume,
                           field);
      const std::string path = text_at(item, {"path"});
      DIVISI_TRY_STATUS(check_path(path, volume));
      to.files[path] = *value;
    }
    return {};
  }

  Result<ContainerPlan> read_container(const json::Value& container) {
    ContainerPlan made;
    made.name = text_at(container, {"name"});
    made.folder = text_at(container, {"workingDir"});
    if (!made.folder.empty() && !made.folder.starts_with('/')) {
      return failure(Code::kInvalid, "container \"{}\": workingDir \"{}\" is not absolute",
                     made.name, made.folder);
    }
    if (Status status = read_environment(made, container); !status.ok())
      return failure(std::move(status));
    for (const char* list : {"command", "args"}) {
      for (const json::Value& word : list_at(container, list)) {
        if (word.as_string() == nullptr)
          return failure(Code::kInvalid, "container \"{}\": {} has an element that is no string",
                         made.name, list);
        made.command.push_back(expand(*word.as_string(), made.environment));
      }
    }
    if (list_at(container, "command").empty()) {
      return failure(Code::kInvalid,
                     "container \"{}\" has no command: without a cluster there is no image "
                     "whose entry point could run",
                     made.name);
    }
    for (const json::Value& mount : list_at(container, "volumeMounts"))
      if (Status status = read_mount(made, mount); !status.ok()) return failure(std::move(status));
    read_limits(made, container);
    return made;
  }

  Status read_mount(ContainerPlan& made, const json::Value& mount) {
    Mount read{.volume = text_at(mount, {"name"}),
               .path = text_at(mount, {"mountPath"}),
               .sub_path = text_at(mount, {"subPath"}),
               .read_only = mount.bool_at({"readOnly"}).value_or(false)};
    if (!plan_.volumes.contains(read.volume)) {
      return make_status(Code::kInvalid,
                         "container \"{}\" mounts volume \"{}\", which the pod does not have",
                         made.name, read.volume);
    }
    if (!read.path.starts_with('/') || read.path == "/") {
      return make_status(Code::kInvalid,
                         "container \"{}\": mountPath \"{}\" is not an absolute path below /",
                         made.name, read.path);
    }
    if (read.sub_path.starts_with('/') || read.sub_path.find("..") != std::string::npos) {
      return make_status(Code::kInvalid, "container \"{}\": subPath \"{}\" leads out of the volume",
                         made.name, read.sub_path);
    }
    made.mounts.push_back(std::move(read));
    return {};
  }

  void read_limits(ContainerPlan& made, const json::Value& container) {
    if (const std::string image = text_at(container, {"image"}); !image.empty()) {
      limit(fmt::format("image {} is not used: the pods run the programs of this machine", image));
    }
    for (const char* probe : {"readinessProbe", "livenessProbe", "startupProbe", "lifecycle"}) {
      if (container.find(probe) != nullptr)
        limit(fmt::format("{} is not run: a pod is ready when its processes run", probe));
    }
    if (const json::Value* gpu = container.find_path({"resources", "limits", "nvidia.com/gpu"})) {
      if (const std::int64_t* count = gpu->as_int())
        made.gpus = static_cast<int>(std::clamp<std::int64_t>(*count, 0, 1024));
      if (const std::string* text = gpu->as_string())
        std::from_chars(text->data(), text->data() + text->size(), made.gpus);
    }
  }

  Status read_environment(ContainerPlan& made, const json::Value& container) {
    for (const json::Value& from : list_at(container, "envFrom"))
      DIVISI_TRY_STATUS(add_all(made, from));
    for (const json::Value& variable : list_at(container, "env")) {
      const std::string name = text_at(variable, {"name"});
      const json::Value* from = variable.find("valueFrom");
      if (from == nullptr) {
        set_variable(made.environment, name,
                     expand(variable.string_at({"value"}), made.environment));
        continue;
      }
      const auto value = value_from(*from, name);
      if (!value) return value.error();
      if (*value) set_variable(made.environment, name, **value);
    }
    return {};
  }

  Status add_all(ContainerPlan& made, const json::Value& from) {
    const bool secret = from.find("secretRef") != nullptr;
    const json::Value* reference = from.find(secret ? "secretRef" : "configMapRef");
    if (reference == nullptr)
      return make_status(Code::kInvalid,
                         "container \"{}\": envFrom needs configMapRef or secretRef", made.name);
    const auto object = object_named(find_, secret ? "Secret" : "ConfigMap",
                                     reference->string_at({"name"}), is_optional(*reference));
    if (!object) return object.error();
    if (*object == nullptr) return {};
    for (const std::string& key : keys_of(**object)) {
      const auto value = value_of(**object, key);
      if (!value) return value.error();
      set_variable(made.environment, text_at(from, {"prefix"}) + key, value->value_or(""));
    }
    return {};
  }

  Result<std::optional<std::string>> value_from(const json::Value& from,
                                                const std::string& variable) {
    if (const json::Value* field = from.find("fieldRef")) {
      const std::string path = text_at(*field, {"fieldPath"});
      auto value = field_of_pod(pod_, path);
      if (!value)
        return failure(Code::kInvalid, "variable {}: no field \"{}\" of a pod", variable, path);
      return value;
    }
    const bool secret = from.find("secretKeyRef") != nullptr;
    const json::Value* reference = from.find(secret ? "secretKeyRef" : "configMapKeyRef");
    if (reference == nullptr) {
      limit(fmt::format("variable {} is not set: its source needs a cluster", variable));
      return std::optional<std::string>();
    }
    DIVISI_TRY(const json::Value* object,
               object_named(find_, secret ? "Secret" : "ConfigMap", reference->string_at({"name"}),
                            is_optional(*reference)));
    if (object == nullptr) return std::optional<std::string>();
    const std::string key = text_at(*reference, {"key"});
    DIVISI_TRY(std::optional<std::string> value, value_of(*object, key));
    if (!value && !is_optional(*reference)) {
      return failure(Code::kNotFound, "couldn't find key {} in {} {}", key,
                     secret ? "Secret" : "ConfigMap", reference->string_at({"name"}));
    }
    return value;
  }

  const json::Value& pod_;
  const FindObject& find_;
  PodPlan plan_;
};

}  // namespace

Result<PodPlan> plan_pod(const json::Value& pod, const FindObject& find) {
  return PodReader(pod, find).read();
}

}  // namespace divisi::local
