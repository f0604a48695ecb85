// Request targets and bodies of di-server: whatever they are, what is understood keeps its
// promises.

#include "json/patch.h"
#include "server/body.h"
#include "server/envelope.h"
#include "server/profilings.h"
#include "server/resize.h"
#include "server/route.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace divisi;
using namespace divisi::server;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_route(std::string_view target) {
  const auto route = parse_route(target);
  if (!route) {
    const http::Response answer = failed(route.error());
    require(answer.status == 400 || answer.status == 404);
    require(json::parse(answer.body).has_value());
    return;
  }
  // An id that was taken is taken again, in both of its forms.
  const JobId& id = route->id;
  require(!id.space.empty() && !id.name.empty() && id.key().size() <= 320);
  require(parse_job_id(id.key()).has_value());
}

void check_resize(std::string_view body, const json::Value& job_object) {
  const auto add = read_resize(body, Direction::kAdd);
  const auto remove = read_resize(body, Direction::kDelete);
  require(add.has_value() == remove.has_value());
  if (!add) return require(add.error().code() == Code::kInvalid);
  require(add->by > 0 && remove->by == -add->by);
  const auto job = dijob::read_job(job_object);
  for (const auto& request : {*add, *remove}) {
    const auto patch = resize(job_object, *job, request, {});
    if (!patch) continue;
    json::Value resized = job_object;
    json::apply_merge_patch(resized, patch->body);
    require(dijob::read_job(resized)->want() == job->want() + request.by);
  }
}

void check_report(std::string_view body) {
  const auto report = read_object(body);
  if (!report) return require(report.error().code() == Code::kInvalid);
  json::Value status;
  json::apply_merge_patch(status, profilings_patch(*report));
  require(json::parse(json::print(status)).has_value());
  // Merging a report with itself changes nothing.
  json::Value twice = *report;
  merge_reports(twice, *report);
  require(twice == *report);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const json::Value kJob = *json::parse(R"({"metadata": {"name": "j", "namespace": "n"},
      "spec": {"tasks": [
        {"type": "learner", "name": "l", "template": {"spec": {"containers": [{"name": "c"}]}}},
        {"type": "collector", "name": "c", "replicas": 5, "template": {"spec": {"containers": [{"name": "c"}]}}}]}})");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = text.find('\n');
  check_route(text.substr(0, line));
  if (line == std::string_view::npos) return 0;
  check_resize(text.substr(line + 1), kJob);
  check_report(text.substr(line + 1));
  return 0;
}
