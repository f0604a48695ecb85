#include "dist/peer_client.h"

#include <utility>

namespace divisi::dist {
namespace {

// A heartbeat, a result and a task at the same time.
constexpr std::size_t kConnectionsOfAPeer = 4;

http::ClientOptions client_options(const PeerClient::Options& options) {
  http::ClientOptions client;
  client.server = options.url;
  client.max_connections = kConnectionsOfAPeer;
  client.connect_timeout = options.retry.connect_timeout;
  // Servers of Python close unused connections when they like.
  client.keep_alive = std::chrono::seconds(15);
  return client;
}

bool may_repeat(const std::string& method, Code code) {
  return code == Code::kUnavailable || (code == Code::kTimeout && method != "POST");
}

}  // namespace

Result<http::Url> parse_peer_url(std::string_view text) {
  DIVISI_TRY(http::Url url, http::Url::parse(text.find("://") == std::string_view::npos
                                                 ? fmt::format("http://{}", text)
                                                 : std::string(text)));
  if (url.tls) {
    return failure(Code::kInvalid, "URL '{}': workers speak http, not https; use http://host:port",
                   text);
  }
  return url;
}

PeerClient::PeerClient(io::Reactor& reactor, Options options)
    : reactor_(reactor),
      options_(std::move(options)),
      client_(http::Client::make(reactor, client_options(options_))) {}

void PeerClient::call(std::string method, std::string target, const json::Value& body, Done done) {
  start(std::move(method), std::move(target), body, options_.retry.retries, std::move(done));
}

void PeerClient::call_once(std::string method, std::string target, const json::Value& body,
                           Done done) {
  start(std::move(method), std::move(target), body, 0, std::move(done));
}

void PeerClient::start(std::string method, std::string target, const json::Value& body, int retries,
                       Done done) {
  Pending pending;
  pending.request.method = std::move(method);
  pending.request.target = std::move(target);
  pending.request.headers = {{"Content-Type", "application/json"},
                             {std::string(kChannelHeader), std::to_string(options_.channel)},
                             {std::string(kTokenHeader), options_.token}};
  pending.request.body = json::print(body);
  pending.retries_left = retries;
  pending.done = std::move(done);
  const std::uint64_t id = next_++;
  pending_.emplace(id, std::move(pending));
  attempt(id);
}

void PeerClient::attempt(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  http::CallOptions call;
  call.deadline = options_.retry.connect_timeout + options_.retry.answer_timeout;
  call.limits.max_body_bytes = options_.max_body_bytes;
  found->second.call = client_->fetch(
      found->second.request, call,
      [this, id](Result<http::Response> answer) { on_answer(id, std::move(answer)); });
}

void PeerClient::on_answer(std::uint64_t id, Result<http::Response> answer) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  if (!answer && pending.retries_left > 0 &&
      may_repeat(pending.request.method, answer.error().code())) {
    --pending.retries_left;
    pending.pause = reactor_.after(options_.retry.pause, [this, id] { attempt(id); });
    return;
  }
  const Pending over = std::move(pending);
  pending_.erase(found);
  if (!answer) return over.done(failure(std::move(answer).error()));
  over.done(read_reply(*answer));
}

}  // namespace divisi::dist
