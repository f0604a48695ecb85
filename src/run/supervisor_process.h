// The process that looks after a job of this machine, whatever the job is made of: how it is
// started, and what its main does before the job's own part.
//
//   start_supervisor("local-supervisor", records, name, {}, attached_fd);       // in `divisi run`
//   return supervisor_main("local-supervisor", arguments, make);                // in that process
//
// It goes on in a session of its own, with the arguments RECORDS NAME READY_FD TIE_FD: a descriptor
// to say "ok" or why not on, and one whose other end `divisi run` holds while the job is attached
// to it (-1: none). SIGTERM asks the job to end; SIGQUIT ends it at once.
#pragma once

#include "base/status.h"
#include "io/process.h"
#include "run/record.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::run {

class Supervision {
 public:
  virtual ~Supervision() = default;
  virtual Status start() = 0;  // afterwards the job runs, or nothing of it does
  virtual void run() = 0;      // until the job has ended
};

// `tie` does not block.
using MakeSupervision = std::function<Result<std::unique_ptr<Supervision>>(
    const JobRecords& records, const std::string& name, io::Descriptor tie)>;

int supervisor_main(const char* command, const std::vector<std::string>& arguments,
                    const MakeSupervision& make);

// Returns when the job runs: the record has its supervisor. kInvalid when what it was given cannot
// run. `inherited`: descriptors that the supervisor keeps.
Status start_supervisor(const char* command, const JobRecords& records, const std::string& name,
                        std::vector<int> inherited, int attached_fd);

// Whether the `divisi run` at the other end of the tie has gone.
bool tie_is_cut(const io::Descriptor& tie);

}  // namespace divisi::run
