#include "run/settings.h"

#include "base/nearest_name.h"
#include "json/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProjectFile = "divisi.yaml";
constexpr std::string_view kDefaultOrigin = "default";

bool is_ours(const fs::path& file) {
  struct stat about{};
  return ::stat(file.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         (about.st_uid == ::geteuid() || about.st_uid == 0);
}

Result<std::string> scalar_text(const json::Value& value, const std::string& what) {
  if (const std::string* text = value.as_string()) return *text;
  if (value.as_array() != nullptr || value.as_object() != nullptr || value.is_null()) {
    return failure(Code::kInvalid, "{}: a {} is not a value here", what, value.kind());
  }
  return json::print(value);
}

// `env: {A: b}` as well as `env: [A=b]`.
Result<std::vector<std::string>> texts_of(const json::Value& value, const std::string& what) {
  std::vector<std::string> texts;
  if (const json::Object* object = value.as_object()) {
    for (const auto& [name, member] : *object) {
      DIVISI_TRY(const std::string text, scalar_text(member, what + "." + name));
      texts.push_back(name + "=" + text);
    }
    return texts;
  }
  if (const json::Array* array = value.as_array()) {
    for (const json::Value& item : *array) {
      DIVISI_TRY(std::string text, scalar_text(item, what));
      texts.push_back(std::move(text));
    }
    return texts;
  }
  DIVISI_TRY(std::string text, scalar_text(value, what));
  texts.push_back(std::move(text));
  return texts;
}

std::vector<std::string> file_keys() {
  std::vector<std::string> keys;
  for (const FlagInfo& flag : run_flags()) {
    if (flag.in_files) keys.emplace_back(flag.name);
  }
  return keys;
}

Result<Setting> read_setting(const FlagInfo& flag, const json::Value& value,
                             const std::string& origin) {
  Setting setting{.values = {}, .origin = origin};
  const std::string what = fmt::format("{}: {}", origin, flag.name);
  if (value.as_object() != nullptr && flag.name != "env") {
    return failure(Code::kInvalid, "{}: a map is not a value here", what);
  }
  DIVISI_TRY(setting.values, texts_of(value, what));
  if (flag.kind != FlagInfo::Kind::kList && setting.values.size() != 1) {
    return failure(Code::kInvalid, "{}: one value is needed, not a list", what);
  }
  return setting;
}

Result<Settings> read_file(const std::string& file) {
  if (file.empty()) return Settings();
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) {
    return failure(Code::kUnavailable, "reading {}: {}", file, errno_text(errno));
  }
  return read_settings(text, file);
}

// `env` is joined: the nearer one comes last, and wins.
void take_over(Settings& into, Settings from) {
  for (auto& [name, setting] : from) {
    const auto before = into.find(name);
    if (name == "env" && before != into.end()) {
      setting.values.insert(setting.values.begin(), before->second.values.begin(),
                            before->second.values.end());
      setting.origin = before->second.origin + ", " + setting.origin;
    }
    into[name] = std::move(setting);
  }
}

}  // namespace

SettingsFiles find_settings_files(const launch::Environment& environment,
                                  const std::string& package) {
  SettingsFiles files;
  fs::path config;
  if (const auto chosen = launch::lookup(environment, "XDG_CONFIG_HOME")) {
    config = *chosen;
  } else if (const auto home = launch::lookup(environment, "HOME")) {
    config = fs::path(*home) / ".config";
  }
  if (!config.empty() && is_ours(config / "divisi" / "config.yaml")) {
    files.user = (config / "divisi" / "config.yaml").string();
  }
  std::error_code error;
  const fs::path path = fs::absolute(package.empty() ? "." : package, error).lexically_normal();
  const fs::path inside = path / kProjectFile;
  const fs::path folder =
      path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
  for (const fs::path& file : {inside, folder / kProjectFile}) {
    if (files.project.empty() && is_ours(file)) files.project = file.string();
  }
  return files;
}

Result<Settings> read_settings(std::string_view text, const std::string& origin) {
  DIVISI_TRY(const std::vector<json::Value> documents,
             json::parse_yaml(text).map_error(
                 [&](const Status& status) { return status.with_context(origin); }));
  Settings settings;
  if (documents.empty()) return settings;
  const json::Object* const object = documents.front().as_object();
  if (object == nullptr || documents.size() > 1) {
    return failure(Code::kInvalid, "{}: one map of flags and values is needed", origin);
  }
  const std::vector<std::string> keys = file_keys();
  for (const auto& [name, value] : *object) {
    const FlagInfo* const flag = find_flag(name);
    if (flag == nullptr || !flag->in_files) {
      return failure(Code::kInvalid, "{}: '{}' is {}{}", origin, launch::shown(name),
                     flag == nullptr ? "no setting" : "for the command line only",
                     flag == nullptr ? did_you_mean(name.substr(0, 64), keys) : std::string());
    }
    DIVISI_TRY(settings[name], read_setting(*flag, value, origin));
  }
  return settings;
}

Result<Settings> gather_settings(const CommandLine& line, const SettingsFiles& files) {
  Settings settings;
  for (const FlagInfo& flag : run_flags()) {
    if (flag.initial.empty()) continue;
    settings[std::string(flag.name)] = {.values = {std::string(flag.initial)},
                                        .origin = std::string(kDefaultOrigin)};
  }
  for (const std::string& file : {files.user, files.project}) {
    DIVISI_TRY(Settings read, read_file(file));
    take_over(settings, std::move(read));
  }
  take_over(settings, line.given);
  return settings;
}

Result<Settings> gather_settings_of_line(const CommandLine& line) {
  return gather_settings(line, {});
}

std::string explain(const Settings& settings) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  std::vector<std::array<std::string, 3>> rows;
  for (const FlagInfo& flag : run_flags()) {
    const auto found = settings.find(flag.name);
    if (found == settings.end()) continue;
    rows.push_back({std::string(flag.name), fmt::format("{}", fmt::join(found->second.values, " ")),
                    found->second.origin});
    name_width = std::max(name_width, rows.back()[0].size());
    value_width = std::max(value_width, rows.back()[1].size());
  }
  std::string text;
  for (const auto& [name, value, origin] : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", name, name_width, value, value_width, origin);
  }
  return text;
}

}  // namespace divisi::run
