// MasterCore: the master, its server and its table of slaves.
#pragma once

#include "dist/envelope.h"
#include "dist/master.h"
#include "dist/peer_client.h"
#include "http/server.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dist {

class MasterCore final : public Master {
 public:
  MasterCore(io::Reactor& reactor, MasterOptions options);
  ~MasterCore() override;

  Status listen();

  io::Address address() const override { return server_->address(); }
  const std::string& announced() const override { return announced_; }
  const std::string& self_token() const override { return options_.self_token; }
  void connect(const std::string& url, json::Value data, std::function<void(Status)> done) override;
  void disconnect(const std::string& url, std::function<void(Status)> done) override;
  std::vector<std::string> slaves() const override;
  void new_task(const std::string& url, json::Value data, io::Duration limit,
                std::function<void(TaskReport)> done) override;
  void send_learners(const std::string& url, const std::vector<std::string>& learners,
                     std::function<void(Result<std::vector<std::string>>)> done) override;
  void shutdown(std::function<void()> done) override;

 private:
  struct Task {
    TaskState state = TaskState::kIdle;
    std::function<void(TaskReport)> done;
    std::unique_ptr<io::Timer> limit;
  };
  struct Link {
    std::string url;
    std::string token;
    bool connected = false;  // false: POST /connect is on its way
    io::TimePoint last_heard{};
    std::map<std::string, Task> tasks;  // by id: those that have not ended
    std::function<void(Status)> on_connected;
    std::unique_ptr<PeerClient> client;
  };
  using Links = std::map<std::string, std::shared_ptr<Link>>;

  void handle(const std::shared_ptr<http::ServerCall>& call);
  http::Response answer(const http::Request& request);
  http::Response result(Link& link, const http::Request& request, bool completed);
  http::Response self_route(const http::Request& request, std::string_view route);
  std::shared_ptr<Link> by_token(std::string_view token) const;

  void on_connect_answer(const std::shared_ptr<Link>& link, const Result<PeerReply>& reply);
  void on_task_answer(const std::shared_ptr<Link>& link, const std::string& id,
                      const Result<PeerReply>& reply);
  void end_task(Link& link, const std::string& id, TaskReport report);
  // Out of the table: nothing of it is accepted any more, and its tasks have failed.
  std::shared_ptr<Link> remove(const std::string& url, std::string_view why);
  void leave(const std::shared_ptr<Link>& link, std::function<void(Status)> done);
  void lose(const std::string& url, std::string_view why);
  void check();
  // Later, on the loop, unless the master is gone by then.
  void post(std::function<void()> work);

  io::Reactor& reactor_;
  MasterOptions options_;
  std::string announced_;
  Links links_;
  Links leaving_;  // by token: DELETE /disconnect is on its way
  bool shutting_down_ = false;
  std::function<void()> on_empty_;  // of shutdown()
  std::unique_ptr<io::Timer> check_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::unique_ptr<http::Server> server_;
};

}  // namespace divisi::dist
