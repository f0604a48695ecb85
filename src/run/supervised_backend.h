// What backends share whose jobs a supervisor of this machine looks after (supervisor_process.h):
// its record and its log say how the job stands, signals end it.
#pragma once

#include "io/process.h"
#include "run/backend.h"

#include <string>
#include <vector>

namespace divisi::run {

class SupervisedBackend : public Backend {
 public:
  Status refresh(const JobRecords& records, JobRecord& record) override;
  Status follow(const JobRecords& records, JobRecord& record, const FollowOptions& options,
                OutputSink& sink) override;
  Status stop(const JobRecords& records, JobRecord& record, bool now) override;
  Status remove(const JobRecords&, const JobRecord&) override { return {}; }

 protected:
  // Starts local_supervisor.h for the plan in the job's folder. Returns when the workers run, with
  // the record as the supervisor wrote it. The supervisor keeps `held` open.
  static Status start_local_supervisor(const JobRecords& records, JobRecord& record,
                                       const std::vector<io::Descriptor>& held, int attached_fd);
};

// What is installed beside this program, or found in the search path.
Result<std::string> installed_program(const std::string& name);

// A file that only its user reads.
Status write_private(const std::string& path, const std::string& text);

// A secret of one job: other jobs and users of the machines are refused by its workers.
std::string random_secret();

}  // namespace divisi::run
