#include "kube/transport.h"

#include "kube/config.h"
#include "kube/credentials.h"
#include "kube/metrics.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

namespace divisi::kube {
namespace {

// Watches and streams: each open one is a connection; the server ends those of a client long
// before so many are reached.
constexpr std::size_t kMaxStreams = 1024;
constexpr std::size_t kLeaseConnections = 2;
// Enough for any Status; an answer 401 is kept until it is known whether it counts.
constexpr std::size_t kRefusalBytes = 64 << 10;

class HttpTransport;

// One request with its credentials, repeated once with newer ones when they are refused.
class AuthorizedCall final : public http::ResponseHandler,
                             public std::enable_shared_from_this<AuthorizedCall> {
 public:
  AuthorizedCall(io::Reactor& reactor, Credentials& credentials, http::Client& client,
                 http::Request request, http::CallOptions options,
                 std::shared_ptr<http::ResponseHandler> handler, std::function<void(int)> count)
      : reactor_(reactor),
        credentials_(credentials),
        client_(client),
        request_(std::move(request)),
        options_(options),
        handler_(std::move(handler)),
        count_(std::move(count)) {}

  void begin() {
    credentials_.get([weak = weak_from_this()](Result<RequestAuth> auth) {
      if (const auto self = weak.lock()) self->authorized(std::move(auth));
    });
  }

  void cancel() {
    call_.reset();
    handler_.reset();
  }
  http::Call* call() noexcept { return call_.get(); }

  void on_head(http::ResponseHead head) override {
    count_(head.status);
    has_head_ = true;
    if (head.status == 401 && !repeated_) {
      refusal_ = std::move(head);
      return;
    }
    if (head.status != 401) credentials_.accepted(version_);
    handler_->on_head(std::move(head));
  }

  bool on_body(std::string_view piece) override {
    if (!refusal_) return handler_->on_body(piece);
    refusal_text_.append(
        piece.substr(0, kRefusalBytes - std::min(kRefusalBytes, refusal_text_.size())));
    return true;
  }

  void on_upgrade(std::shared_ptr<io::Stream> stream, std::string rest) override {
    handler_->on_upgrade(std::move(stream), std::move(rest));
  }

  void on_done(Status status) override {
    if (!std::exchange(has_head_, false)) count_(0);
    if (refusal_ && status.ok()) {
      repeated_ = true;
      credentials_.refused(version_);
      return begin();
    }
    finish(std::move(status));
  }

 private:
  void authorized(Result<RequestAuth> auth) {
    if (handler_ == nullptr) return;
    if (!auth) return fail_later(auth.error());
    if (refusal_ && auth->version == version_) {
      http::ResponseHead head = std::move(*refusal_);
      refusal_.reset();
      return deliver_refusal(std::move(head));
    }
    refusal_.reset();
    refusal_text_.clear();
    version_ = auth->version;
    http::Request request = request_;
    for (const auto& [name, value] : auth->headers) request.headers.add(name, value);
    call_ = client_.send(std::move(request), options_, shared_from_this());
  }

  // There are no newer credentials: the refusal stands.
  void deliver_refusal(http::ResponseHead head) {
    const auto self = shared_from_this();
    handler_->on_head(std::move(head));
    if (handler_ != nullptr) handler_->on_body(refusal_text_);
    if (handler_ != nullptr) finish({});
  }

  // Whoever sends does not expect to be called back from there.
  void fail_later(Status status) {
    reactor_.post([weak = weak_from_this(), status = std::move(status)] {
      if (const auto self = weak.lock(); self && self->handler_) self->finish(status);
    });
  }

  void finish(Status status) {
    const auto handler = std::exchange(handler_, nullptr);
    if (handler != nullptr) handler->on_done(std::move(status));
  }

  io::Reactor& reactor_;
  Credentials& credentials_;
  http::Client& client_;
  const http::Request request_;
  const http::CallOptions options_;
  std::shared_ptr<http::ResponseHandler> handler_;  // null once told the end, or cancelled
  const std::function<void(int)> count_;
  bool has_head_ = false;  // of the answer that is on its way
  std::unique_ptr<http::Call> call_;
  std::uint64_t version_ = 0;
  bool repeated_ = false;
  std::optional<http::ResponseHead> refusal_;
  std::string refusal_text_;
};

class Handle final : public http::Call {
 public:
  explicit Handle(std::shared_ptr<AuthorizedCall> call) : call_(std::move(call)) {}
  ~Handle() override { call_->cancel(); }
  void pause() override {
    if (call_->call() != nullptr) call_->call()->pause();
  }
  void resume() override {
    if (call_->call() != nullptr) call_->call()->resume();
  }
  void write(std::string piece) override {
    if (call_->call() != nullptr) call_->call()->write(std::move(piece));
  }
  void finish_body() override {
    if (call_->call() != nullptr) call_->call()->finish_body();
  }
  std::size_t unsent() const override {
    return call_->call() == nullptr ? 0 : call_->call()->unsent();
  }

