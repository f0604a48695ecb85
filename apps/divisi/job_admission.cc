#include "job_admission.h"

#include "dijob/generation.h"
#include "dijob/job.h"
#include "dijob/names.h"
#include "dijob/pod.h"

#include <string_view>

namespace divisi::apps {
namespace {

Status check_job(const json::Value& object) {
  if (dijob::generation_of(object) != dijob::Generation::kSecond) return {};
  const auto job = dijob::read_job(object);
  if (!job) return job.error();
  const dijob::ClusterNames names;
  if (job->form == dijob::Form::kTasks) return dijob::can_run(*job, names);
  if (!job->replicas) return dijob::can_run(*job, names);
  const int most = job->max_replicas.value_or(dijob::kMaxReplicas);
  if (*job->replicas < job->min_replicas || *job->replicas > most) {
    return make_status(Code::kInvalid, "replicas {} is not applied: it must be between {} and {}",
                       *job->replicas, job->min_replicas, most);
  }
  return dijob::can_run(dijob::resized(*job, 0, *job->replicas), names);
}

}  // namespace

Status check_job_write(const http::Request& request) {
  const std::string_view target = std::string_view(request.target);
  const std::string_view path = target.substr(0, target.find('?'));
  if (request.method != "PUT" || path.find("/dijobs/") == std::string_view::npos ||
      path.ends_with("/status")) {
    return {};
  }
  const auto object = json::parse(request.body);
  return object ? check_job(*object) : Status();  // what is no JSON the API itself refuses
}

}  // namespace divisi::apps
