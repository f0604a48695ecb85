// What a study searches, as files and flags write it: maps and lists with tagged spaces at some
// leaves.
//
//   lr: {loguniform: [1e-5, 1e-1]}            study file
//   layers: {randint: [1, 4]}
//   policy: {name: dqn, gamma: {uniform: [0.9, 1]}}
//
//   lr=loguniform:1e-5,1e-1                   flag
#pragma once

#include "base/status.h"
#include "divisi/tune.h"
#include "json/value.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::tune_run {

// A map with one key of these is a space: uniform, quniform, randint, qrandint, choice, loguniform,
// qloguniform, lograndint, normal, fixed. Its value is the list of arguments.
struct SearchSpace {
  tune::Structure structure;       // in the order written
  std::vector<std::string> names;  // of the variables: "policy.gamma", as flatten() orders them
  std::vector<tune::HyperValue> values;  // likewise
  std::string text;                      // for StudySpec::space

  std::vector<tune::Space> spaces() const;
};

// Fails, naming the place, for a space that is wrong and for a structure without any.
Result<SearchSpace> parse_space(const json::Value& tagged);

// "policy.lr=loguniform:1e-5,1e-1" or "lr: {loguniform: [1e-5, 1e-1]}" into `space`. A name with
// dots is a path. Fails for a name that is there already.
Status add_space_flag(json::Value& space, std::string_view flag);

}  // namespace divisi::tune_run
