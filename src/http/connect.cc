#include "http/connect.h"

#include "base/log.h"
#include "http/base64.h"
#include "http/parser.h"
#include "http/while_alive.h"
#include "http/wire.h"

#include <algorithm>
#include <utility>

namespace divisi::http {

namespace {

class Connecting final : public std::enable_shared_from_this<Connecting> {
 public:
  using OnDone = std::function<void(Result<std::shared_ptr<io::Stream>>)>;

  Connecting(io::Reactor& reactor, ClientOptions options, OnDone on_done)
      : reactor_(reactor),
        options_(std::move(options)),
        proxy_name_(options_.proxy ? "the proxy " + options_.proxy->origin() : std::string()),
        on_done_(std::move(on_done)) {}

  void start() {
    until_ = reactor_.now() + options_.connect_timeout;
    const Url& first = options_.proxy ? *options_.proxy : options_.server;
    io::Address where;
    where.host = first.host;
    where.port = first.port;
    if (options_.place) where = *options_.place;
    step_ = reactor_.dial(where, left(), [weak = weak_from_this()](auto stream) {
      if (const auto self = weak.lock()) self->on_dialled(std::move(stream));
    });
  }

  void cancel() {
    on_done_ = nullptr;
    step_.reset();
    if (wire_) wire_->close();
  }

 private:
  io::Duration left() const { return std::max(io::Duration::zero(), until_ - reactor_.now()); }

  void on_dialled(Result<std::shared_ptr<io::Stream>> stream) {
    if (!stream) {
      const auto& problem = stream.error();
      return finish(failure(options_.proxy ? problem.with_context(proxy_name_) : problem));
    }
    (*stream)->set_dead_after(options_.dead_after);
    if (!options_.server.tls) return finish(std::move(stream));
    if (options_.proxy) return ask_proxy(*options_.proxy, *std::move(stream));
    secure(*std::move(stream));
  }

  void ask_proxy(const Url& proxy, std::shared_ptr<io::Stream> stream) {
    const std::string where = options_.server.authority();
    std::string text = fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\n", where, where);
    if (const auto credentials = proxy_credentials(proxy); !credentials.empty()) {
      text += fmt::format("Proxy-Authorization: {}\r\n", credentials);
    }
    text += "\r\n";
    answer_ = std::make_unique<Parser>(Parser::Kind::kResponse, Limits{});
    answer_->expect_no_body();  // of a refusal nothing but the status is told
    wire_ = Wire::make(reactor_, std::move(stream));
    wire_->set_user(while_alive(weak_from_this(), &Connecting::on_proxy_answer), nullptr);
    wire_->write(std::move(text));
    step_ = reactor_.after(
        left(), [this] { finish(failure(Code::kTimeout, "no answer from {}", proxy_name_)); });
  }

  void on_proxy_answer() {
    const auto used = answer_->feed_head(wire_->input());
    if (!used) {
      return finish(failure(Code::kUnavailable, "{}: {}", proxy_name_, used.error().text));
    }
    wire_->consume(*used);
    if (!answer_->has_head()) {
      if (!wire_->ended()) return;
      return finish(failure(Code::kUnavailable, "{} closed the connection", proxy_name_));
    }
    const auto& head = answer_->response();
    if (head.status / 100 != 2) {
      return finish(failure(head.status == 407 ? Code::kUnauthorized : Code::kUnavailable,
                            "{} answered {} {} to CONNECT {}", proxy_name_, head.status,
                            log::printable(head.reason), options_.server.authority()));
    }
    // In a turn of its own: the wire's callback that we are in has to return first.
    wire_->set_user(nullptr, nullptr);
    wire_->set_reading(false);
    reactor_.post([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || !self->on_done_) return;
      std::string rest;
      auto stream = std::exchange(self->wire_, nullptr)->release(rest);
      if (rest.empty()) return self->secure(std::move(stream));
      stream->close();  // in TLS the server speaks second
      self->finish(failure(Code::kUnavailable, "{} sent more than its answer", self->proxy_name_));
    });
  }

  void secure(std::shared_ptr<io::Stream> stream) {
    if (!options_.tls) {
      return finish(failure(Code::kInvalid, "https without a TLS context"));
    }
    auto context = options_.tls();
    if (!context) return finish(failure(context.error()));
    const auto& name = options_.server_name.empty() ? options_.server.host : options_.server_name;
    step_ = io::start_tls(reactor_, *context, std::move(stream), name, left(),
                          [weak = weak_from_this()](auto secured) {
                            if (const auto self = weak.lock()) self->finish(std::move(secured));
                          });
  }

  void finish(Result<std::shared_ptr<io::Stream>> result) {
    const auto keep = shared_from_this();
    const auto run = std::exchange(on_done_, nullptr);
    if (wire_) std::exchange(wire_, nullptr)->close();
    if (run) run(std::move(result));
  }

  io::Reactor& reactor_;
  const ClientOptions options_;
  const std::string proxy_name_;  // for messages; empty without one
  OnDone on_done_;
  io::TimePoint until_{};
  std::unique_ptr<io::Timer> step_;  // what is under way
  std::shared_ptr<Wire> wire_;       // to the proxy, while it is asked
  std::unique_ptr<Parser> answer_;
};

class ConnectingHandle final : public io::Timer {
 public:
  explicit ConnectingHandle(std::shared_ptr<Connecting> connecting)
      : connecting_(std::move(connecting)) {}
  ~ConnectingHandle() override { connecting_->cancel(); }

 private:
  const std::shared_ptr<Connecting> connecting_;
};

}  // namespace

std::unique_ptr<io::Timer> connect(
    io::Reactor& reactor, const ClientOptions& options,
    std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done) {
  auto connecting = std::make_shared<Connecting>(reactor, options, std::move(on_done));
  connecting->start();
  return std::make_unique<ConnectingHandle>(std::move(connecting));
}

std::string proxy_credentials(const Url& proxy) {
  return proxy.user.empty() ? std::string() : "Basic " + encode_base64(proxy.user);
}

}  // namespace divisi::http
