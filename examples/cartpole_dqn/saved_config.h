// config.json of a run folder: how the run was configured, so that it goes on as it began.
//
//   {"version": "0.1.0", "commands": [...], "processes": ["--roles", "..."], "config": {...}}
#pragma once

#include "options.h"
#include "run_folder.h"

#include <optional>
#include <string>
#include <vector>

namespace cartpole {

// Writes the options, and adds the command line (unless it is empty) to those that are there.
void save_config(const RunFolder& folder, const Options& options, const std::string& command);

// What a run that is there was configured with, for parse() to begin with; nothing without a
// config.json. Throws UsageError, with its path, for one that cannot be read.
std::optional<Options> saved_options(const RunFolder& folder);

// As a shell takes it.
std::string command_line(const std::string& program, const std::vector<std::string>& args);

// "key: value, was value" for each key that differs.
std::vector<std::string> differences(const divisi::rl::DqnConfig& before,
                                     const divisi::rl::DqnConfig& now);

}  // namespace cartpole
