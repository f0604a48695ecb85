#include "run/command_support.h"

#include "run/environment.h"
#include "run/run_command.h"
#include "run/settings.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>

namespace divisi::run {

Result<JobRecords> our_records() {
  DIVISI_TRY(std::string folder, default_records_folder(process_environment()));
  return JobRecords(std::move(folder));
}

int print_all(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  return kExitBackend;
}

std::optional<int> parse_words(CLI::App& app, std::vector<std::string> words) {
  std::ranges::reverse(words);  // CLI11 takes them from the back
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return print_all(app.help());
  } catch (const CLI::ParseError& error) {
    return complain(app.get_name(),
                    make_status(Code::kInvalid, "{}; see {} --help", error.what(), app.get_name()));
  }
  return std::nullopt;
}

int guarded(const char* program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return complain(program, Status(Code::kInternal, error.what()));
  }
}

Result<std::unique_ptr<Backend>> backend_of(const JobRecord& record) {
  DIVISI_TRY(const BackendKind kind, parse_backend(record.backend));
  RunOptions options;
  if (const auto line = parse_run_line(record.command_line)) {
    if (const auto settings = gather_settings_of_line(*line)) {
      if (auto read = read_options(*settings, *line)) options = *std::move(read);
    }
  }
  // Whatever else its line says, what it was made of does not change.
  options.manifest = record.data.string_at({"manifest"});
  return make_backend(kind, options);
}

std::vector<JobRecord> jobs_without_record(const std::vector<JobRecord>& known, Status* problem) {
  std::vector<JobRecord> others;
  // Without a kubeconfig there is no cluster to ask.
  if (choose_backend({}).kind != BackendKind::kDijob) return others;
  const auto backend = make_backend(BackendKind::kDijob, {});
  auto listed = backend ? (*backend)->list_others() : failure(backend.error());
  if (!listed) {
    *problem = listed.error();
    return others;
  }
  for (JobRecord& other : *listed) {
    const bool recorded = std::ranges::any_of(known, [&](const JobRecord& record) {
      return record.name == other.name && record.backend == other.backend &&
             record.data.find("uids") != nullptr &&
             *record.data.find("uids") == *other.data.find("uids");
    });
    if (!recorded) others.push_back(std::move(other));
  }
  return others;
}

Result<FoundJob> find_job(const JobRecords& records, const std::string& name) {
  auto record = records.load(name);
  if (record) return FoundJob{*std::move(record), true};
  if (record.error().code() != Code::kNotFound) return failure(record.error());
  Status problem;
  for (JobRecord& other : jobs_without_record({}, &problem)) {
    if (other.name == name) return FoundJob{std::move(other), false};
  }
  return failure(record.error());
}

}  // namespace divisi::run
