#include "run/options.h"

#include "base/nearest_name.h"
#include "json/quantity.h"
#include "launch/entry_name.h"
#include "launch/hostlist.h"
#include "launch/limits.h"
#include "launch/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

namespace divisi::run {
namespace {

using launch::shown;

constexpr std::array<std::pair<std::string_view, BackendKind>, 5> kBackends{{
    {"local", BackendKind::kLocal},
    {"ssh", BackendKind::kSsh},
    {"slurm", BackendKind::kSlurm},
    {"dijob", BackendKind::kDijob},
    {"job", BackendKind::kJob},
}};

// Reads settings one by one; an error names the flag and, unless it was typed, its file.
class Reader {
 public:
  explicit Reader(const Settings& settings) : settings_(settings) {}

  const Setting* find(std::string_view name) const {
    const auto found = settings_.find(name);
    return found == settings_.end() || found->second.values.empty() ? nullptr : &found->second;
  }
  std::string text(std::string_view name) const {
    const Setting* const setting = find(name);
    return setting == nullptr ? std::string() : setting->values.back();
  }
  std::vector<std::string> list(std::string_view name) const {
    const Setting* const setting = find(name);
    return setting == nullptr ? std::vector<std::string>() : setting->values;
  }
  std::vector<std::string> comma_list(std::string_view name) const {
    std::vector<std::string> parts;
    for (const std::string& value : list(name)) {
      for (std::string& part : launch::split_list(value)) parts.push_back(std::move(part));
    }
    return parts;
  }
  bool on(std::string_view name) const { return text(name) == "true"; }
  bool given(std::string_view name) const {
    const Setting* const setting = find(name);
    return setting != nullptr && setting->origin != "default";
  }
  // "--port" or "~/.config/divisi/config.yaml: port".
  std::string what(std::string_view name) const {
    const Setting* const setting = find(name);
    if (setting == nullptr || setting->origin == "the command line" ||
        setting->origin == "default") {
      return "--" + std::string(name);
    }
    return setting->origin + ": " + std::string(name);
  }
  Status number(std::string_view name, int low, int high, int& out) const {
    if (find(name) == nullptr) return {};
    const auto value = launch::parse_int(text(name), low, high, what(name));
    if (!value) return value.error();
    out = *value;
    return {};
  }
  Status choice(std::string_view name, std::span<const std::string> choices,
                std::string& out) const {
    if (find(name) == nullptr) return {};
    out = text(name);
    if (std::ranges::find(choices, out) != choices.end()) return {};
    return make_status(Code::kInvalid, "{}: '{}' is not one of {}{}", what(name), shown(out),
                       fmt::join(choices, ", "), did_you_mean(out.substr(0, 64), choices));
  }

 private:
  const Settings& settings_;
};

Result<std::chrono::milliseconds> parse_duration(std::string_view text, const std::string& what) {
  static constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
      {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"", 1}}};
  constexpr double kLongest = 3.2e7;  // a year
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto unit = std::ranges::find(kUnits, suffix, &std::pair<std::string_view, double>::first);
  if (error != std::errc() || unit == kUnits.end() || !std::isfinite(number) || number <= 0 ||
      number * unit->second > kLongest) {
    return failure(Code::kInvalid, "{}: '{}' is not a time; write 90s, 10m, 2h or 1d", what,
                   shown(text));
  }
  return std::chrono::milliseconds(std::llround(number * unit->second * 1000));
}

Status read_duration(const Reader& reader, std::string_view name,
                     std::optional<std::chrono::milliseconds>& out) {
  if (reader.find(name) == nullptr) return {};
  const auto value = parse_duration(reader.text(name), reader.what(name));
  if (!value) return value.error();
  out = *value;
  return {};
}

Status read_quantity(const Reader& reader, std::string_view name, std::string& out) {
  if (reader.find(name) == nullptr) return {};
  out = reader.text(name);
  const auto quantity = json::Quantity::parse(out);
  if (!quantity) return quantity.error().with_context(reader.what(name));
  if (quantity->sign() <= 0) {
    return make_status(Code::kInvalid, "{}: '{}' is not above 0", reader.what(name), shown(out));
  }
  return {};
}

