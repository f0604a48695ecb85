// A trial's main file: a Python program with the configuration written in front of its main guard.
#pragma once

#include "base/status.h"
#include "divisi/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::tune_run {

// A value as Python source that gives it back.
std::string python_literal(const Value& value);

// The template with a line `main_config["a"]["b"] = value` for every leaf, and `exp_name` if the
// configuration has none. Fails for a template without a guard or without main_config.
Result<std::string> fill_python_template(const std::string& text, const Value& config,
                                         const std::string& exp_name);

// Runs the template up to its guard in `folder` and returns those of the variables' paths that its
// main_config lacks. Fails when the template does, with the interpreter's last line.
Result<std::vector<std::string>> missing_in_template(const std::string& text,
                                                     const std::vector<std::string>& variables,
                                                     const std::string& python,
                                                     const std::string& folder);

}  // namespace divisi::tune_run
