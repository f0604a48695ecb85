// SlaveCore: the slave over any TaskRunner.
#pragma once

#include "dist/envelope.h"
#include "dist/peer_client.h"
#include "dist/slave.h"
#include "dist/task_runner.h"
#include "http/server.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace divisi::dist {

class SlaveCore final : public Slave {
 public:
  SlaveCore(io::Reactor& reactor, SlaveOptions options, std::unique_ptr<TaskRunner> runner);
  ~SlaveCore() override;

  Status listen();

  io::Address address() const override { return server_->address(); }
  const std::string& self_token() const override { return options_.self_token; }
  bool connected() const override { return master_ != nullptr; }
  const std::string& master() const override;
  void shutdown(std::function<void()> done) override;

 private:
  // The master of now. A new one has a new object, so what was meant for the old one ends with it.
  struct MasterLink {
    std::string url;
    std::string token;
    std::unique_ptr<PeerClient> client;
    std::unique_ptr<io::Timer> heartbeat;
  };
  using Call = std::shared_ptr<http::ServerCall>;

  void handle(const Call& call);
  std::optional<http::Response> check(const http::Request& request) const;
  std::optional<http::Response> check_master(const http::Request& request) const;

  http::Response connect(const http::Request& request);
  http::Response disconnect(const http::Request& request);
  http::Response new_task(const http::Request& request);
  void learners(const Call& call);
  http::Response ping(const http::Request& request) const;
  http::Response shutdown_asked(const http::Request& request);

  void beat_later();
  void beat();
  void on_outcome(const std::weak_ptr<MasterLink>& from, const std::string& id,
                  TaskOutcome outcome);
  void send_result(const std::shared_ptr<MasterLink>& link, const std::string& id,
                   TaskOutcome outcome);
  void on_result_answer(const std::shared_ptr<MasterLink>& link, const std::string& id,
                        bool completed, const Result<PeerReply>& reply);
  void forget_master(std::string_view why);

  io::Reactor& reactor_;
  SlaveOptions options_;
  std::unique_ptr<TaskRunner> runner_;
  std::shared_ptr<MasterLink> master_;
  bool has_task_ = false;  // run() is in progress
  int farewells_ = 0;      // calls of master_gone() in progress
  bool shutting_down_ = false;
  std::function<void()> on_idle_;  // of shutdown()
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::unique_ptr<http::Server> server_;
};

}  // namespace divisi::dist
