// The flags of `divisi run`: first as texts with the place that each came from (Settings), then
// checked (RunOptions). Reading them touches nothing but the arguments; settings.h adds the files.
//
//   DIVISI_TRY(CommandLine line, parse_run_line(arguments));
//   DIVISI_TRY(Settings settings, gather_settings(line, files));     // settings.h
//   DIVISI_TRY(RunOptions options, read_options(settings, line));
#pragma once

#include "base/status.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::run {

enum class BackendKind { kLocal, kSsh, kSlurm, kDijob, kJob };
std::string_view backend_name(BackendKind kind);
Result<BackendKind> parse_backend(std::string_view text);

enum class RenderFormat { kYaml, kJson, kSh };

// One flag of `divisi run`, and the key of settings files that has its name.
struct FlagInfo {
  enum class Kind { kValue, kList, kSwitch };
  std::string_view name;     // without dashes: "parallel-workers"
  std::string_view letters;  // "-p", or nothing
  Kind kind = Kind::kValue;
  std::string_view initial;      // the default as text; empty: none
  bool in_files = true;          // whether settings files may have it
  std::string_view description;  // one line of --help
};
std::span<const FlagInfo> run_flags();
const FlagInfo* find_flag(std::string_view name);  // null when there is none

// What was said of one flag, and where: "the command line", a file, "default".
struct Setting {
  std::vector<std::string> values{};  // of a switch: "true" or "false"
  std::string origin{};
};
using Settings = std::map<std::string, Setting, std::less<>>;  // by the flag's name

// The command line, taken apart.
struct CommandLine {
  std::optional<std::string> print{};  // --help was asked for: this text
  Settings given{};
  std::string manifest{};              // `divisi run job.yaml`
  std::vector<std::string> command{};  // behind "--": any program in place of a package
  std::vector<std::string> words{};    // all of it, as typed: for records
};
// kInvalid with one line; a flag that does not exist comes with the one that was probably meant.
Result<CommandLine> parse_run_line(std::vector<std::string> words);

// HOST:PATH:MODE as --volume has it; the sources of a cluster are "pvc:NAME", "nfs:SERVER:/PATH".
struct Volume {
  std::string source{};  // a path of the host, "pvc:NAME", "configMap:NAME", "secret:NAME"
  std::string path{};    // where the worker sees it
  bool read_only = false;
  friend bool operator==(const Volume&, const Volume&) = default;
};

// Everything that `divisi run` was asked for, checked as far as it can be without looking outside.
struct RunOptions {
  std::optional<BackendKind> backend = std::nullopt;  // nothing: choose_backend() decides
  std::string manifest{};                             // a file with a DIJob; then no package
  std::string folder{};  // of a manifest here: for logs and volumes; empty: the job's own

  int workers = 1;
  int gpus = 0;  // the first so many workers have one each
  std::string package = ".";
  std::optional<std::string> main = std::nullopt;
  std::vector<std::string> command{};  // in place of a package
  std::string topology = "star";       // alone, mesh or star
  int parallel_workers = 1;
  int port = 50515;
  bool port_given = false;  // somewhere: then no other is taken in its place
  std::vector<std::string> labels{};

  std::string name{};  // empty: made up from the entry
  std::vector<std::pair<std::string, std::string>> environment{};
  std::vector<Volume> volumes{};
  std::string image{};
  std::string image_pull_policy{};
  std::string name_space{};  // of the cluster; empty: the context's own
  std::string kubeconfig{};
  std::string context{};
  std::string service_account{};
  std::string cpu{};                           // a quantity, per worker
  std::string memory{};                        // likewise
  std::vector<std::string> hosts{};            // ssh
  std::string remote_folder{};                 // ssh, slurm: the cache on the hosts
  std::string remote_ditask{};                 // ssh, slurm: the program there; empty: "ditask"
  std::vector<std::string> slurm_arguments{};  // as sbatch takes them: "--partition=gpu"

  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // of the whole job
  std::chrono::milliseconds grace{10'000};                          // between asking and killing
  std::uint64_t max_package_bytes = std::uint64_t{512} << 20;
  bool yes = false;  // answers questions with yes

  bool dry_run = false;
  std::optional<RenderFormat> output = std::nullopt;
  bool explain = false;
  bool detach = false;
  bool wait = false;    // wait for the end without the output
  bool logs = false;    // with --wait: the output as well
  bool remove = false;  // --delete: when it has ended, nothing stays
  bool watch = false;
};

// Checks every value; the error names the flag, or the file that it came from.
Result<RunOptions> read_options(const Settings& settings, const CommandLine& line);

// A name that Kubernetes takes for jobs, services and pods: a-z, 0-9 and '-', at most
// kMaxNameLength characters, beginning with a letter.
inline constexpr std::size_t kMaxNameLength = 40;
Status check_job_name(std::string_view name);

}  // namespace divisi::run
