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

}  // namespace divisi::run
