// Request targets and bodies of di-server's first generation: whatever they are, what is understood
// keeps its promises, and what is not is answered in one line of JSON.

#include "json/value.h"
#include "server/first/demand.h"
#include "server/first/gpu_split.h"
#include "server/first/replicas.h"
#include "server/first/route.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace divisi;
using namespace divisi::server;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_refusal(const Status& status) {
  require(status.code() == Code::kInvalid);
  const http::Response answer = first::failed(status);
  require(answer.status == 400);
  const auto body = json::parse(answer.body);
  require(body.has_value() && body->bool_at({"success"}) == false);
  require(answer.body.find('\n') == answer.body.size() - 1);
}

void check_target(std::string_view target) {
  (void)first::find_route(target);
  const auto query = first::parse_query(target);
  if (!query) return check_refusal(query.error());
  const std::size_t most = target.size();
  require(query->space.size() <= most && query->coordinator.size() <= most);
}

void check_size(const std::optional<first::Size>& size) {
  if (!size) return;
  require(size->replicas >= 0 && size->replicas <= first::kMaxReplicas);
  require(size->gpus >= 0 && size->gpus <= first::kMaxGpus);
  require(size->cpus.sign() >= 0 && size->memory.sign() >= 0);
  const std::vector<std::int64_t> nodes{size->replicas % 17, 8, size->replicas % 5};
  const auto pods = first::split_gpus(size->gpus, nodes);
  require(std::accumulate(pods.begin(), pods.end(), 0) == size->gpus);
  require(size->gpus == 0 || std::ranges::all_of(pods, [](int gpus) { return gpus > 0; }));
}

void check_demand(std::string_view body) {
  const auto demand = first::read_demand(body);
  if (!demand) return check_refusal(demand.error());
  check_size(demand->collectors);
  check_size(demand->learners);
}

void check_report(std::string_view body) {
  const auto report = first::read_report(body);
  if (!report) return check_refusal(report.error());
  const std::set<std::string> different(report->pods.begin(), report->pods.end());
  require(different.size() == report->pods.size());
  for (const std::string& pod : report->pods) require(pod.find(':') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = text.find('\n');
  check_target(text.substr(0, line));
  if (line == std::string_view::npos) return 0;
  check_demand(text.substr(line + 1));
  check_report(text.substr(line + 1));
  return 0;
}
