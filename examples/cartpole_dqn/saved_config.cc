#include "saved_config.h"

#include "divisi/checkpoint.h"
#include "divisi/error.h"
#include "json/value.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace cartpole {

namespace json = divisi::json;

namespace {

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return text + "'";
}

[[noreturn]] void refuse(const RunFolder& folder, std::string_view why) {
  throw divisi::UsageError(fmt::format("{}: {}; mend it, or delete it and give the keys of the run",
                                       folder.config(), why));
}

std::optional<json::Value> read(const RunFolder& folder) {
  std::ifstream file(folder.config());
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  auto parsed = json::parse(text);
  if (!parsed) refuse(folder, parsed.error().message());
  return *std::move(parsed);
}

std::vector<std::string> texts(const json::Value* value) {
  std::vector<std::string> all;
  if (value == nullptr || value->as_array() == nullptr) return all;
  for (const json::Value& item : *value->as_array()) {
    if (const auto* const text = item.as_string()) all.push_back(*text);
  }
  return all;
}

json::Array to_array(const std::vector<std::string>& all) {
  return {all.begin(), all.end()};
}

}  // namespace

void save_config(const RunFolder& folder, const Options& options, const std::string& command) {
  const auto before = read(folder);
  std::vector<std::string> commands = texts(before ? before->find("commands") : nullptr);
  if (!command.empty()) commands.push_back(command);
  json::Value all;
  all["version"] = DIVISI_VERSION;
  all["commands"] = to_array(commands);
  all["processes"] = to_array(process_arguments(options));
  all["config"] = *json::parse(options.config.to_json());
  divisi::write_file_atomically(folder.config(), json::print(all, 2) + "\n");
}

std::optional<Options> saved_options(const RunFolder& folder) {
  const auto saved = read(folder);
  if (!saved) return std::nullopt;
  const json::Value* const config = saved->find("config");
  if (config == nullptr) refuse(folder, "there is no \"config\" in it");
  try {
    Options options;
    options.config.load_json(json::print(*config), "config");
    return parse(texts(saved->find("processes")), options);
  } catch (const divisi::UsageError& error) {
    refuse(folder, error.what());
  }
}

std::string command_line(const std::string& program, const std::vector<std::string>& args) {
  std::string line = quoted(program);
  for (const auto& arg : args) line += " " + quoted(arg);
  return line;
}

std::vector<std::string> differences(const divisi::rl::DqnConfig& before,
                                     const divisi::rl::DqnConfig& now) {
  std::vector<std::string> lines;
  const auto old = before.entries();
  const auto all = now.entries();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [key, value] = all[i];
    if (value == old[i].second) continue;
    lines.push_back(fmt::format("{}: {}, was {}", key, value, old[i].second));
  }
  return lines;
}

}  // namespace cartpole
