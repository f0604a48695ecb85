#include "flags.h"

#include "dijob/replica_resources.h"
#include "kube/kubeconfig.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace divisi::apps {
namespace {

constexpr const char* kExamples =
    "examples:\n"
    "  di-orchestrator operator --leader-elect            # in a pod, as deploy/divisi.yaml has "
    "it\n"
    "  di-orchestrator operator --kubeconfig ~/.kube/config --namespace team-a --metric-addr 0\n"
    "  di-orchestrator server -s :8081 -p :8080\n"
    "  di-orchestrator server --auth=job-secret           # callers show the secret of their job\n"
    "\n"
    "Exit code: 0 ended by SIGTERM or SIGINT, 1 something went wrong or the lease was lost, 2 bad "
    "arguments.\n";

// As they were written; made values of when all is known.
struct Texts {
  std::string space;
  std::optional<std::string> service_domain;
  std::optional<std::string> server_url;
  std::string sync_period = "1m";
  std::string metrics = ":8443";
  std::string probe = ":8080";
  std::string api = ":8081";
  std::string auth = "none";
  std::string log_level;
  std::string log_encoder;
  bool log_devel = false;
  bool leader_elect = false;
  bool strict_admission = false;
  std::string server_address = "di-server.di-system:8080";
  bool aggregator_at_start = false;
  std::string force_delete_after = "5m";
  std::string lease_space;
  std::string token_file;
  std::string config_space = "di-system";
  std::string config_name = "aggregator-config";
  std::string gpu_policy = "simple";
  // Accepted and without effect.
  double qps = 0;
  int burst = 0;
  std::string unused;
};

void add_common(CLI::App& app, Texts& texts, kube::ConfigOptions& config) {
  app.add_option("--kubeconfig", config.kubeconfig, "this file instead of the usual places");
  app.add_option("--namespace", texts.space, "only the jobs of this name space (default: of all)");
  app.add_option("--service-domain-name", texts.service_domain,
                 "end of the host names in DI_NODES (default: svc.cluster.local)");
  app.add_option("--di-server-url", texts.server_url,
                 "what pods get as DI_SERVER_URL (default: "
                 "http://di-server.di-system.svc.cluster.local:8081)");
  app.add_option("--metric-addr,--metrics-bind-address", texts.metrics,
                 "where /metrics is (default: :8443; 0: nowhere)");
  app.add_option("--qps", texts.qps, "accepted; requests are not limited on this side")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--burst", texts.burst, "accepted; requests are not limited on this side")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--zap-log-level", texts.log_level,
                 "debug, info, warning, error, or a number above 0 for debug");
  app.add_option("--zap-encoder", texts.log_encoder, "json or console (default: console)")
      ->check(CLI::IsMember({"json", "console"}));
  app.add_flag("--zap-devel", texts.log_devel, "log at level debug");
  app.add_option("--zap-stacktrace-level", texts.unused, "accepted, without effect");
  app.add_option("--server-address", texts.server_address,
                 "what pods of v1alpha1 jobs get as KUBERNETES_SERVER_URL (default: "
                 "di-server.di-system:8080)");
  app.add_option("--agconfig-namespace", texts.config_space,
                 "where the AggregatorConfig of v1alpha1 jobs is (default: di-system)");
  app.add_option("--agconfig-name", texts.config_name, "its name (default: aggregator-config)");
}

void add_operator(CLI::App& app, Texts& texts) {
  app.add_option("--sync-period", texts.sync_period,
                 "look at every job, and allocate, so often (default: 1m)");
  app.add_option("--probe-addr,--health-probe-bind-address", texts.probe,
                 "where /healthz and /readyz are (default: :8080; 0: nowhere)");
  app.add_flag("--leader-elect", texts.leader_elect, "of several operators one works at a time");
  app.add_option("--lease-lock-namespace", texts.lease_space,
                 "where the lease is (default: the name space of this pod)");
  app.add_option("--force-delete-after", texts.force_delete_after,
                 "delete a pod by force when its node was unreachable so long (default: 5m; 0: "
                 "never)");
  app.add_flag("--strict-admission", texts.strict_admission,
               "keep deploy/admission.yaml at refusing bad jobs, where by itself it warns of them");
  app.add_flag("--aggregator-at-start", texts.aggregator_at_start,
               "create an aggregator with the coordinator of every v1alpha1 job (default: of those "
               "with the annotation diengine/aggregator-at-start: \"true\")");
}

