#include "dist/master_core.h"

#include "base/log.h"
#include "dist/ids.h"
#include "dist/token.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

constexpr io::Duration kShortestCheck = std::chrono::milliseconds(100);
// One worker keeps a few connections open.
constexpr std::size_t kMostConnections = 8192;

std::string_view target_path(const http::Request& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

std::string announced_url(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

bool is_any_address(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::" || host == "*";
}

}  // namespace

MasterCore::MasterCore(io::Reactor& reactor, MasterOptions options)
    : reactor_(reactor), options_(std::move(options)) {
  if (options_.self_token.empty()) options_.self_token = new_token();
  options_.check = std::max(options_.check, kShortestCheck);
}

MasterCore::~MasterCore() {
  server_.reset();
  links_.clear();
  leaving_.clear();
}

Status MasterCore::listen() {
  http::ServerOptions server;
  server.address = options_.bind;
  server.limits.max_body_bytes = options_.max_body_bytes;
  server.max_connections = kMostConnections;
  server.refusal = [](int status, std::string_view why) { return failed(status, why); };
  auto listening =
      http::Server::listen(reactor_, std::move(server),
                           [this](const std::shared_ptr<http::ServerCall>& call) { handle(call); });
  if (!listening) return std::move(listening).error();
  server_ = *std::move(listening);
  const std::string host = !options_.announce.empty()           ? options_.announce
                           : is_any_address(options_.bind.host) ? own_address()
                                                                : options_.bind.host;
  announced_ = announced_url(host, server_->address().port);
  check_ = reactor_.after(options_.check, [this] { check(); });
  return {};
}

// --- what slaves ask ---

void MasterCore::handle(const std::shared_ptr<http::ServerCall>& call) {
  call->respond(answer(call->request()));
}

http::Response MasterCore::answer(const http::Request& request) {
  if (shutting_down_) {
    return refused(401, ReplyCode::kShuttingDown, "Master is shutting down.");
  }
  if (auto refusal = check_channel(request, options_.channel)) return *std::move(refusal);
  const std::string route = fmt::format("{} {}", request.method, target_path(request));
  const bool heartbeat = route == "GET /slave/heartbeat";
  const bool complete = route == "PUT /slave/task/complete";
  if (!heartbeat && !complete && route != "PUT /slave/task/fail") return self_route(request, route);

  const std::string_view token = request.headers.get(kTokenHeader);
  if (token.empty()) {
    return refused(400, ReplyCode::kNoSlaveToken, "Slave token not found in the headers.");
  }
  const auto link = by_token(token);
  if (!link) {
    return refused(403, ReplyCode::kUnknownSlaveToken, "Slave token is unknown: not connected.");
  }
  link->last_heard = reactor_.now();
  return heartbeat ? success("Received!") : result(*link, request, complete);
}

http::Response MasterCore::self_route(const http::Request& request, std::string_view route) {
  const bool stop = route == "DELETE /shutdown";
  if (!stop && route != "GET /ping") {
    return failed(404,
                  "no such route; a master serves GET /slave/heartbeat, PUT "
                  "/slave/task/complete, PUT /slave/task/fail, GET /ping, DELETE /shutdown");
  }
  if (auto refusal = check_self_token(request, options_.self_token)) return *std::move(refusal);
  if (!stop) return success("PONG!");
  shutdown([hook = options_.on_shutdown] {
    if (hook) hook();
  });
  return success("Success.");
}

http::Response MasterCore::result(Link& link, const http::Request& request, bool completed) {
  auto body = read_body(request.body);
  if (!body) {
    // Its sender will not send another one for that task: what it runs is over.
    while (!link.tasks.empty()) {
      end_task(link, link.tasks.begin()->first,
               {.state = TaskState::kFailed,
                .why = "its result cannot be read: " + body.error().message()});
    }
    return failed(400, body.error().message());
  }
  const std::string id(body->string_at({"task", "id"}));
  if (id.empty()) {
    return refused(200, ReplyCode::kBadTaskData, "Task data is invalid: no task.id.");
  }
  // While it is being started, too: the result may overtake the answer to POST /task/new. One for
  // an unknown task is a repetition, or comes too late; its sender need not know.
  if (link.tasks.contains(id)) {
    json::Value* given = body->find("result");
    json::Value value = given != nullptr ? std::move(*given) : json::Value(json::Object{});
    std::string why =
        completed ? std::string() : log::printable(std::string(value.string_at({"message"})));
    if (!completed && why.empty()) why = "its worker says so";
    end_task(link, id,
             {.state = completed ? TaskState::kCompleted : TaskState::kFailed,
              .result = std::move(value),
              .why = std::move(why)});
  }
  return success("Result received!");
}

std::shared_ptr<MasterCore::Link> MasterCore::by_token(std::string_view token) const {
  std::shared_ptr<Link> found;
  for (const auto& [url, link] : links_) {
    if (same_token(token, link->token)) found = link;  // all are looked at, always
  }
  return found;
}

// --- what the coordinator asks ---

void MasterCore::connect(const std::string& url, json::Value data,
                         std::function<void(Status)> done) {
  auto parsed = parse_peer_url(url);
  Status problem;
  if (!parsed) {
    problem = parsed.error();
  } else if (shutting_down_) {
    problem = {Code::kClosed, "the master is shutting down"};
  } else if (links_.contains(url)) {
    problem = make_status(Code::kAlreadyExists, "{} is connected already", url);
  }
  if (!problem.ok()) {
    return post([done = std::move(done), problem = std::move(problem)] { done(problem); });
  }
  auto link = std::make_shared<Link>();
  link->url = url;
  link->token = new_token();
  link->on_connected = std::move(done);
  link->last_heard = reactor_.now();
  link->client = std::make_unique<PeerClient>(
      reactor_, PeerClient::Options{.url = *std::move(parsed),
                                    .channel = options_.channel,
                                    .token = link->token,
                                    .retry = options_.retry,
                                    .max_body_bytes = options_.max_body_bytes});
  links_.emplace(url, link);
  const json::Value body =
      json::Object{{"master", json::Object{{"address", announced_}}}, {"data", std::move(data)}};
  link->client->call("POST", "/connect", body,
                     [this, weak = std::weak_ptr(link)](const Result<PeerReply>& reply) {
                       if (const auto alive = weak.lock()) on_connect_answer(alive, reply);
                     });
}

void MasterCore::on_connect_answer(const std::shared_ptr<Link>& link,
                                   const Result<PeerReply>& reply) {
  const auto done = std::exchange(link->on_connected, nullptr);
  if (reply && reply->success) {
    link->connected = true;
    link->last_heard = reactor_.now();
    return done({});
  }
  links_.erase(link->url);
  if (!reply) return done(reply.error());
  done(make_status(Code::kUnavailable, "connecting to {}: {}", link->url, reply->text()));
}

void MasterCore::disconnect(const std::string& url, std::function<void(Status)> done) {
  const auto found = links_.find(url);
  const bool was_connected = found != links_.end() && found->second->connected;
  const auto link = remove(url, "disconnected");
  if (!was_connected) {
    Status status = link ? Status() : make_status(Code::kNotFound, "{} is not connected", url);
    return post([done = std::move(done), status = std::move(status)] { done(status); });
  }
  leave(link, std::move(done));
}

void MasterCore::leave(const std::shared_ptr<Link>& link, std::function<void(Status)> done) {
  leaving_.emplace(link->token, link);
  link->client->call_once("DELETE", "/disconnect", json::Object{{"data", json::Object{}}},
                          [this, alive = std::weak_ptr(alive_), token = link->token,
                           done = std::move(done)](const Result<PeerReply>& reply) {
                            const auto gone = leaving_.extract(token);
                            Status status = !reply ? reply.error()
                                            : !reply->success
                                                ? Status(Code::kUnavailable, reply->text())
                                                : Status();
                            done(status);
                            if (alive.expired() || !leaving_.empty()) return;
                            if (const auto run = std::exchange(on_empty_, nullptr)) run();
                          });
}

std::vector<std::string> MasterCore::slaves() const {
  std::vector<std::string> urls;
  for (const auto& [url, link] : links_) {
    if (link->connected) urls.push_back(url);
  }
  return urls;
}

void MasterCore::new_task(const std::string& url, json::Value data, io::Duration limit,
                          std::function<void(TaskReport)> done) {
  const auto found = links_.find(url);
  if (found == links_.end() || !found->second->connected) {
    return post([done = std::move(done), url] {
      done({.state = TaskState::kStartFailed, .why = url + " is not connected", .lost = true});
    });
  }
  const auto link = found->second;
  const std::string id = new_uuid();
  Task& task = link->tasks[id];
  task.state = TaskState::kStarting;
  task.done = std::move(done);
  if (limit > io::Duration::zero()) {
    task.limit = reactor_.after(limit, [this, url, limit] {
      lose(url, fmt::format("a task has not ended within {:g} s",
                            std::chrono::duration<double>(limit).count()));
    });
  }
  const json::Value body =
      json::Object{{"task", json::Object{{"id", id}}}, {"data", std::move(data)}};
  link->client->call("POST", "/task/new", body,
                     [this, weak = std::weak_ptr(link), id](const Result<PeerReply>& reply) {
                       if (const auto alive = weak.lock()) on_task_answer(alive, id, reply);
                     });
}

void MasterCore::on_task_answer(const std::shared_ptr<Link>& link, const std::string& id,
                                const Result<PeerReply>& reply) {
  const auto found = link->tasks.find(id);
  if (found == link->tasks.end()) return;  // its result was faster
  if (reply && reply->success) {
    found->second.state = TaskState::kStarted;
    return;
  }
  // A slave that cannot be reached after all retries is gone; one that knows this master no more
  // has been restarted, or belongs to another one.
  const bool lost =
      !reply || reply->is(ReplyCode::kNotConnected) || reply->is(ReplyCode::kWrongMasterToken);
  const std::string why = reply ? reply->text() : reply.error().message();
  end_task(*link, id, {.state = TaskState::kStartFailed, .why = why, .lost = lost});
  if (lost) lose(link->url, why);
}

void MasterCore::send_learners(const std::string& url, const std::vector<std::string>& learners,
                               std::function<void(Result<std::vector<std::string>>)> done) {
  const auto found = links_.find(url);
  if (found == links_.end() || !found->second->connected) {
    return post([done = std::move(done), url] {
      done(failure(Code::kNotFound, "{} is not connected", url));
    });
  }
  const json::Value body = json::Array(learners.begin(), learners.end());
  found->second->client->call(
      "POST", "/learners", body, [url, done = std::move(done)](const Result<PeerReply>& reply) {
        if (!reply) return done(failure(reply.error()));
        if (!reply->success) {
          return done(
              failure(Code::kUnavailable, "sending the learners to {}: {}", url, reply->text()));
        }
        std::vector<std::string> unusable;
        const json::Value* list = reply->data.find("failed");
        if (list != nullptr && list->as_array() != nullptr) {
          for (const json::Value& each : *list->as_array()) {
            if (each.as_string() != nullptr) unusable.push_back(*each.as_string());
          }
        }
        done(std::move(unusable));
      });
}

void MasterCore::shutdown(std::function<void()> done) {
  shutting_down_ = true;
  check_.reset();
  on_empty_ = [first = std::move(on_empty_), done = std::move(done)] {
    if (first) first();
    done();
  };
  std::vector<std::string> urls;
  for (const auto& [url, link] : links_) urls.push_back(url);
  for (const std::string& url : urls) disconnect(url, [](const Status&) {});
  if (!leaving_.empty()) return;
  post([this] {
    if (const auto run = std::exchange(on_empty_, nullptr)) run();
  });
}

// --- the table ---

void MasterCore::end_task(Link& link, const std::string& id, TaskReport report) {
  auto node = link.tasks.extract(id);
  if (node.empty()) return;
  post([done = std::move(node.mapped().done), report = std::move(report)] { done(report); });
}

std::shared_ptr<MasterCore::Link> MasterCore::remove(const std::string& url, std::string_view why) {
  auto node = links_.extract(url);
  if (node.empty()) return nullptr;
  auto link = node.mapped();
  while (!link->tasks.empty()) {
    end_task(*link, link->tasks.begin()->first,
             {.state = TaskState::kFailed, .why = fmt::format("{}: {}", url, why), .lost = true});
  }
  if (auto waiting = std::exchange(link->on_connected, nullptr)) {
    post([waiting = std::move(waiting), text = fmt::format("{}: {}", url, why)] {
      waiting({Code::kCancelled, text});
    });
  }
  return link;
}

void MasterCore::lose(const std::string& url, std::string_view why) {
  const auto link = remove(url, why);
  if (!link) return;
  // It may be alive; then it shall be free for the next master at once.
  leave(link, [](const Status&) {});
  log::warning("slave {} is lost: {}", log::printable(url), why);
  post([this, url] {
    if (options_.on_lost) options_.on_lost(url);
  });
}

void MasterCore::check() {
  std::vector<std::string> silent;
  for (const auto& [url, link] : links_) {
    if (link->connected && reactor_.now() - link->last_heard > options_.tolerance) {
      silent.push_back(url);
    }
  }
  const double seconds = std::chrono::duration<double>(options_.tolerance).count();
  for (const std::string& url : silent) lose(url, fmt::format("no heartbeat for {:g} s", seconds));
  check_ = reactor_.after(options_.check, [this] { check(); });
}

void MasterCore::post(std::function<void()> work) {
  reactor_.post([weak = std::weak_ptr(alive_), work = std::move(work)] {
    if (weak.lock()) work();
  });
}

Result<std::unique_ptr<Master>> Master::start(io::Reactor& reactor, MasterOptions options) {
  auto master = std::make_unique<MasterCore>(reactor, std::move(options));
  if (Status status = master->listen(); !status.ok()) return failure(std::move(status));
  return master;
}

}  // namespace divisi::dist