Result<std::pair<std::string, std::string>> parse_variable(const std::string& text,
                                                           const std::string& what) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool valid =
      !name.empty() && (name[0] < '0' || name[0] > '9') && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
      });
  if (!valid) {
    return failure(Code::kInvalid, "{}: '{}' is not NAME=VALUE", what, shown(text));
  }
  if (equals != std::string::npos) return std::pair(name, text.substr(equals + 1));
  const char* const here = std::getenv(name.c_str());
  if (here == nullptr) {
    return failure(Code::kInvalid, "{}: there is no variable {} here; write {}=VALUE", what, name,
                   name);
  }
  return std::pair(name, std::string(here));
}

Result<Volume> parse_volume(std::string_view text, const std::string& what) {
  const auto wrong = [&] {
    return failure(Code::kInvalid,
                   "{}: '{}' is not SOURCE:PATH[:ro] with an absolute PATH; a source is a path, "
                   "pvc:NAME, configMap:NAME, secret:NAME or emptyDir",
                   what, shown(text));
  };
  Volume volume;
  std::string_view rest = text;
  if (rest.ends_with(":ro") || rest.ends_with(":rw")) {
    volume.read_only = rest.ends_with(":ro");
    rest.remove_suffix(3);
  }
  const std::size_t colon = rest.rfind(":/");
  if (colon == std::string_view::npos || colon == 0) return wrong();
  volume.source = rest.substr(0, colon);
  volume.path = rest.substr(colon + 1);
  if (volume.path == "/") return wrong();
  const bool named = volume.source.starts_with("pvc:") || volume.source.starts_with("configMap:") ||
                     volume.source.starts_with("secret:");
  const bool is_path = volume.source.starts_with('/') || volume.source.starts_with('.') ||
                       volume.source.starts_with('~');
  if (!named && !is_path && volume.source != "emptyDir") return wrong();
  if (named && volume.source.ends_with(':')) return wrong();
  return volume;
}

Status read_what_runs(const Reader& reader, const CommandLine& line, RunOptions& options) {
  options.manifest = line.manifest;
  options.command = line.command;
  options.package = reader.find("package") != nullptr ? reader.text("package") : ".";
  if (reader.find("main") != nullptr) options.main = reader.text("main");
  const bool has_package = line.given.contains("package") || line.given.contains("main");
  if (!options.command.empty() && (has_package || !options.manifest.empty())) {
    return make_status(Code::kInvalid, "a program after -- excludes --package, --main and {}",
                       options.manifest.empty() ? "a manifest" : shown(options.manifest));
  }
  if (!options.manifest.empty()) {
    // What the manifest says of its pods, and what is about packages.
    for (const std::string_view flag :
         {"package", "main", "workers", "gpus", "topology", "parallel-workers", "port", "labels",
          "env", "volume", "image", "image-pull-policy", "service-account", "cpu", "memory",
          "hosts", "grace", "max-package", "watch"}) {
      if (!line.given.contains(flag)) continue;
      return make_status(Code::kInvalid, "--{} has no meaning with {}, which says what runs", flag,
                         shown(options.manifest));
    }
    options.folder = reader.text("folder");
    return {};
  }
  if (reader.find("folder") != nullptr) {
    return {Code::kInvalid, "--folder is for a manifest (divisi run job.yaml)"};
  }
  if (options.main) {
    const auto entry = launch::parse_entry_name(*options.main);
    if (!entry) return entry.error();
  }
  if (reader.find("workers") == nullptr) {
    return {Code::kInvalid, "--workers N is missing: how many workers the job has"};
  }
  DIVISI_TRY_STATUS(reader.number("workers", 1, launch::kMaxNodes, options.workers));
  DIVISI_TRY_STATUS(reader.number("gpus", 0, launch::kMaxNodes, options.gpus));
  if (options.gpus > options.workers) {
    return make_status(
        Code::kInvalid,
        "{}: {} GPUs for {} workers: it counts the workers that have one GPU each, at most all",
        reader.what("gpus"), options.gpus, options.workers);
  }
  return {};
}

