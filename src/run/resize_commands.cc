#include "run/resize_commands.h"

#include "launch/text.h"
#include "run/command_support.h"
#include "run/environment.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <functional>
#include <limits>

namespace divisi::run {
namespace {

using Change = std::function<Status(Backend&, const JobRecords&, JobRecord&)>;

Status change_job(const std::string& name, const Change& change) {
  const auto records = our_records();
  if (!records) return records.error();
  auto found = find_job(*records, name);
  if (!found) return found.error();
  JobRecord& record = found->record;
  auto backend = backend_of(record);
  if (!backend) return backend.error();
  DIVISI_TRY_STATUS((*backend)->refresh(*records, record));
  if (has_ended(record.state)) {
    return make_status(Code::kInvalid, "{} has ended ({}); divisi restart {} starts it again", name,
                       state_name(record.state), name);
  }
  return change(**backend, *records, record);
}

int suspend_or_resume(std::vector<std::string> words, bool suspended) {
  const char* const program = suspended ? "divisi suspend" : "divisi resume";
  return guarded(program, [&] {
    std::string name;
    CLI::App app(suspended ? "Ends the pods of a DIJob; the job stays, with its ranks and counters."
                           : "Brings the pods of a suspended DIJob back.",
                 program);
    app.add_option("job", name, "Its name")->required();
    app.footer(fmt::format("Examples:\n  {} train", program));
    if (const auto code = parse_words(app, std::move(words))) return *code;
    const Status status =
        change_job(name, [&](Backend& backend, const JobRecords& records, JobRecord& record) {
          return backend.suspend(records, record, suspended);
        });
    if (!status.ok()) return complain(program, status);
    return print_all(fmt::format("{} {}\n", name, suspended ? "suspended" : "resumed"));
  });
}

}  // namespace

int scale_main(std::vector<std::string> words) {
  constexpr const char* kProgram = "divisi scale";
  return guarded(kProgram, [&] {
    std::string name;
    std::string task;
    std::string size;
    CLI::App app("Gives a DIJob more or fewer replicas while it runs.", kProgram);
    app.add_option("job", name, "Its name")->required();
    app.add_option("replicas", size, "How many")->required();
    app.add_option("--task", task, "Which task (default: the collector task, else the only one)");
    app.footer("Examples:\n  divisi scale train 4\n  divisi scale train --task learner 2");
    if (const auto code = parse_words(app, std::move(words))) return *code;
    // Which sizes a job can have is its operator's to say.
    const auto replicas = launch::parse_int(size, 0, std::numeric_limits<int>::max(), "replicas");
    if (!replicas) return complain(kProgram, replicas.error());
    const Status status =
        change_job(name, [&](Backend& backend, const JobRecords& records, JobRecord& record) {
          return backend.scale(records, record, task, *replicas);
        });
    if (!status.ok()) return complain(kProgram, status);
    return print_all(
        fmt::format("{}{}{} scaled to {}\n", name, task.empty() ? "" : "/", task, *replicas));
  });
}

int suspend_main(std::vector<std::string> words) {
  return suspend_or_resume(std::move(words), true);
}

int resume_main(std::vector<std::string> words) {
  return suspend_or_resume(std::move(words), false);
}

}  // namespace divisi::run
