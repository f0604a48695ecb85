#include "launch/options.h"

#include "base/log.h"
#include "runtime/entry.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace divisi::launch {
namespace {

using std::chrono::milliseconds;

constexpr const char* kVersion =
    "ditask (divisi) " DIVISI_VERSION ", compatible with DI-engine v0.5.3";

constexpr const char* kExamples = R"(Examples:
  Two workers on this host that hear each other:
    ditask --package DIR --main greeting.main --parallel-workers 2
  The same from an archive, over tcp:
    ditask --package greeting.zip --parallel-workers 2 --protocol tcp
  Three hosts; B and C dial A (192.168.0.1):
    A: ditask -p DIR -m train.main --ports 50515 --node-ids 0
    B: ditask -p DIR -m train.main --ports 50515 --node-ids 1 --attach-to 192.168.0.1:50515
  In pods of a DIJob or in a Slurm job, every task runs the same line:
    ditask -p DIR -m train.main --platform k8s
  A C symbol of a shared object, or any program (DITASK_* variables tell it who it is):
    ditask --main libtrain.so:run
    ditask --parallel-workers 2 --topology star -- ./program argument
Exit codes: 0 success, 1 main failed, 2 usage, 3 could not bind or join, 130/143 interrupted,
128+N a worker was killed by signal N.)";

// What CLI11 fills in before anything is checked.
struct Texts {
  std::optional<std::string> package, main, mq_type, redis_host, redis_port, startup_interval;
  std::optional<std::string> local_rank, max_retries, worker_lost, join_timeout, send_timeout;
  std::optional<std::string> codec, log_level, log_dir, secret_file;
  std::optional<std::string> init_method, local_cuda_devices, cuda_device_map;
  bool auto_recover = false, dry_run = false, allow_pickle = false, log_json = false;
};

void declare_job_flags(CLI::App& app, DitaskOptions& options, Texts& texts) {
  LaunchRequest& request = options.request;
  app.add_option(
      "-p,--package", texts.package,
      "Directory or zip archive with shared objects or Python modules (default: this one)");
  app.add_option(
      "-m,--main", texts.main,
      "module.function (of module.py, or a DIVISI_MAIN of module.so), or libfoo.so:symbol "
      "(default: <package name>.main)");
  app.add_option("--parallel-workers", request.parallel_workers,
                 "Worker processes of this launcher (default: 1)");
  app.add_option(
      "--protocol", request.protocol,
      "tcp or ipc (default: ipc; tcp with --ports, --address, --attach-to, --platform or "
      "DI_NODES)");
  app.add_option("--ports", request.ports,
                 "First port, or one for each worker: 50515,50517 (default: 50515; slurm: 15151)");
  app.add_option("--attach-to", request.attach_to,
                 "Addresses every worker dials: host:port,tcp://host:port,ipc:///path");
  app.add_option("--address", request.address,
                 "Host to listen on, without port (default: this host's own address)");
  app.add_option("--labels", request.labels, "Labels of the workers: a,b");
  app.add_option("--node-ids", request.node_ids,
                 "Node id of the first worker, or one for each (default: 0, or by the platform)");
  app.add_option("--topology", request.topology, "mesh, star or alone (default: mesh)");
  app.add_option("--platform", request.platform,
                 "k8s, slurm, or none (default: k8s where DI_NODES and DI_RANK are set)");
  app.add_option("--platform-spec", request.platform_spec,
                 "JSON text or *.json file: {\"tasks\": [{...}, ...]}, one entry a task");
  app.add_option("--job-id", request.job_id,
                 "Only nodes with the same job id talk to each other (default: by the platform)");
}

