// JobApi: the Kubernetes API of one local DIJob, which its supervisor answers on a Unix socket in
// the job's folder. Only that job's user can open the folder.
//
//   DIVISI_TRY(auto api, JobApi::open(records.job_folder(name)));
//   api->edit_job([](json::Value job) { return with_suspend(std::move(job), true); });
//
// One thread.
#pragma once

#include "base/status.h"
#include "io/address.h"
#include "io/process.h"
#include "json/value.h"

#include <functional>
#include <memory>
#include <string>

namespace divisi::run {

// Where the socket is; by way of the open folder, because the path of a socket is short. It is
// valid in this process while `folder` is open.
struct JobSocket {
  io::Descriptor folder{};
  io::Address address() const;
};
Result<JobSocket> job_socket(const std::string& folder);

class JobApi {
 public:
  using Edit = std::function<Result<json::Value>(json::Value job)>;
  static Result<std::unique_ptr<JobApi>> open(const std::string& folder);
  virtual ~JobApi() = default;
  // Reads the job, changes it, writes it; again when somebody else wrote it meanwhile. The message
  // of a refusal is the API's own.
  virtual Status edit_job(const std::string& space, const std::string& name, const Edit& edit) = 0;
};

}  // namespace divisi::run
