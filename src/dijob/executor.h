// Executor: carries out the actions of a plan, and says which the server will never take.
#pragma once

#include "dijob/generation.h"
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
  std::string blocked{};         // why a pod cannot be made at present: a quota, a name in use
  bool made_pods = false;        // some
  bool made_secret = false;      // it was not there
  std::int64_t saved_until = 0;  // the generation whose spec was saved
  std::vector<std::string> unadopted{};  // uids of those that cannot become the job's
  std::vector<std::string> gone{};       // uids of pods that were deleted at once
};

// Loop only. What it creates and deletes is expected of the caches until they show it.
class Executor {
 public:
  Executor(kube::Client& client, kube::Expectations& expected, kube::EventRecorder& recorder,
           std::function<std::string(const std::string& job_uid)> make_secret);

  // `job` is the DIJob that the actions belong to. First what the pods need and what goes, then
  // the pods: one, two, four, ... at a time, and no more after the first that fails. `done` runs
  // once; not after the client is gone.
  void run(Generation generation, const json::Value& job, std::vector<Action> actions,
           std::function<void(Executed)> done);

  std::size_t running() const { return running_; }  // jobs whose actions are carried out

 private:
  struct Run;
  void start(const std::shared_ptr<Run>& run, std::size_t index);
  void next(const std::shared_ptr<Run>& run);
  void create_pod(const std::shared_ptr<Run>& run, const CreatePod& action);
  void delete_pod(const std::shared_ptr<Run>& run, const DeletePod& action);
  void force_pod(const std::shared_ptr<Run>& run, const DeletePod& action);
  void create_service(const std::shared_ptr<Run>& run, const CreateService& action);
  void delete_service(const std::shared_ptr<Run>& run, const DeleteService& action);
  void repair_service(const std::shared_ptr<Run>& run, const RepairService& action);
  void create_secret(const std::shared_ptr<Run>& run, const CreateSecret& action);
  void failed_to_create(const std::shared_ptr<Run>& run, std::string_view kind,
                        const std::string& name, const Status& why);
  void name_holder(const std::shared_ptr<Run>& run, const std::string& pod);
  void adopt(const std::shared_ptr<Run>& run, const Orphan& orphan);
  void save_spec(const std::shared_ptr<Run>& run, const SaveSpec& action);
  void delete_saved(const std::shared_ptr<Run>& run, const DeleteSavedSpec& action);
  void delete_job(const std::shared_ptr<Run>& run);
  void ended(const std::shared_ptr<Run>& run, Status status);

  kube::Client& client_;
  kube::Expectations& expected_;
  kube::EventRecorder& recorder_;
  const std::function<std::string(const std::string& job_uid)> make_secret_;
  std::size_t running_ = 0;
};

// What the caches are expected to show: a service among the pods of its job.
std::string service_expectation(std::string_view name);

}  // namespace divisi::dijob
