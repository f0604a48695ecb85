// Which container of a pod counts, its port, and the fingerprint of what a pod is made of.
#include "dijob/names.h"
#include "dijob/pod.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <cstdint>

namespace divisi::dijob {
namespace {

const json::Value* find_named(const json::Array& list, std::string_view name) {
  const auto is_it = [name](const json::Value& value) { return value.string_at({"name"}) == name; };
  const auto found = name.empty() ? list.end() : std::ranges::find_if(list, is_it);
  return found == list.end() ? nullptr : &*found;
}

// Keys in the order of the alphabet: the server may give them back in another.
json::Value with_sorted_keys(const json::Value& value) {
  if (const json::Object* object = value.as_object()) {
    json::Object sorted;
    for (const auto& [key, member] : *object) sorted.emplace_back(key, with_sorted_keys(member));
    std::ranges::sort(sorted, {}, &json::Member::first);
    return sorted;
  }
  if (const json::Array* array = value.as_array()) {
    json::Array sorted;
    for (const json::Value& element : *array) sorted.push_back(with_sorted_keys(element));
    return sorted;
  }
  return value;
}

// FNV-1a: the value only has to differ, and to be the same on every machine.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace

const json::Value* main_container(const json::Value& pod_spec, const Task& task) {
  const json::Array& containers = elements(pod_spec, "containers");
  for (const std::string_view name :
       {kMainContainer, std::string_view(task.name), std::string_view(task.type)}) {
    if (const json::Value* found = find_named(containers, name)) return found;
  }
  return containers.empty() ? nullptr : &containers.front();
}

std::optional<int> declared_port(const json::Value& pod_spec, const Task& task) {
  const json::Value* container = main_container(pod_spec, task);
  if (container == nullptr) return std::nullopt;
  const json::Array& ports = elements(*container, "ports");
  for (const std::string_view name : {kPortName, std::string_view(task.type)}) {
    const json::Value* found = find_named(ports, name);
    if (found == nullptr) continue;
    const std::int64_t port = found->int_at({"containerPort"}).value_or(0);
    if (port > 0 && port <= 65535) return static_cast<int>(port);
  }
  return std::nullopt;
}

int main_port(const json::Value& pod_spec, const Task& task) {
  return declared_port(pod_spec, task).value_or(kDefaultPort);
}

std::string template_hash(const Job& job, const Task& task) {
  // The empty text stands where restartedAt was: pods made before keep their hashes.
  const json::Value made_of = json::Array{task.pod_template, json::Value(job.volumes), ""};
  return fmt::format("{:016x}", hash_of(json::print(with_sorted_keys(made_of))));
}

}  // namespace divisi::dijob
