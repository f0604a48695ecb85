// What the backends share whose jobs are looked after by a process of this machine (see
// local_supervisor.h): it writes the log and the record, and everybody else reads these.
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
  Status remove(const JobRecords& records, const JobRecord& record) override;

 protected:
  // Returns when the workers run, with the record as the supervisor wrote it. The supervisor is in
  // a session of its own and keeps `held` open.
  static Status start_supervisor(const JobRecords& records, JobRecord& record,
                                 const std::vector<io::Descriptor>& held, int attached_fd);
};

// What is installed beside this program, or found in the search path.
Result<std::string> installed_program(const std::string& name);

// A file that only its user reads.
Status write_private(const std::string& path, const std::string& text);

// A secret of one job: other jobs and users of the machines are refused by its workers.
std::string random_secret();

}  // namespace divisi::run
