// The flags of `divisi run` and their parser.
#include "base/nearest_name.h"
#include "launch/text.h"
#include "run/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>

namespace divisi::run {
namespace {

using Kind = FlagInfo::Kind;

constexpr std::array kFlags{
    FlagInfo{"workers", "", Kind::kValue, "", true,
             "How many: pods, hosts, Slurm tasks, or processes here"},
    FlagInfo{"gpus", "", Kind::kValue, "0", true,
             "The first so many workers get one GPU each and the label gpu"},
    FlagInfo{"package", "-p", Kind::kValue, ".", true, "Directory or zip archive with the code"},
    FlagInfo{"main", "-m", Kind::kValue, "", true,
             "module.function, or libfoo.so:symbol (default: <package name>.main)"},
    FlagInfo{"topology", "", Kind::kValue, "star", true, "star, mesh or alone"},
    FlagInfo{"parallel-workers", "", Kind::kValue, "1", true, "Processes of each worker"},
    FlagInfo{"port", "", Kind::kValue, "50515", true, "First port that a worker listens on"},
    FlagInfo{"labels", "", Kind::kList, "", true, "Labels of every worker: a,b"},
    FlagInfo{"backend", "", Kind::kValue, "", true,
             "local, ssh, slurm, dijob or job (default: dijob where the cluster has the type, else "
             "local)"},
    FlagInfo{"folder", "", Kind::kValue, "", false,
             "local job.yaml: for its logs and volumes (default: with the job's record)"},
    FlagInfo{"name", "-n", Kind::kValue, "", false, "The job's name (default: made up)"},
    FlagInfo{"env", "-e", Kind::kList, "", true,
             "NAME=VALUE for every worker; NAME: as it is here"},
    FlagInfo{"volume", "", Kind::kList, "", true,
             "SOURCE:PATH[:ro]; a source is a path, pvc:NAME, configMap:NAME, secret:NAME or "
             "emptyDir"},
    FlagInfo{"image", "", Kind::kValue, "", true, "dijob, job: the container image"},
    FlagInfo{"image-pull-policy", "", Kind::kValue, "", true,
             "dijob, job: Always, IfNotPresent or Never"},
    FlagInfo{"namespace", "", Kind::kValue, "", true, "dijob, job: where (default: the context's)"},
    FlagInfo{"kubeconfig", "", Kind::kValue, "", true, "dijob, job: this file and no other"},
    FlagInfo{"context", "", Kind::kValue, "", true, "dijob, job: of the kubeconfig"},
    FlagInfo{"service-account", "", Kind::kValue, "", true, "dijob, job: of the pods"},
    FlagInfo{"cpu", "", Kind::kValue, "", true, "Of each worker: 2, 500m"},
    FlagInfo{"memory", "", Kind::kValue, "", true, "Of each worker: 4Gi"},
    FlagInfo{"hosts", "", Kind::kList, "", true, "ssh: a,b,c or n[01-03], one a worker"},
    FlagInfo{"remote-folder", "", Kind::kValue, "", true,
             "ssh, slurm: where packages are kept there (default: ~/.cache/divisi/packages)"},
    FlagInfo{"remote-ditask", "", Kind::kValue, "", true,
             "ssh, slurm: the program there (default: ditask of its search path)"},
    FlagInfo{"slurm", "", Kind::kList, "", true, "slurm: for sbatch, as --slurm=--partition=gpu"},
    FlagInfo{"timeout", "", Kind::kValue, "", true, "The job is ended after 90s, 10m, 2h, 1d"},
    FlagInfo{"grace", "", Kind::kValue, "10s", true,
             "Between asking a worker to end and killing it"},
    FlagInfo{"max-package", "", Kind::kValue, "512Mi", true,
             "More is asked for on a terminal, else refused"},
    FlagInfo{"yes", "-y", Kind::kSwitch, "", false, "Answer questions with yes"},
    FlagInfo{"dry-run", "", Kind::kSwitch, "", false, "Print what would be started, start nothing"},
    FlagInfo{"output", "-o", Kind::kValue, "", false, "With --dry-run: yaml (default), json or sh"},
    FlagInfo{"explain", "", Kind::kSwitch, "", false,
             "Print every value with the place it comes from, start nothing"},
    FlagInfo{"detach", "-d", Kind::kSwitch, "", false, "Return once it runs; it goes on"},
    FlagInfo{"wait", "", Kind::kSwitch, "", false, "Wait for the end without the output"},
    FlagInfo{"logs", "", Kind::kSwitch, "", false, "With --wait: the output as well"},
    FlagInfo{"delete", "", Kind::kSwitch, "", false, "Leave nothing of it once it has ended"},
    FlagInfo{"watch", "", Kind::kSwitch, "", false,
             "Start again whenever a file of the package changes"},
};

constexpr const char* kExamples = R"(Examples:
  Three processes here that hear each other through the first:
    divisi run --workers 3 --package pkg --main my_module.main --topology star
  The same on three hosts; on Slurm; in a cluster, where the first two pods have a GPU:
    divisi run --workers 3 --hosts a,b,c --backend ssh -p pkg -m my_module.main
    divisi run --workers 3 --backend slurm --slurm=--partition=gpu -p pkg -m my_module.main
    divisi run --workers 3 --gpus 2 --backend dijob --image my/training:1 -p pkg -m my_module.main
  What would be started, and where each value comes from:
    divisi run --workers 3 --gpus 2 -p pkg -m my_module.main --dry-run -o sh
    divisi run --workers 3 -p pkg -m my_module.main --explain
  Start again with every saved file; start and go away:
    divisi run --workers 3 -p pkg -m my_module.main --watch
    divisi run --workers 3 -p pkg -m my_module.main --detach --name train
  Any program:
    divisi run --workers 3 -- ./program --flag
  A DIJob without a cluster:
    divisi run job.yaml --backend local
Exit codes: the job's own (0 success, 1 main failed, 3 could not bind or join, 128+N killed by
signal N); 2 a mistake in the call; 124 --timeout; 125 the backend failed; 130 and 143 ended from
here. docs/cli.md has a tour.)";

