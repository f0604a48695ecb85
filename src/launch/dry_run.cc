#include "launch/dry_run.h"

#include <string>
#include <utility>

namespace divisi::launch {
namespace {

template <class Texts>
json::Value list_of(const Texts& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

json::Value ids_of(const std::vector<int>& ids) {
  json::Array array;
  for (const int id : ids) array.emplace_back(id);
  return array;
}

json::Value seconds(std::chrono::milliseconds time) {
  if (time.count() % 1000 == 0) return {std::int64_t{time.count() / 1000}};
  return {static_cast<double>(time.count()) / 1000};
}

std::string_view name(runtime::WorkerLost policy) {
  switch (policy) {
    case runtime::WorkerLost::kFail: return "fail";
    case runtime::WorkerLost::kIgnore: return "ignore";
    case runtime::WorkerLost::kRestart: return "restart";
  }
  return "fail";
}

json::Value describe_worker(const runtime::WorkerConfig& worker) {
  return json::Object{
      {"local_id", worker.local_id},
      {"node_id", worker.node_id},
      {"listen", worker.listen},
      {"dial", list_of(worker.dial)},
      {"attach_to", list_of(worker.attach_to)},
      {"labels", list_of(worker.labels)},
      {"waits_for", ids_of(worker.linked_nodes)},
  };
}

}  // namespace

json::Value describe(const DitaskOptions& options, const std::string& main, const LaunchPlan& plan,
                     const std::vector<runtime::WorkerConfig>& workers) {
  const runtime::WorkerConfig& first = workers.front();
  json::Array list;
  for (const runtime::WorkerConfig& worker : workers) list.push_back(describe_worker(worker));
  json::Object what;
  if (options.command.empty()) {
    what = {{"package", options.package}, {"main", main}};
  } else {
    what = {{"command", list_of(options.command)}};
  }
  json::Object rest = {
      {"platform", platform_name(plan.platform)},
      {"rank", plan.rank},
      {"parallel_workers", plan.workers},
      {"protocol", runtime::protocol_name(plan.protocol)},
      {"topology", runtime::topology_name(plan.topology)},
      {"job_id", first.job_id},
      {"job_nodes", plan.job_nodes == 0 ? json::Value() : json::Value(plan.job_nodes)},
      {"secret", first.secret.empty() ? "none" : "set"},
      {"allow_pickle", first.allow_pickle},
      {"codec", first.codec},
      {"auto_recover", first.auto_recover},
      {"max_retries", first.max_retries == runtime::kUnlimitedRetries
                          ? json::Value()
                          : json::Value(first.max_retries)},
      {"worker_lost", name(options.worker_lost)},
      {"join_timeout", seconds(options.join_timeout)},
      {"send_timeout", seconds(first.send_timeout)},
      {"startup_interval", seconds(options.startup_interval)},
      {"log_level", first.log_level},
      {"log_dir", options.log_dir.empty() ? json::Value() : json::Value(options.log_dir)},
      {"workers", std::move(list)},
  };
  what.insert(what.end(), std::make_move_iterator(rest.begin()),
              std::make_move_iterator(rest.end()));
  return what;
}

}  // namespace divisi::launch
