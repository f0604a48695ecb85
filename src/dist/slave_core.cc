#include "dist/slave_core.h"

#include "base/log.h"
#include "dist/token.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

constexpr io::Duration kShortestHeartbeat = std::chrono::milliseconds(200);
constexpr std::size_t kLongestUrl = 512;
constexpr std::size_t kLongestTaskId = 128;
constexpr std::size_t kMostLearners = 4096;

// The path without its query.
std::string_view path_of(const http::Request& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

json::Value object_or_empty(const json::Value* value) {
  return value != nullptr && value->as_object() != nullptr ? *value : json::Value(json::Object{});
}

}  // namespace

SlaveCore::SlaveCore(io::Reactor& reactor, SlaveOptions options, std::unique_ptr<TaskRunner> runner)
    : reactor_(reactor), options_(std::move(options)), runner_(std::move(runner)) {
  if (options_.self_token.empty()) options_.self_token = new_token();
  options_.heartbeat = std::max(options_.heartbeat, kShortestHeartbeat);
}

SlaveCore::~SlaveCore() {
  server_.reset();
  master_.reset();
  runner_.reset();
}

Status SlaveCore::listen() {
  http::ServerOptions server;
  server.address = options_.bind;
  server.limits.max_body_bytes = options_.max_body_bytes;
  server.max_connections = 256;  // one master, and those who try
  server.refusal = [](int status, std::string_view why) { return failed(status, why); };
  auto listening =
      http::Server::listen(reactor_, std::move(server), [this](const Call& call) { handle(call); });
  if (!listening) return std::move(listening).error();
  server_ = *std::move(listening);
  return {};
}

const std::string& SlaveCore::master() const {
  static const std::string nobody;
  return master_ ? master_->url : nobody;
}

void SlaveCore::handle(const Call& call) {
  const http::Request& request = call->request();
  const std::string route = fmt::format("{} {}", request.method, path_of(request));
  if (auto refusal = check(request)) return call->respond(*std::move(refusal));
  if (route == "POST /connect") return call->respond(connect(request));
  if (route == "DELETE /disconnect") return call->respond(disconnect(request));
  if (route == "POST /task/new") return call->respond(new_task(request));
  if (route == "POST /learners") return learners(call);
  if (route == "GET /ping") return call->respond(ping(request));
  if (route == "DELETE /shutdown") return call->respond(shutdown_asked(request));
  call->respond(failed(404,
                       "no such route; a slave serves POST /connect, DELETE /disconnect, "
                       "POST /task/new, GET /ping, DELETE /shutdown"));
}

std::optional<http::Response> SlaveCore::check(const http::Request& request) const {
  if (shutting_down_) {
    return refused(401, ReplyCode::kShuttingDown, "Slave is shutting down.");
  }
  return check_channel(request, options_.channel);
}

std::optional<http::Response> SlaveCore::check_master(const http::Request& request) const {
  const std::string_view token = request.headers.get(kTokenHeader);
  if (token.empty()) {
    return refused(400, ReplyCode::kNoMasterToken, "Master token not found in the headers.");
  }
  if (!master_) return refused(400, ReplyCode::kNotConnected, "Slave is not connected.");
  if (!same_token(token, master_->token)) {
    return refused(403, ReplyCode::kWrongMasterToken, "Master token does not match.");
  }
  return std::nullopt;
}

http::Response SlaveCore::connect(const http::Request& request) {
  const std::string_view token = request.headers.get(kTokenHeader);
  if (token.empty()) {
    return refused(400, ReplyCode::kNoMasterToken, "Master token not found in the headers.");
  }
  if (master_) {
    return refused(400, ReplyCode::kAlreadyConnected, "Slave is already connected to a master.");
  }
  const auto body = read_body(request.body);
  if (!body) return failed(400, body.error().message());
  const std::string_view address = body->string_at({"master", "address"});
  if (address.empty() || address.size() > kLongestUrl) {
    return failed(400, "connect: master.address must be the master's URL, http://host:port");
  }
  auto url = parse_peer_url(address);
  if (!url) return failed(400, url.error().message());
  if (options_.accept_master &&
      !options_.accept_master(std::string(address), object_or_empty(body->find("data")))) {
    return refused(403, ReplyCode::kConnectionRefused, "Connection refused.");
  }
  auto link = std::make_shared<MasterLink>();
  link->url = address;
  link->token = token;
  link->client = std::make_unique<PeerClient>(
      reactor_, PeerClient::Options{.url = *std::move(url),
                                    .channel = options_.channel,
                                    .token = link->token,
                                    .retry = options_.retry,
                                    .max_body_bytes = options_.max_body_bytes});
  master_ = std::move(link);
  log::info("connected to master {}", log::printable(master_->url));
  beat_later();
  return success("Connect success.");
}

http::Response SlaveCore::disconnect(const http::Request& request) {
  if (auto refusal = check_master(request)) return *std::move(refusal);
  const auto body = read_body(request.body);
  if (!body) return failed(400, body.error().message());
  if (options_.accept_disconnect &&
      !options_.accept_disconnect(object_or_empty(body->find("data")))) {
    return refused(403, ReplyCode::kDisconnectionRefused, "Disconnection refused.");
  }
  forget_master("it disconnected");
  return success("Disconnect success.");
}

http::Response SlaveCore::new_task(const http::Request& request) {
  if (auto refusal = check_master(request)) return *std::move(refusal);
  const auto body = read_body(request.body);
  if (!body) return failed(400, body.error().message());
  if (has_task_ || farewells_ > 0) {
    return refused(400, ReplyCode::kTaskExists, "Slave already has a task.");
  }
  std::string id(body->string_at({"task", "id"}));
  if (id.empty() || id.size() > kLongestTaskId) {
    return refused(403, ReplyCode::kTaskRefused, "Task refused: task.id must be a UUID.");
  }
  has_task_ = true;
  runner_->run(object_or_empty(body->find("data")),
               [this, from = std::weak_ptr(master_), id = std::move(id)](TaskOutcome outcome) {
                 on_outcome(from, id, std::move(outcome));
               });
  return success("Task received!");
}

