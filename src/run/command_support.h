// What the commands around `divisi run` share.
#pragma once

#include "base/status.h"
#include "run/backend.h"
#include "run/record.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace divisi::run {

Result<JobRecords> our_records();

// The exit code: 125 when stdout takes no more.
int print_all(const std::string& text);

// The exit code when the program is at its end: help was asked for, or a flag is wrong.
std::optional<int> parse_words(CLI::App& app, std::vector<std::string> words);

// Whatever throws is one line.
int guarded(const char* program, const std::function<int()>& body);

// The backend that a record is of, with the options that the job was started with.
Result<std::unique_ptr<Backend>> backend_of(const JobRecord& record);

// DIJobs of the cluster that were not started here. `problem`: why they are not known.
std::vector<JobRecord> jobs_without_record(const std::vector<JobRecord>& known, Status* problem);

// The job of a record, or a DIJob of the cluster without one.
struct FoundJob {
  JobRecord record{};
  bool recorded = true;
};
Result<FoundJob> find_job(const JobRecords& records, const std::string& name);

}  // namespace divisi::run
