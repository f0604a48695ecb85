#include "launch/platform_spec.h"

#include "json/value.h"
#include "launch/hostlist.h"
#include "launch/limits.h"
#include "launch/text.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

namespace divisi::launch {
namespace {

constexpr std::size_t kMaxSpecBytes = 16 << 20;

// A number, or a string that holds one: both forms are seen in the wild.
Result<int> read_int(const json::Value& value, int low, int high, std::string_view what) {
  if (const std::string* text = value.as_string())
    return parse_int(trimmed(*text), low, high, what);
  const std::int64_t* number = value.as_int();
  if (number == nullptr || *number < low || *number > high) {
    return failure(Code::kInvalid, "{} must be a whole number from {} to {}, not {}", what, low,
                   high, shown(json::print(value)));
  }
  return static_cast<int>(*number);
}

// "a, b" or ["a", "b"].
Result<std::vector<std::string>> read_list(const json::Value& value, std::string_view what) {
  if (const std::string* text = value.as_string()) return split_list(*text);
  std::vector<std::string> parts;
  if (const json::Array* array = value.as_array()) {
    for (const json::Value& item : *array) {
      const std::string* text = item.as_string();
      if (text == nullptr) return failure(Code::kInvalid, "{} must hold strings only", what);
      parts.emplace_back(trimmed(*text));
    }
    return parts;
  }
  return failure(Code::kInvalid, "{} must be a string with commas between its parts, not a {}",
                 what, value.kind());
}

Status read_key(const std::string& key, const json::Value& value, const std::string& what,
                TaskSpec& task) {
  const auto store = [](auto result, auto&& keep) -> Status {
    if (!result) return result.error();
    keep(*std::move(result));
    return {};
  };
  if (key == "labels") {
    return store(read_list(value, what), [&](std::vector<std::string> parts) {
      task.labels.emplace(parts.begin(), parts.end());
    });
  }
  if (key == "attach_to") {
    return store(read_list(value, what), [&](auto parts) { task.attach_to = std::move(parts); });
  }
  if (key == "node_ids") {
    return store(read_int(value, 0, kMaxNodeId, what), [&](int id) { task.node_id = id; });
  }
  if (key == "ports") {
    return store(read_int(value, 1, 65535, what), [&](int port) { task.port = port; });
  }
  if (key == "parallel_workers") {
    return store(read_int(value, 1, kMaxWorkers, what),
                 [&](int workers) { task.parallel_workers = workers; });
  }
  const std::string* text = value.as_string();  // address
  if (text == nullptr) return make_status(Code::kInvalid, "{} must be a string", what);
  task.address = std::string(trimmed(*text));
  return check_host(*task.address, what);
}

Result<TaskSpec> read_task(const json::Value& value, std::size_t index) {
  constexpr std::array<std::string_view, 6> kKeys = {"labels",  "node_ids",  "ports",
                                                     "address", "attach_to", "parallel_workers"};
  const json::Object* object = value.as_object();
  if (object == nullptr) {
    return failure(Code::kInvalid, "platform spec: tasks[{}] is a {}, not an object", index,
                   value.kind());
  }
  std::string unknown;
  for (const auto& [key, ignored] : *object) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    if (!unknown.empty()) unknown += ", ";
    unknown += shown(key);
  }
  if (!unknown.empty()) {
    return failure(Code::kInvalid, "platform spec: tasks[{}] has unknown keys: {} (known: {})",
                   index, shown(unknown), fmt::join(kKeys, ", "));
  }
  TaskSpec task;
  for (const auto& [key, member] : *object) {
    if (member.is_null()) continue;
    const std::string what = fmt::format("platform spec: tasks[{}].{}", index, key);
    if (const Status status = read_key(key, member, what, task); !status.ok()) {
      return failure(status);
    }
  }
  return task;
}

}  // namespace

Result<std::vector<TaskSpec>> parse_platform_spec(std::string_view text) {
  auto document = json::parse(text, {.max_bytes = kMaxSpecBytes, .max_depth = 8});
  if (!document) return failure(document.error().with_context("platform spec"));
  const json::Value* list = document->find("tasks");
  if (list == nullptr || list->as_array() == nullptr) {
    return failure(Code::kInvalid, "platform spec: it must be an object {{\"tasks\": [...]}}");
  }
  for (const auto& [key, ignored] : *document->as_object()) {
    if (key != "tasks") {
      return failure(Code::kInvalid, "platform spec: unknown key: {} (known: tasks)", shown(key));
    }
  }
  const json::Array& entries = *list->as_array();
  if (entries.size() > kMaxHosts) {
    return failure(Code::kInvalid, "platform spec: more than {} tasks", kMaxHosts);
  }
  std::vector<TaskSpec> tasks;
  tasks.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    DIVISI_TRY(TaskSpec task, read_task(entries[i], i));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

Result<std::string> read_platform_spec(const std::string& argument) {
  if (!std::string_view(argument).ends_with(".json")) return argument;
  std::ifstream file(argument, std::ios::binary);
  if (!file) {
    return failure(Code::kInvalid, "--platform-spec: cannot read '{}': {}", argument,
                   errno_text(errno));
  }
  std::string text(kMaxSpecBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxSpecBytes) {
    return failure(Code::kInvalid, "--platform-spec: '{}' is larger than {} bytes", argument,
                   kMaxSpecBytes);
  }
  return text;
}

}  // namespace divisi::launch