void SlaveCore::learners(const Call& call) {
  const http::Request& request = call->request();
  if (auto refusal = check_master(request)) return call->respond(*std::move(refusal));
  const auto body = read_body(request.body);
  if (!body) return call->respond(failed(400, body.error().message()));
  const json::Array* list = body->as_array();
  const auto is_url = [](const json::Value& each) {
    return each.as_string() != nullptr && each.as_string()->size() <= kLongestUrl;
  };
  if (list == nullptr || list->size() > kMostLearners || !std::ranges::all_of(*list, is_url)) {
    return call->respond(failed(400, "learners: the body must be a list of URLs"));
  }
  std::vector<std::string> urls;
  for (const json::Value& each : *list) urls.push_back(*each.as_string());
  const bool served = runner_->learners(urls, [call](const std::vector<std::string>& unusable) {
    json::Array names(unusable.begin(), unusable.end());
    call->respond(success("Success.", json::Object{{"failed", std::move(names)}}));
  });
  if (!served) call->respond(failed(404, "this slave is no aggregator: it has no learners"));
}

http::Response SlaveCore::ping(const http::Request& request) const {
  if (auto refusal = check_self_token(request, options_.self_token)) return *std::move(refusal);
  return success("PONG!");
}

http::Response SlaveCore::shutdown_asked(const http::Request& request) {
  if (auto refusal = check_self_token(request, options_.self_token)) return *std::move(refusal);
  shutdown([hook = options_.on_shutdown] {
    if (hook) hook();
  });
  return success("Success.");
}

void SlaveCore::shutdown(std::function<void()> done) {
  if (shutting_down_) {
    // The first caller's `done` runs too.
    on_idle_ = [first = std::move(on_idle_), done = std::move(done)] {
      if (first) first();
      done();
    };
  } else {
    shutting_down_ = true;
    on_idle_ = std::move(done);
    forget_master("this slave shuts down");
  }
  if (farewells_ > 0) return;  // it comes after the task in progress
  reactor_.post([this, weak = std::weak_ptr(alive_)] {
    if (!weak.lock()) return;
    if (const auto run = std::exchange(on_idle_, nullptr)) run();
  });
}

void SlaveCore::beat_later() {
  master_->heartbeat = reactor_.after(options_.heartbeat, [this] { beat(); });
}

void SlaveCore::beat() {
  const auto link = master_;
  link->client->call("GET", "/slave/heartbeat", json::Object{},
                     [this, link = link.get()](const Result<PeerReply>& reply) {
                       if (master_.get() != link) return;
                       if (reply && reply->success) return beat_later();
                       // 403: the master has forgotten this slave, so the connection is over.
                       forget_master(reply ? reply->text() : reply.error().message());
                     });
}

void SlaveCore::on_outcome(const std::weak_ptr<MasterLink>& from, const std::string& id,
                           TaskOutcome outcome) {
  // Before the result is sent: its receiver may send the next task at once.
  has_task_ = false;
  if (outcome.result.is_null()) outcome.result = json::Object{};
  const auto link = from.lock();
  if (link && link == master_) send_result(link, id, std::move(outcome));
}

void SlaveCore::send_result(const std::shared_ptr<MasterLink>& link, const std::string& id,
                            TaskOutcome outcome) {
  const bool completed = outcome.completed;
  const json::Value body =
      json::Object{{"task", json::Object{{"id", id}}}, {"result", std::move(outcome.result)}};
  link->client->call(
      "PUT", completed ? "/slave/task/complete" : "/slave/task/fail", body,
      [this, weak = std::weak_ptr(link), id, completed](const Result<PeerReply>& reply) {
        if (const auto alive = weak.lock(); alive && alive == master_) {
          on_result_answer(alive, id, completed, reply);
        }
      });
}

void SlaveCore::on_result_answer(const std::shared_ptr<MasterLink>& link, const std::string& id,
                                 bool completed, const Result<PeerReply>& reply) {
  if (reply && reply->success) return;
  const std::string why = reply ? reply->text() : reply.error().message();
  if (!reply || !completed || reply->is(ReplyCode::kUnknownSlaveToken)) {
    // Without heartbeats the master fails the task, which is better than waiting for it.
    return forget_master(fmt::format("the result of a task cannot be delivered: {}", why));
  }
  log::warning("the master refused the result of task {}: {}; reported as failed", id, why);
  send_result(
      link, id,
      {.completed = false, .result = json::Object{{"message", "the result was refused: " + why}}});
}

void SlaveCore::forget_master(std::string_view why) {
  const auto link = std::exchange(master_, nullptr);
  if (!link) return;
  log::info("left master {}: {}", log::printable(link->url), why);
  link->heartbeat.reset();
  ++farewells_;
  runner_->master_gone([this] {
    if (--farewells_ > 0 || !shutting_down_) return;
    if (const auto run = std::exchange(on_idle_, nullptr)) run();
  });
}

Result<std::unique_ptr<Slave>> Slave::start(io::Reactor& reactor, SlaveOptions options,
                                            std::shared_ptr<TaskHandler> handler) {
  auto slave = std::make_unique<SlaveCore>(reactor, std::move(options),
                                           make_thread_runner(reactor, std::move(handler)));
  if (Status status = slave->listen(); !status.ok()) return failure(std::move(status));
  return slave;
}

}  // namespace divisi::dist