void declare_run_flags(CLI::App& app, Texts& texts) {
  app.add_option("--secret-file", texts.secret_file,
                 "File with the job's shared secret (default: $DIVISI_SECRET_FILE)");
  app.add_flag("--allow-pickle", texts.allow_pickle, "Accept pickled payloads without a secret");
  app.add_flag("--auto-recover", texts.auto_recover, "Call main again when it throws");
  app.add_option("--max-retries", texts.max_retries, "... at most so often (default: no limit)");
  app.add_option("--worker-lost", texts.worker_lost,
                 "When a worker is killed: fail, ignore or restart (default: fail)");
  app.add_option("--join-timeout", texts.join_timeout,
                 "Seconds after the last start until every peer must be there (default: 60)");
  app.add_option("--send-timeout", texts.send_timeout,
                 "Seconds an emit may wait for a full peer (default: 30)");
  app.add_option("--startup-interval", texts.startup_interval,
                 "Seconds between the starts of workers (default: 0)");
  app.add_option("--codec", texts.codec, "Payload codec: native");
  app.add_option("--log-level", texts.log_level, "debug, info, warning, error, off");
  app.add_option("--log-dir", texts.log_dir, "Also write each worker's output to node_<id>.log");
  app.add_flag("--log-json", texts.log_json, "Log lines as JSON");
  app.add_flag("--dry-run", texts.dry_run, "Print what would be started, as JSON, and exit");
  app.add_option("--mq-type", texts.mq_type, "nng, another name of the native transport");
  app.add_option("--local_rank,--local-rank", texts.local_rank, "Accepted and ignored");
  app.add_option("--redis-host", texts.redis_host)->group("");
  app.add_option("--redis-port", texts.redis_port)->group("");
  app.add_option("--init-method", texts.init_method)->group("");
  app.add_option("--local-cuda-devices", texts.local_cuda_devices)->group("");
  app.add_option("--cuda-device-map", texts.cuda_device_map)->group("");
}

Status usage(std::string text) {
  return {Code::kInvalid, std::move(text)};
}

Status check_transport(const Texts& texts) {
  if (texts.init_method || texts.local_cuda_devices || texts.cuda_device_map) {
    return usage(fmt::format(
        "--{} belongs to the torchrpc transport, which does not exist; remove it",
        texts.init_method ? "init-method"
                          : (texts.local_cuda_devices ? "local-cuda-devices" : "cuda-device-map")));
  }
  if (texts.redis_host || texts.redis_port) {
    return usage(fmt::format("--{}: redis is not part of this version; use --mq-type nng",
                             texts.redis_host ? "redis-host" : "redis-port"));
  }
  const std::string type = texts.mq_type.value_or("nng");
  if (type == "nng") return {};
  if (type == "redis") {
    return usage("--mq-type redis is not part of this version; use --mq-type nng");
  }
  if (type.starts_with("torchrpc")) {
    return usage("--mq-type torchrpc is reserved and does not exist; use --mq-type nng");
  }
  return usage(fmt::format("--mq-type: '{}' is not known; use nng", shown(type)));
}

Result<milliseconds> parse_seconds(const std::string& text, double low, std::string_view flag) {
  constexpr double kLongest = 1e7;  // four months
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) ||
      seconds < low || seconds > kLongest) {
    return failure(Code::kInvalid, "{}: '{}' is not a number of seconds from {} on", flag,
                   shown(text), low);
  }
  return milliseconds(std::llround(seconds * 1000));
}

