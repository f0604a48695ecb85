// A configuration in DI-engine's layout (main_config, create_config) as a DqnConfig.
//
// Every key is honoured, or known to change nothing of what is learned here, or refused by name
// (kInvalid) with what was probably meant.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "rl/config.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::rl {

// `exp_name` holds where main_config has none. Of `create` only the environment is looked at.
Result<DqnConfig> read_ding_config(const json::Value& main, const json::Value& create,
                                   std::string exp_name);

// Whether all of create_config is here: the algorithm, the replay buffer, and no unknown key.
Status check_ding_create(const json::Value& create);

// A value as DqnConfig::set() takes it.
std::string config_text(const json::Value& value);

// "path=value: expected ...".
Status bad_value(const std::string& path, const json::Value& value, std::string_view expected);

// A whole number at the path, when it is there; `name` is the place in what is said of a bad one.
Status take_int(const json::Value& from, const std::string& name, json::Path path,
                std::int64_t least, std::int64_t most, int& to);

}  // namespace divisi::rl
