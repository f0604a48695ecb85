// divisi tune list, show, best, importance, export, import, plot, top: what studies have stored.

#include "io/process.h"
#include "tune.h"
#include "tune_run/optuna_journal.h"
#include "tune_run/plots.h"
#include "tune_run/queries.h"
#include "tune_run/trial_folder.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

namespace divisi::apps {
namespace {

constexpr const char* kDefaultStorage = "divisi-tune.db";
constexpr std::size_t kShownRows = 10;

// Flags that every reader has.
struct Source {
  std::string study;
  std::string storage = kDefaultStorage;

  void add_to(CLI::App& app) {
    app.add_option("study", study, "Its name; not needed where there is only one");
    add_storage(app);
  }
  void add_storage(CLI::App& app) {
    app.add_option("--storage", storage, "Where it is stored")->capture_default_str();
  }
  Result<tune_run::StudyData> load() const {
    DIVISI_TRY(tune_run::StudyData data, tune_run::load_study(storage, study));
    return data;
  }
};

int print(const Result<std::string>& text) {
  if (!text) return tune_failed(text.error());
  std::fputs(text->c_str(), stdout);
  return kSucceeded;
}

// To the file, or to the standard output without one.
int put(const std::string& text, const std::string& file) {
  if (file.empty() || file == "-") return print(text);
  const Status status = tune_run::write_file(file, text);
  return status.ok() ? kSucceeded : tune_failed(status);
}

using Arguments = std::vector<std::string>;

int list_command(const Arguments& arguments) {
  Source source;
  CLI::App app("All studies of a file.", "divisi tune list");
  source.add_storage(app);
  if (const auto code = parse_flags(app, arguments)) return *code;
  return print(tune_run::list_studies(source.storage));
}

int show_command(const Arguments& arguments) {
  Source source;
  std::optional<std::uint64_t> trial;
  std::size_t rows = kShownRows;
  CLI::App app("A study, or one of its trials.", "divisi tune show");
  source.add_to(app);
  app.add_option("trial", trial, "Its number");
  app.add_option("--rows", rows, "Of the best trials")->capture_default_str();
  if (const auto code = parse_flags(app, arguments)) return *code;
  const auto data = source.load();
  if (!data) return tune_failed(data.error());
  return print(trial ? tune_run::show_trial(*data, *trial) : tune_run::show_study(*data, rows));
}

int best_command(const Arguments& arguments) {
  Source source;
  CLI::App app("The best trial as JSON; of several objectives the Pareto front.",
               "divisi tune best");
  source.add_to(app);
  if (const auto code = parse_flags(app, arguments)) return *code;
  const auto data = source.load();
  return data ? print(tune_run::show_best(*data)) : tune_failed(data.error());
}

int importance_command(const Arguments& arguments) {
  Source source;
  bool divergence = false;
  bool json = false;
  CLI::App app("How much each variable matters.", "divisi tune importance");
  source.add_to(app);
  app.add_flag("--ped-anova", divergence, "By the best tenth of the trials; default: fANOVA");
  app.add_flag("--json", json, "As JSON");
  if (const auto code = parse_flags(app, arguments)) return *code;
  const auto data = source.load();
  if (!data) return tune_failed(data.error());
  const auto importance = tune_run::importance_of(*data, divergence);
  if (!importance) return tune_failed(importance.error());
  return print(tune_run::show_importance(*importance, json));
}

int export_command(const Arguments& arguments) {
  Source source;
  std::string file;
  bool csv = false;
  bool json = false;
  std::string journal;
  CLI::App app("Writes a study for other programs.", "divisi tune export");
  source.add_to(app);
  app.add_flag("--csv", csv, "A line per trial (default)");
  app.add_flag("--json", json, "Everything, as one document");
  app.add_option("--optuna-journal", journal, "FILE: for Optuna's JournalStorage");
  app.add_option("-o,--output", file, "Default: the standard output");
  if (const auto code = parse_flags(app, arguments)) return *code;
  if (int{csv} + int{json} + int{!journal.empty()} > 1) {
    return tune_failed({Code::kInvalid, "export: give one of --csv, --json, --optuna-journal"});
  }
  const auto data = source.load();
  if (!data) return tune_failed(data.error());
  if (!journal.empty()) return put(tune_run::export_optuna(*data), journal);
  return put(json ? tune_run::export_json(*data) : tune_run::export_csv(*data), file);
}

int import_command(const Arguments& arguments) {
  Source source;
  std::string file;
  std::string name;
  CLI::App app("Takes studies from a journal of Optuna's JournalStorage.", "divisi tune import");
  app.add_option("file", file, "The journal")->required();
  app.add_option("--study", name, "Only this one");
  source.add_storage(app);
  if (const auto code = parse_flags(app, arguments)) return *code;
  const auto imported = tune_run::import_optuna(file, source.storage, name);
  if (!imported) return tune_failed(imported.error());
  for (const tune_run::ImportedStudy& study : *imported) {
    std::printf("%s: %zu trials", study.name.c_str(), study.trials);
    if (study.left_out > 0) {
      std::printf(", %zu left out, which do not have all variables", study.left_out);
    }
    std::printf("\n");
  }
  return kSucceeded;
}

int plot_command(const Arguments& arguments) {
  Source source;
  std::string file;
  std::string kind = "history";
  CLI::App app("Draws a study as SVG.", "divisi tune plot");
  source.add_to(app);
  app.add_option("--kind", kind, "history, parallel, slice, pareto or importance")
      ->capture_default_str();
  app.add_option("-o,--output", file, "Default: the standard output");
  if (const auto code = parse_flags(app, arguments)) return *code;
  const auto chosen = tune_run::parse_plot_kind(kind);
  if (!chosen) return tune_failed(chosen.error());
  const auto data = source.load();
  if (!data) return tune_failed(data.error());
  std::vector<std::pair<std::string, double>> importance;
  if (*chosen == tune_run::PlotKind::kImportance) {
    auto shares = tune_run::importance_of(*data, false);
    if (!shares) return tune_failed(shares.error());
    importance = *std::move(shares);
  }
  const auto svg = tune_run::plot(*data, *chosen, importance);
  return svg ? put(*svg, file) : tune_failed(svg.error());
}

// Waits until something in the folder of the file was written.
class FileChanges {
 public:
  explicit FileChanges(const std::string& storage) : descriptor_(::inotify_init1(IN_CLOEXEC)) {
    std::string path = storage.substr(storage.find(':') + 1);
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    ::inotify_add_watch(descriptor_.get(), folder.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
  }
  void wait() const {
    pollfd one{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
    // A second at most, so that running times go on.
    if (::poll(&one, 1, 1000) <= 0) return;
    char events[4096];
    [[maybe_unused]] const ssize_t size = ::read(descriptor_.get(), events, sizeof(events));
  }

 private:
  io::Descriptor descriptor_;
};

bool has_work(const tune_run::StudyData& data) {
  return std::ranges::any_of(data.trials, [](const tune_run::StudyTrial& trial) {
    return !is_finished(trial.record.stage);
  });
}

int top_command(const Arguments& arguments) {
  Source source;
  bool once = false;
  CLI::App app("A study as it goes on; Ctrl-C ends it.", "divisi tune top");
  source.add_to(app);
  app.add_flag("--once", once, "Draw once");
  if (const auto code = parse_flags(app, arguments)) return *code;
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const FileChanges changes(source.storage);
  tune::Study study = tune::Study::load(source.storage, source.study);
  std::uint64_t shown = 0;
  for (bool first = true;; first = false) {
    const std::uint64_t change = study.refresh();
    const tune_run::StudyData data = tune_run::read_study(study);
    if (first || change != shown || terminal) {
      std::printf("%s%s", terminal && !once ? "\x1b[H\x1b[J" : "",
                  tune_run::show_study(data, kShownRows).c_str());
      std::fflush(stdout);
    }
    shown = change;
    if (once || (!terminal && !has_work(data))) return kSucceeded;
    changes.wait();
  }
}

using Commands = std::map<std::string, int (*)(const Arguments&), std::less<>>;

const Commands& study_commands() {
  static const Commands commands{{"list", list_command},     {"show", show_command},
                                 {"best", best_command},     {"export", export_command},
                                 {"import", import_command}, {"plot", plot_command},
                                 {"top", top_command},       {"importance", importance_command}};
  return commands;
}

}  // namespace

std::vector<std::string> study_command_names() {
  std::vector<std::string> names;
  for (const auto& [name, run] : study_commands()) names.push_back(name);
  return names;
}

std::optional<int> read_study_command(const std::vector<std::string>& arguments) {
  const auto found = study_commands().find(arguments.front());
  if (found == study_commands().end()) return std::nullopt;
  return found->second(Arguments(arguments.begin() + 1, arguments.end()));
}

}  // namespace divisi::apps
