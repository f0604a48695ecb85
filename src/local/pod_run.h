// PodRun: one pod from its creation to its end, for Kubelet. Loop only.
#pragma once

#include "io/reactor.h"
#include "kube/memory/api.h"
#include "local/container.h"
#include "local/pod_plan.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::local {

class Kubelet;

class PodRun {
 public:
  PodRun(io::Reactor& reactor, kube::MemoryApi& api, Kubelet& kubelet, std::string key,
         std::string address);
  ~PodRun();  // kills its processes

  const std::string& uid() const noexcept { return uid_; }
  // Whether it waits for a ConfigMap or a Secret.
  bool waits() const noexcept { return stage_ == Stage::kWaiting; }

  void begin();
  // SIGTERM to every container; the pod is removed when all have ended.
  void terminate();

 private:
  enum class Stage { kWaiting, kInit, kRunning, kEnded };
  struct State {  // of one container
    std::unique_ptr<Container> process{};
    std::string started{};
    std::string finished{};
    int exit_code = 0;
    int signal = 0;
    int restarts = 0;
    bool ended = false;
    std::string waiting = "PodInitializing";
    std::string message{};
    std::vector<int> gpus{};
    std::unique_ptr<io::Timer> restart_timer{};
  };

  Status prepare();
  void start_next_init();
  void start_containers();
  Status start(const ContainerPlan& plan, State& state, bool init, std::size_t index);
  std::vector<std::pair<std::string, std::string>> environment(const ContainerPlan& plan,
                                                               State& state);
  void on_end(bool init, std::size_t index, io::ExitStatus status);
  bool restarts(const State& state) const;
  void restart_later(std::size_t index);
  void settle();
  void cannot_run(const Status& why);
  void write_status(std::string_view phase, std::string_view reason = {},
                    std::string_view message = {});
  void remove_object();
  json::Value pod() const;

  io::Reactor& reactor_;
  kube::MemoryApi& api_;
  Kubelet& kubelet_;
  const std::string key_;
  const std::string address_;
  std::string uid_;
  std::string name_;
  std::string folder_;
  PodPlan plan_;
  Stage stage_ = Stage::kWaiting;
  bool terminating_ = false;
  std::unique_ptr<io::Timer> grace_timer_;
  std::vector<State> init_;
  std::vector<State> containers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::local