Status read_links(const Reader& reader, RunOptions& options) {
  constexpr int kMaxPort = 65535;
  static const std::array<std::string, 3> topologies{"star", "mesh", "alone"};
  DIVISI_TRY_STATUS(reader.choice("topology", topologies, options.topology));
  DIVISI_TRY_STATUS(
      reader.number("parallel-workers", 1, launch::kMaxWorkers, options.parallel_workers));
  DIVISI_TRY_STATUS(reader.number("port", 1, kMaxPort, options.port));
  options.port_given = reader.given("port");
  if (options.port + options.parallel_workers - 1 > kMaxPort) {
    return make_status(Code::kInvalid, "{}: {} ports from {} on are more than there are",
                       reader.what("port"), options.parallel_workers, options.port);
  }
  if (options.workers * static_cast<long>(options.parallel_workers) > launch::kMaxNodes) {
    return make_status(Code::kInvalid, "{} workers of {} processes are more than {} nodes",
                       options.workers, options.parallel_workers, launch::kMaxNodes);
  }
  std::set<std::string> seen;
  for (std::string& label : reader.comma_list("labels")) {
    if (label == "gpu" && options.gpus > 0) {
      return make_status(Code::kInvalid, "{}: 'gpu' is the label of the workers that --gpus gives",
                         reader.what("labels"));
    }
    if (seen.insert(label).second) options.labels.push_back(std::move(label));
  }
  return {};
}

// "n[01-03],me@a": a user stands in front of each host of its part, which ends at a comma outside
// of brackets.
Result<std::vector<std::string>> expand_hosts(std::string_view text) {
  std::vector<std::string> hosts;
  while (!text.empty()) {
    int depth = 0;
    std::size_t end = 0;
    for (; end < text.size() && (depth > 0 || text[end] != ','); ++end) {
      depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
    }
    const std::string_view part = launch::trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t at = part.find('@');
    const std::string user(part.substr(0, at == std::string_view::npos ? 0 : at + 1));
    if (user == "@" || user.starts_with('-')) {
      return failure(Code::kInvalid, "'{}' has no user in front of its @", launch::shown(part));
    }
    DIVISI_TRY(const std::vector<std::string> names,
               launch::expand_host_list(part.substr(user.size())));
    for (const std::string& name : names) hosts.push_back(user + name);
  }
  return hosts;
}

Status read_place(const Reader& reader, RunOptions& options) {
  static const std::array<std::string, 3> policies{"Always", "IfNotPresent", "Never"};
  options.image = reader.text("image");
  DIVISI_TRY_STATUS(reader.choice("image-pull-policy", policies, options.image_pull_policy));
  options.name_space = reader.text("namespace");
  options.kubeconfig = reader.text("kubeconfig");
  options.context = reader.text("context");
  options.service_account = reader.text("service-account");
  options.remote_folder = reader.text("remote-folder");
  options.remote_ditask = reader.text("remote-ditask");
  options.slurm_arguments = reader.list("slurm");
  DIVISI_TRY_STATUS(read_quantity(reader, "cpu", options.cpu));
  DIVISI_TRY_STATUS(read_quantity(reader, "memory", options.memory));
  for (const std::string& text : reader.list("hosts")) {
    const auto hosts = expand_hosts(text);
    if (!hosts) return hosts.error().with_context(reader.what("hosts"));
    options.hosts.insert(options.hosts.end(), hosts->begin(), hosts->end());
  }
  for (const std::string& text : reader.list("env")) {
    auto variable = parse_variable(text, reader.what("env"));
    if (!variable) return variable.error();
    std::erase_if(options.environment,
                  [&](const auto& before) { return before.first == variable->first; });
    options.environment.push_back(*std::move(variable));
  }
  for (const std::string& text : reader.list("volume")) {
    auto volume = parse_volume(text, reader.what("volume"));
    if (!volume) return volume.error();
    options.volumes.push_back(*std::move(volume));
  }
  return {};
}

