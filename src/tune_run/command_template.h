// How a trial's command gets its configuration.
//
//   python train.py --lr {lr} --layers {policy.layers}
//
// {name} is replaced by the variable's value, text as it is and everything else as JSON; {{name}}
// stands for {name} itself, and braces around anything that is no name are left alone.
#pragma once

#include "base/status.h"
#include "divisi/value.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::tune_run {

enum class Inject {
  kPlaceholders,  // {name} in the command
  kArgv,          // --name=value at the end of the command
  kEnv,           // HPO_PARAM_name, see environment_name()
  kJson,          // a file, named by HPO_CONFIG
  kYaml,          // likewise
  kPython,        // a main file made of a template
};

// "placeholders", "argv", ...: fails with the nearest name.
Result<Inject> parse_inject(std::string_view text);
std::string_view inject_name(Inject inject);

// The names of the placeholders, each once.
std::vector<std::string> placeholders_of(const std::vector<std::string>& command);
// Every placeholder must be a variable or a constant of the configuration, and every variable must
// have a placeholder.
Status check_placeholders(const std::vector<std::string>& command,
                          const std::vector<std::string>& variables, const Value& config);

std::vector<std::string> fill_placeholders(const std::vector<std::string>& command,
                                           const Value& config);
// Leaves of nested maps as --path=value.
std::vector<std::string> as_arguments(const Value& config);
std::map<std::string, std::string> as_environment(const Value& config);
// "HPO_PARAM_policy__lr" for policy.lr: the parts of the path are joined by two underscores, and
// what is no letter, digit or underscore becomes an underscore. python/divisi/tune/_inject.py has
// the same rule.
std::string environment_name(const std::vector<std::string>& path);
// Two paths of the configuration must not have one name.
Status check_environment(const Value& config);

// "python train.py --lr {lr}" into words, by the rules of a shell without expansion. Fails for a
// quote that is not closed.
Result<std::vector<std::string>> split_words(std::string_view text);
// Words as one line that a shell splits into the same words.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace divisi::tune_run
