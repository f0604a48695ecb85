// The di-server of the DIJob that this process is a part of, read from the environment that the
// operator gives to every pod.
#pragma once

#include "base/status.h"
#include "http/client.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::runtime {

struct JobServer {
  http::Url url{};
  std::string job{};    // "/v2alpha1/job/<namespace>/<name>", in front of what is asked for
  std::string token{};  // the job's secret; empty: none was given
  int rank = -1;        // DI_RANK; -1: the operator gave none (template form)

  std::unique_ptr<http::Client> connect(io::Reactor& reactor) const;
  http::Request request(std::string method, std::string_view target) const;
};

// DI_SERVER_URL, DI_JOB_ID, DI_RANK and DIVISI_SECRET_FILE. Nothing outside of a DIJob; an error
// names the variable that cannot be understood.
Result<std::optional<JobServer>> job_server_of_environment();

}  // namespace divisi::runtime