Status read_backend(const Reader& reader, RunOptions& options) {
  if (reader.find("backend") != nullptr) {
    const auto backend = parse_backend(reader.text("backend"));
    if (!backend) return backend.error().with_context(reader.what("backend"));
    options.backend = *backend;
  } else if (reader.given("hosts")) {
    options.backend = BackendKind::kSsh;
  }
  if (options.backend != BackendKind::kSsh || !options.manifest.empty()) return {};
  if (options.hosts.empty()) {
    return {Code::kInvalid, "--backend ssh needs --hosts a,b,c: one host a worker"};
  }
  if (static_cast<int>(options.hosts.size()) != options.workers) {
    return make_status(Code::kInvalid, "{}: {} hosts for {} workers; one a worker is needed",
                       reader.what("hosts"), options.hosts.size(), options.workers);
  }
  return {};
}

Status read_run(const Reader& reader, RunOptions& options) {
  options.name = reader.text("name");
  if (!options.name.empty()) {
    DIVISI_TRY_STATUS(check_job_name(options.name).with_context("--name"));
  }
  DIVISI_TRY_STATUS(read_duration(reader, "timeout", options.timeout));
  std::optional<std::chrono::milliseconds> grace;
  DIVISI_TRY_STATUS(read_duration(reader, "grace", grace));
  options.grace = grace.value_or(options.grace);
  std::string limit;
  DIVISI_TRY_STATUS(read_quantity(reader, "max-package", limit));
  if (!limit.empty()) {
    options.max_package_bytes = static_cast<std::uint64_t>(json::Quantity::parse(limit)->value());
  }
  options.yes = reader.on("yes");
  options.dry_run = reader.on("dry-run");
  options.explain = reader.on("explain");
  options.detach = reader.on("detach");
  options.wait = reader.on("wait");
  options.logs = reader.on("logs");
  options.remove = reader.on("delete");
  options.watch = reader.on("watch");
  if (reader.find("output") != nullptr) {
    static const std::array<std::string, 3> formats{"yaml", "json", "sh"};
    std::string format;
    DIVISI_TRY_STATUS(reader.choice("output", formats, format));
    options.output = format == "yaml"   ? RenderFormat::kYaml
                     : format == "json" ? RenderFormat::kJson
                                        : RenderFormat::kSh;
  }
  return {};
}

Status check_together(const RunOptions& options) {
  const auto exclude = [](std::string_view a, std::string_view b) {
    return make_status(Code::kInvalid, "--{} and --{} exclude each other", a, b);
  };
  if (options.output && !options.dry_run) {
    return {Code::kInvalid, "-o has no meaning without --dry-run"};
  }
  if (options.detach && options.wait) return exclude("detach", "wait");
  if (options.detach && options.logs) return exclude("detach", "logs");
  if (options.detach && options.remove) return exclude("detach", "delete");
  if (options.watch && options.detach) return exclude("watch", "detach");
  if (options.watch && options.wait) return exclude("watch", "wait");
  if (options.watch && !options.command.empty()) {
    return {Code::kInvalid, "--watch looks at a package; a program after -- has none"};
  }
  return {};
}

}  // namespace

std::string_view backend_name(BackendKind kind) {
  return std::ranges::find(kBackends, kind, &std::pair<std::string_view, BackendKind>::second)
      ->first;
}

Result<BackendKind> parse_backend(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kBackends) {
    if (text == name) return kind;
    names.emplace_back(name);
  }
  return failure(Code::kInvalid, "'{}' is not one of {}{}", shown(text), fmt::join(names, ", "),
                 did_you_mean(text.substr(0, 64), names));
}

Status check_job_name(std::string_view name) {
  const bool characters = std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (characters && !name.empty() && name.size() <= kMaxNameLength && name.front() >= 'a' &&
      !name.ends_with('-')) {
    return {};
  }
  return make_status(Code::kInvalid,
                     "'{}' is no name of a job: a-z, 0-9 and '-', beginning with a letter, at most "
                     "{} characters",
                     shown(name), kMaxNameLength);
}

Result<RunOptions> read_options(const Settings& settings, const CommandLine& line) {
  RunOptions options;
  const Reader reader(settings);
  Status status = read_what_runs(reader, line, options);
  for (const auto read : {read_links, read_place, read_run, read_backend}) {
    if (status.ok()) status = read(reader, options);
  }
  if (status.ok()) status = check_together(options);
  if (!status.ok()) return failure(status);
  return options;
}

}  // namespace divisi::run