 private:
  const std::shared_ptr<AuthorizedCall> call_;
};

class HttpTransport final : public Transport {
 public:
  HttpTransport(io::Reactor& reactor, TransportOptions options, std::string prefix)
      : reactor_(reactor), options_(std::move(options)), prefix_(std::move(prefix)) {}

  Status open(const Config& config, http::ClientOptions client) {
    auto credentials = Credentials::make(reactor_, config, {.on_changed = [this] {
                                           for (const auto& each : clients_) each->close_idle();
                                         }});
    if (!credentials) return credentials.error();
    credentials_ = *std::move(credentials);
    client.tls = [this] { return credentials_->tls(); };
    client.dead_after = options_.dead_after;
    constexpr std::array<std::size_t, kLanes> kFixed{0, kMaxStreams, kLeaseConnections};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      client.max_connections = kFixed[lane] != 0 ? kFixed[lane] : options_.max_calls;
      clients_[lane] = http::Client::make(reactor_, client);
    }
    return {};
  }

  std::unique_ptr<http::Call> send(Lane lane, http::Request request, http::CallOptions options,
                                   std::shared_ptr<http::ResponseHandler> handler) override {
    request.target = prefix_ + request.target;
    request.headers.set("User-Agent", options_.user_agent);
    auto count = [this, method = request.method](int status) { answered(method, status); };
    auto call = std::make_shared<AuthorizedCall>(
        reactor_, *credentials_, *clients_[static_cast<std::size_t>(lane)], std::move(request),
        options, std::move(handler), std::move(count));
    call->begin();
    return std::make_unique<Handle>(std::move(call));
  }

 private:
  io::Reactor& reactor_;
  const TransportOptions options_;
  const std::string prefix_;  // of the server's URL, for servers behind a path
  std::unique_ptr<Credentials> credentials_;
  std::array<std::unique_ptr<http::Client>, kLanes> clients_;
};

}  // namespace

void Transport::answered(const std::string& method, int status) {
  if (metrics_ == nullptr) return;
  metrics_
      ->counter("rest_client_requests_total", "Answers of the API server, by method and status.",
                {{"code", status == 0 ? "<error>" : fmt::format("{}", status)}, {"method", method}})
      .add();
}

Result<std::unique_ptr<Transport>> connect(io::Reactor& reactor, const Config& config,
                                           TransportOptions options) {
  http::ClientOptions client;
  DIVISI_TRY(client.server, http::Url::parse(config.server));
  client.server_name = config.tls_server_name;
  const std::string& proxy = config.proxy_url.empty() ? config.environment_proxy : config.proxy_url;
  if (!proxy.empty()) {
    DIVISI_TRY(client.proxy, http::Url::parse(proxy));
  }
  auto transport = std::make_unique<HttpTransport>(reactor, std::move(options), client.server.path);
  if (Status status = transport->open(config, std::move(client)); !status.ok()) {
    return failure(std::move(status));
  }
  return transport;
}

}  // namespace divisi::kube