Status read_run_texts(const Texts& texts, DitaskOptions& options) {
  constexpr double kShortest = 0.001;
  const auto seconds = [](const std::optional<std::string>& text, double low, const char* flag,
                          milliseconds& out) -> Status {
    if (!text) return {};
    const auto value = parse_seconds(*text, low, flag);
    if (!value) return value.error();
    out = *value;
    return {};
  };
  DIVISI_TRY_STATUS(seconds(texts.join_timeout, kShortest, "--join-timeout", options.join_timeout));
  DIVISI_TRY_STATUS(seconds(texts.send_timeout, kShortest, "--send-timeout", options.send_timeout));
  DIVISI_TRY_STATUS(
      seconds(texts.startup_interval, 0, "--startup-interval", options.startup_interval));
  if (texts.max_retries) {
    const auto retries =
        parse_int(*texts.max_retries, 0, std::numeric_limits<int>::max(), "--max-retries");
    if (!retries) return retries.error();
    if (!texts.auto_recover) return usage("--max-retries has no meaning without --auto-recover");
    options.max_retries = *retries;
  }
  if (texts.worker_lost) {
    const auto policy = runtime::parse_worker_lost(*texts.worker_lost);
    if (!policy) return policy.error().with_context("--worker-lost");
    options.worker_lost = *policy;
  }
  if (texts.codec && *texts.codec != "native") {
    return usage(fmt::format("--codec: '{}' is not known here; use native", shown(*texts.codec)));
  }
  if (texts.log_level) {
    const auto level = log::parse_level(*texts.log_level);
    if (!level) return level.error().with_context("--log-level");
    options.log_level = *texts.log_level;
  }
  return {};
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// What CLI11 did not know what to do with.
Status check_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return {};
  const std::string& first = extras.front();
  if (!first.starts_with('-')) {
    return usage(
        fmt::format("unexpected argument '{}' (a program to run comes after --)", shown(first)));
  }
  const std::string flag = first.substr(0, first.find('='));
  if (flag == "--workers") {
    return usage("there is no --workers: --parallel-workers N starts N of them on this host");
  }
  const auto nearest = runtime::nearest_names(flag.substr(0, 64), flag_names(app));
  if (nearest.empty()) return usage(fmt::format("unknown flag {}; see ditask --help", shown(flag)));
  return usage(fmt::format("unknown flag {}; did you mean {}?", shown(flag), nearest.front()));
}

}  // namespace

Result<DitaskOptions> parse_command_line(std::vector<std::string> arguments,
                                         const Environment& environment) {
  DitaskOptions options;
  Texts texts;
  const auto separator = std::ranges::find(arguments, "--");
  const bool has_command = separator != arguments.end();
  if (has_command) options.command.assign(separator + 1, arguments.end());
  arguments.erase(separator, arguments.end());

  CLI::App app("Starts the workers of a distributed task on this host.", "ditask");
  app.set_help_flag("-h,--help", "Print this text and exit");
  app.set_version_flag("-v,--version", kVersion);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.allow_extras();
  app.footer(kExamples);
  declare_job_flags(app, options, texts);
  declare_run_flags(app, texts);
  try {
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    options.action = DitaskOptions::Action::kPrint;
    options.text = app.help();
    return options;
  } catch (const CLI::CallForVersion&) {
    options.action = DitaskOptions::Action::kPrint;
    options.text = std::string(kVersion) + "\n";
    return options;
  } catch (const CLI::ParseError& error) {
    return failure(Code::kInvalid, "{}; see ditask --help", error.what());
  }
  if (const Status status = check_extras(app); !status.ok()) return failure(status);
  if (const Status status = check_transport(texts); !status.ok()) return failure(status);
  if (const Status status = read_run_texts(texts, options); !status.ok()) return failure(status);

  if (has_command && options.command.empty()) {
    return failure(Code::kInvalid, "there is no program after --");
  }
  if (has_command && (texts.package || texts.main)) {
    return failure(Code::kInvalid, "a program after -- excludes --package and --main");
  }
  if (has_command && texts.auto_recover) {
    return failure(Code::kInvalid,
                   "--auto-recover calls a --main again; a program after -- is started again by "
                   "--worker-lost restart");
  }
  options.package = texts.package.value_or(".");
  options.main = texts.main;
  options.secret_file = texts.secret_file;
  if (!options.secret_file) {
    if (const auto file = lookup(environment, "DIVISI_SECRET_FILE")) {
      options.secret_file = std::string(*file);
    }
  }
  options.allow_pickle = texts.allow_pickle;
  options.auto_recover = texts.auto_recover;
  options.log_json = texts.log_json;
  options.log_dir = texts.log_dir.value_or("");
  if (texts.dry_run) options.action = DitaskOptions::Action::kDryRun;
  return options;
}

}  // namespace divisi::launch
