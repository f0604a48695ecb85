// Executor: carries out the actions of a plan, and says which the server will never take.
#pragma once

#include "dijob/plan.h"
#include "kube/client.h"
#include "kube/expectations.h"
#include "kube/recorder.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::dijob {

struct Executed {
  Status status{};  // the first thing that went wrong and may go right another time
  std::vector<RefusedPod> refused{};
  bool made_secret = false;
  std::vector<std::string> gone{};  // uids of pods that were deleted at once
};

// Loop only. What it creates and deletes is expected of the caches until they show it.
class Executor {
 public:
  Executor(kube::Client& client, kube::Expectations& expected, kube::EventRecorder& recorder,
           std::function<std::string()> make_secret);

  // `job` is the DIJob that the actions belong to. First what the pods need and what goes, then
  // the pods: one, two, four, ... at a time, and no more after the first that fails. `done` runs
  // once; not after the client is gone.
  void run(const json::Value& job, std::vector<Action> actions, std::function<void(Executed)> done);

  std::size_t running() const { return running_; }  // jobs whose actions are carried out

 private:
  struct Run;
  void start(const std::shared_ptr<Run>& run, std::size_t index);
  void next(const std::shared_ptr<Run>& run);
  void create_pod(const std::shared_ptr<Run>& run, const CreatePod& action);
  void delete_pod(const std::shared_ptr<Run>& run, const DeletePod& action);
  void create_service(const std::shared_ptr<Run>& run, const CreateService& action);
  void delete_service(const std::shared_ptr<Run>& run, const DeleteService& action);
  void create_secret(const std::shared_ptr<Run>& run);
  void delete_job(const std::shared_ptr<Run>& run);
  void ended(const std::shared_ptr<Run>& run, Status status);

  kube::Client& client_;
  kube::Expectations& expected_;
  kube::EventRecorder& recorder_;
  const std::function<std::string()> make_secret_;
  std::size_t running_ = 0;
};

// What the caches are expected to show: a service among the pods of its job.
std::string service_expectation(std::string_view name);

}  // namespace divisi::dijob
