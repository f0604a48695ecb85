// What the files of `divisi tune` share.
#pragma once

#include "base/status.h"

#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace divisi::apps {

constexpr int kSucceeded = 0;
constexpr int kNothingSucceeded = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 3;

// Prints the line; the exit code.
int tune_failed(const Status& status);

// The exit code if the program is at its end: help was asked for, or a flag is wrong.
std::optional<int> parse_flags(CLI::App& app, std::vector<std::string> arguments);

// `list`, `show` and the like: the exit code; nothing if the first argument is none of them.
std::optional<int> read_study_command(const std::vector<std::string>& arguments);
std::vector<std::string> study_command_names();

}  // namespace divisi::apps