void add_server(CLI::App& app, Texts& texts) {
  app.add_option("-s,--server-bind-address", texts.api, "where the API is (default: :8081)");
  app.add_option("-p,--probe-address", texts.probe,
                 "where the API is too, with /healthz and /readyz (default: :8080)");
  app.add_option(
         "--auth", texts.auth,
         "what callers show as bearer token: none, job-secret, or token-file (default: none)")
      ->check(CLI::IsMember({"none", "job-secret", "token-file"}));
  app.add_option("--token-file", texts.token_file, "the token of --auth=token-file");
  app.add_flag("--leader-elect", texts.leader_elect, "of v0.x: accepted; every server serves");
  app.add_option("--lease-lock-namespace,--lease-lock-name", texts.unused,
                 "of v0.x: accepted, without effect");
  app.add_option("--gpu-alloc-policy", texts.gpu_policy,
                 "how the GPUs of a v1alpha1 learner are split over pods: simple, by what most "
                 "nodes have")
      ->check(CLI::IsMember({"simple"}));
}

// zap's names and numbers: 0 is info, -1 and every number above 0 are more talkative.
Result<log::Level> level_of(const Texts& texts) {
  if (texts.log_level.empty()) return texts.log_devel ? log::Level::kDebug : log::Level::kInfo;
  int number = 0;
  const char* end = texts.log_level.data() + texts.log_level.size();
  const auto [rest, error] = std::from_chars(texts.log_level.data(), end, number);
  if (error == std::errc() && rest == end)
    return number == 0 ? log::Level::kInfo : log::Level::kDebug;
  if (texts.log_level == "panic") return log::Level::kError;
  return log::parse_level(texts.log_level);
}

Status check_url(std::string_view url) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return make_status(Code::kInvalid, "--di-server-url: '{}' does not begin with http://", url);
  }
  return {};
}

// "host:port", also behind http://, as clients of v1alpha1 take it apart.
Status check_server_address(std::string_view address) {
  std::string_view rest = address;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (rest.starts_with(scheme)) rest.remove_prefix(scheme.size());
  }
  const std::size_t colon = rest.find(':');
  const std::string_view port = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (colon == 0 || error != std::errc() || end != port.data() + port.size() || number < 1 ||
      number > 65535) {
    return make_status(
        Code::kInvalid,
        "--server-address: '{}' is not <host>:<port>, as di-server.di-system:8080 is", address);
  }
  return {};
}

Status read_first_generation(const Texts& texts, CommonFlags& flags) {
  DIVISI_TRY_STATUS(check_server_address(texts.server_address));
  DIVISI_TRY_STATUS(kube::check_namespace(texts.config_space, "--agconfig-namespace"));
  if (texts.config_name.empty()) {
    return make_status(Code::kInvalid, "--agconfig-name: the name of an AggregatorConfig is empty");
  }
  flags.first_server_url = texts.server_address;
  flags.aggregator_config_space = texts.config_space;
  flags.aggregator_config = texts.config_name;
  return {};
}

Result<CommonFlags> common_of(const Texts& texts, kube::ConfigOptions config,
                              const kube::EnvironmentLookup& environment) {
  CommonFlags flags;
  config.environment = environment;
  flags.config = std::move(config);
  flags.space = texts.space;
  if (!texts.space.empty()) {
    if (Status bad = kube::check_namespace(texts.space, "--namespace"); !bad.ok()) {
      return failure(std::move(bad));
    }
  }
  if (texts.service_domain) flags.names.service_domain = *texts.service_domain;
  // v1.0 had it in the environment; what is said on the command line wins.
  if (const auto url = texts.server_url ? texts.server_url : environment("DI_SERVER_URL")) {
    if (Status bad = check_url(*url); !bad.ok()) return failure(std::move(bad));
    flags.names.server_url = *url;
  }
  if (Status bad = read_first_generation(texts, flags); !bad.ok()) return failure(std::move(bad));
  DIVISI_TRY(flags.metrics, parse_listen(texts.metrics));
  DIVISI_TRY(flags.log_level, level_of(texts));
  flags.log_json = texts.log_encoder == "json";
  return flags;
}

