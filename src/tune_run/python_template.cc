#include "tune_run/python_template.h"

#include "io/process.h"
#include "json/value.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <sstream>

namespace divisi::tune_run {
namespace {

const std::regex& guard_pattern() {
  static const std::regex pattern(
      R"(^if\s+__name__(?:\s*==\s*|\s+is\s+)(?:"__main__"|'__main__')\s*:)");
  return pattern;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

// Where the guard is.
Result<std::size_t> find_guard(const std::vector<std::string>& lines) {
  const auto guard = std::ranges::find_if(
      lines, [](const std::string& line) { return std::regex_search(line, guard_pattern()); });
  if (guard == lines.end()) {
    return failure(Code::kInvalid, "the template has no line `if __name__ == \"__main__\":`");
  }
  const bool has_config = std::ranges::any_of(
      lines, [](const std::string& line) { return line.starts_with("main_config"); });
  if (!has_config) {
    return failure(Code::kInvalid, "the template has no line that begins with `main_config`");
  }
  return static_cast<std::size_t>(guard - lines.begin());
}

std::string python_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted.push_back(c);  // UTF-8 as it is
    }
  }
  return quoted + "\"";
}

std::string python_number(double number) {
  if (std::isnan(number)) return "float(\"nan\")";
  if (std::isinf(number)) return number > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void add_overrides(const Value& value, const std::string& place, std::vector<std::string>& to) {
  const auto* entries = value.get_if<Value::Map>();
  if (entries == nullptr || entries->empty()) {
    to.push_back(fmt::format("main_config{} = {}", place, python_literal(value)));
    return;
  }
  for (const auto& [key, inner] : *entries) {
    add_overrides(inner, fmt::format("{}[{}]", place, python_literal(key)), to);
  }
}

constexpr const char* kCheck = R"(
import json, sys
source, paths = json.load(sys.stdin)
scope = {"__name__": "template", "__file__": "template.py"}
exec(compile(source, "template", "exec"), scope)
missing = []
for path in paths:
    place = scope["main_config"]
    for key in path.split("."):
        try:
            place = place[int(key) if isinstance(place, (list, tuple)) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            missing.append(path)
            break
print("\n" + json.dumps(missing))
)";

std::string last_line_of(const std::string& text) {
  std::string last;
  for (const std::string& line : lines_of(text)) {
    if (line.find_first_not_of(" \t") != std::string::npos) last = line;
  }
  return last;
}

}  // namespace

std::string python_literal(const Value& value) {
  if (value.is_nil()) return "None";
  if (const auto* flag = value.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* number = value.get_if<double>()) return python_number(*number);
  if (const auto* text = value.get_if<std::string>()) return python_string(*text);
  if (const auto* items = value.get_if<Value::Array>()) {
    std::vector<std::string> parts;
    for (const Value& item : *items) parts.push_back(python_literal(item));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (const auto* entries = value.get_if<Value::Map>()) {
    std::vector<std::string> parts;
    for (const auto& [key, item] : *entries) {
      parts.push_back(fmt::format("{}: {}", python_literal(key), python_literal(item)));
    }
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return to_text(value);  // whole numbers
}

Result<std::string> fill_python_template(const std::string& text, const Value& config,
                                         const std::string& exp_name) {
  std::vector<std::string> lines = lines_of(text);
  DIVISI_TRY(const std::size_t guard, find_guard(lines));
  std::vector<std::string> overrides;
  add_overrides(config, "", overrides);
  if (value_at(config, "exp_name").is_nil()) {
    overrides.push_back(fmt::format("main_config[\"exp_name\"] = {}", python_string(exp_name)));
  }
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(guard), overrides.begin(),
               overrides.end());
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

Result<std::vector<std::string>> missing_in_template(const std::string& text,
                                                     const std::vector<std::string>& variables,
                                                     const std::string& python,
                                                     const std::string& folder) {
  std::vector<std::string> lines = lines_of(text);
  DIVISI_TRY(const std::size_t guard, find_guard(lines));
  lines.resize(guard);
  json::Array paths;
  for (const std::string& name : variables) paths.emplace_back(name);
  const std::string input =
      json::print(json::Array{fmt::format("{}\n", fmt::join(lines, "\n")), paths});
  io::SpawnOptions options;
  options.program = python;
  options.arguments = {"-c", kCheck};
  options.folder = folder;
  DIVISI_TRY(const io::Descriptor given, io::make_memory_file("template", input));
  DIVISI_TRY(const io::Descriptor errors, io::make_memory_file("errors", ""));
  options.input_from = given.get();
  options.standard_output = io::Stdio::kPipe;
  options.error_to = errors.get();
  DIVISI_TRY(io::Process process, io::Process::spawn(options));
  DIVISI_TRY(const std::string output, io::read_all(process.output().get()));
  DIVISI_TRY(const io::ExitStatus exit, process.wait());
  if (!exit.ok()) {
    DIVISI_TRY(const std::string said, io::read_from_start(errors.get()));
    const std::string last = last_line_of(said);
    return failure(Code::kInvalid, "the template fails before its main guard: {}",
                   last.empty() ? "no message" : last);
  }
  const Result<json::Value> answer = json::parse(last_line_of(output));
  if (!answer || answer->as_array() == nullptr) {
    return failure(Code::kInvalid, "the template ends before its main guard");
  }
  std::vector<std::string> missing;
  for (const json::Value& path : *answer->as_array()) {
    if (path.as_string() != nullptr) missing.push_back(*path.as_string());
  }
  return missing;
}

}  // namespace divisi::tune_run
