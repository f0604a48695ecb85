// The platform spec: what --platform-spec says about each task of a job (spec 6.4).
//
//   {"tasks": [{"labels": "league,collect", "node_ids": 10},
//              {"labels": "learn", "node_ids": 31, "ports": 50000, "attach_to": "$node.10"}]}
#pragma once

#include "base/status.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

// Entry k of "tasks": the task of rank k. What is not given is decided elsewhere.
struct TaskSpec {
  std::optional<std::set<std::string>> labels;
  std::optional<int> node_id;
  std::optional<int> port;
  std::optional<std::string> address;
  std::optional<std::vector<std::string>> attach_to;  // "$node.<id>" not yet resolved
  std::optional<int> parallel_workers;
};

// Fails naming the entry and the key: text that is no JSON (with its position), unknown keys,
// values of the wrong type or out of range.
Result<std::vector<TaskSpec>> parse_platform_spec(std::string_view text);

// The argument of --platform-spec is JSON text, or the path of a *.json file (D26).
Result<std::string> read_platform_spec(const std::string& argument);

}  // namespace divisi::launch