Result<CommandLine> operator_of(const Texts& texts, CommonFlags common) {
  OperatorFlags flags;
  DIVISI_TRY(flags.default_resources,
             dijob::read_default_resources(
                 common.config.environment("DI_JOB_DEFAULT_RESOURCES").value_or("")));
  flags.common = std::move(common);
  DIVISI_TRY(flags.sync_period, parse_duration(texts.sync_period));
  if (flags.sync_period < std::chrono::seconds(1)) {
    return failure(Code::kInvalid, "--sync-period is at least 1s");
  }
  DIVISI_TRY(flags.probe, parse_listen(texts.probe));
  flags.leader_elect = texts.leader_elect;
  flags.lease_space = texts.lease_space;
  flags.strict_admission = texts.strict_admission;
  DIVISI_TRY(flags.force_delete_after, parse_duration(texts.force_delete_after));
  flags.aggregator_at_start = texts.aggregator_at_start;
  return flags;
}

Result<CommandLine> server_of(const Texts& texts, CommonFlags common) {
  ServerFlags flags;
  flags.common = std::move(common);
  DIVISI_TRY(const Listen api, parse_listen(texts.api));
  DIVISI_TRY(const Listen probe, parse_listen(texts.probe));
  if (!api || !probe) {
    return failure(Code::kInvalid, "di-server needs both addresses, -s and -p");
  }
  flags.api = *api;
  flags.probe = *probe;
  if (texts.auth == "job-secret") flags.auth.mode = server::AuthMode::kJobSecret;
  if (texts.auth == "token-file") flags.auth.mode = server::AuthMode::kToken;
  if ((flags.auth.mode == server::AuthMode::kToken) == texts.token_file.empty()) {
    return failure(Code::kInvalid, "--auth=token-file and --token-file go together");
  }
  flags.auth.token_file = texts.token_file;
  flags.first.config_space = flags.common.aggregator_config_space;
  flags.first.config_name = flags.common.aggregator_config;
  flags.first.server_url = flags.common.first_server_url;
  return flags;
}

// "operator" of "/usr/bin/di-operator"; "" of "di-orchestrator", which is told by its first word.
std::string_view subcommand_of(std::string_view program) {
  program.remove_prefix(program.find_last_of('/') + 1);
  if (program == "di-operator") return "operator";
  if (program == "di-server") return "server";
  return {};
}

}  // namespace

Result<CommandLine> parse_command_line(std::string_view program, std::vector<std::string> arguments,
                                       const kube::EnvironmentLookup& environment) {
  if (program.ends_with("di-webhook")) {
    return failure(Code::kInvalid,
                   "there is no webhook: `kubectl apply -f deploy/admission.yaml` has its rules");
  }
  Texts texts;
  kube::ConfigOptions config;
  CLI::App app("Runs DIJobs on a Kubernetes cluster.", "di-orchestrator");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer(kExamples);
  app.require_subcommand(1);
  CLI::App& jobs =
      *app.add_subcommand("operator", "Keep every DIJob as its spec says (di-operator)");
  CLI::App& api = *app.add_subcommand("server", "Answer the HTTP API of running jobs (di-server)");
  for (CLI::App* each : {&jobs, &api}) add_common(*each, texts, config);
  add_operator(jobs, texts);
  add_server(api, texts);
  if (const auto chosen = subcommand_of(program); !chosen.empty()) {
    arguments.insert(arguments.begin(), std::string(chosen));
  }
  try {
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return HelpText{app.help()};
  } catch (const CLI::ParseError& error) {
    return failure(Code::kInvalid, "{}; see --help", error.what());
  }
  DIVISI_TRY(CommonFlags common, common_of(texts, std::move(config), environment));
  return api.parsed() ? server_of(texts, std::move(common)) : operator_of(texts, std::move(common));
}

}  // namespace divisi::apps