// What CLI11 writes into, one a flag.
struct Target {
  const FlagInfo* flag = nullptr;
  CLI::Option* option = nullptr;
  std::string value{};
  std::vector<std::string> list{};
  bool on = false;
};

void declare(CLI::App& app, Target& target) {
  const FlagInfo& flag = *target.flag;
  std::string names(flag.letters);
  if (!names.empty()) names += ",";
  names += "--" + std::string(flag.name);
  std::string text(flag.description);
  if (!flag.initial.empty()) text += " (default: " + std::string(flag.initial) + ")";
  switch (flag.kind) {
    case Kind::kValue: target.option = app.add_option(names, target.value, text); break;
    case Kind::kList:
      target.option = app.add_option(names, target.list, text)
                          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                          ->allow_extra_args(false);
      break;
    case Kind::kSwitch: target.option = app.add_flag(names, target.on, text); break;
  }
}

Status unknown_word(const std::vector<std::string>& extras) {
  const std::string& first = extras.front();
  if (!first.starts_with('-')) {
    return make_status(Code::kInvalid, "unexpected argument '{}' (a program to run comes after --)",
                       launch::shown(first));
  }
  std::vector<std::string> names;
  for (const FlagInfo& flag : kFlags) names.push_back("--" + std::string(flag.name));
  const std::string flag = first.substr(0, first.find('='));
  const std::string nearest = nearest_name(flag.substr(0, 64), names);
  if (nearest.empty()) {
    return make_status(Code::kInvalid, "unknown flag {}; see divisi run --help",
                       launch::shown(flag));
  }
  return make_status(Code::kInvalid, "unknown flag {}; did you mean {}?", launch::shown(flag),
                     nearest);
}

Setting setting_of(const Target& target) {
  Setting setting{.values = {}, .origin = "the command line"};
  if (target.flag->kind == Kind::kSwitch) {
    setting.values = {target.on ? "true" : "false"};
  } else if (target.flag->kind == Kind::kList) {
    setting.values = target.list;
  } else {
    setting.values = {target.value};
  }
  return setting;
}

}  // namespace

std::span<const FlagInfo> run_flags() {
  return kFlags;
}

const FlagInfo* find_flag(std::string_view name) {
  const auto found = std::ranges::find(kFlags, name, &FlagInfo::name);
  return found == kFlags.end() ? nullptr : &*found;
}

Result<CommandLine> parse_run_line(std::vector<std::string> words) {
  CommandLine line;
  line.words = words;
  const auto dashes = std::ranges::find(words, "--");
  if (dashes != words.end()) {
    line.command.assign(dashes + 1, words.end());
    if (line.command.empty()) return failure(Code::kInvalid, "there is no program after --");
    words.erase(dashes, words.end());
  }
  CLI::App app("Starts one job: here, on hosts, on Slurm or in a cluster.", "divisi run");
  app.set_help_flag("-h,--help", "Print this text and exit");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.allow_extras();
  app.footer(kExamples);
  app.add_option("job.yaml", line.manifest, "A DIJob to run in place of a package");
  std::array<Target, kFlags.size()> targets;
  for (std::size_t i = 0; i < kFlags.size(); ++i) {
    targets[i].flag = &kFlags[i];
    declare(app, targets[i]);
  }
  try {
    std::ranges::reverse(words);  // CLI11 takes them from the back
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    line.print = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    return failure(Code::kInvalid, "{}; see divisi run --help", error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) return failure(unknown_word(extras));
  for (const Target& target : targets) {
    if (target.option->count() > 0) line.given[std::string(target.flag->name)] = setting_of(target);
  }
  return line;
}

}  // namespace divisi::run
