#include "http/client.h"

#include "base/log.h"
#include "http/client_call.h"
#include "http/request_text.h"
#include "http/wire.h"

#include <algorithm>
#include <deque>
#include <list>
#include <utility>
#include <vector>

namespace divisi::http {

namespace {

// The connections of one client and the calls that wait for one.
class ConnectionPool final : public ClientCall::Pool,
                             public std::enable_shared_from_this<ConnectionPool> {
 public:
  ConnectionPool(io::Reactor& reactor, ClientOptions options)
      : reactor_(reactor), options_(std::move(options)) {
    options_.max_connections = std::max<std::size_t>(options_.max_connections, 1);
  }

  const ClientOptions& options() const override { return options_; }

  std::shared_ptr<ClientCall> send(Request request, CallOptions call_options,
                                   std::shared_ptr<ResponseHandler> handler) {
    auto call = std::make_shared<ClientCall>(reactor_, shared_from_this(), std::move(request),
                                             call_options, std::move(handler));
    calls_.push_back(call);
    waiting_.push_back(call);
    call->start_clock();
    serve_waiting();
    return call;
  }

  void on_ended(ClientCall& call, std::shared_ptr<Wire> wire) override {
    std::erase_if(waiting_, [&](const auto& each) { return each.get() == &call; });
    std::erase_if(calls_, [&](const auto& each) { return each.get() == &call; });
    if (closed_) return;
    if (call.has_slot()) --open_;
    if (wire) keep(std::move(wire));
    serve_waiting();
  }

  void close_idle() {
    open_ -= idle_.size();
    for (auto& kept : std::exchange(idle_, {})) kept.wire->close();
    expiry_.reset();
    for (const auto& call : calls_) {
      if (call->has_slot()) call->spoil_connection();  // made with the old credentials
    }
    serve_waiting();
  }

  void close() {
    closed_ = true;
    for (const auto& call : std::exchange(calls_, {})) call->cancel();
    close_idle();
  }

 private:
  struct Kept {
    std::shared_ptr<Wire> wire;
    io::TimePoint until;
  };

  void serve_waiting() {
    while (!closed_ && !waiting_.empty()) {
      if (!idle_.empty()) {
        // The one used last: it is the least likely to have been closed by the server.
        auto wire = std::move(idle_.back().wire);
        idle_.pop_back();
        next_waiting()->run_on(std::move(wire), true);
      } else if (open_ < options_.max_connections) {
        ++open_;
        next_waiting()->connect();
      } else {
        return;
      }
    }
  }

  std::shared_ptr<ClientCall> next_waiting() {
    auto call = std::move(waiting_.front());
    waiting_.pop_front();
    return call;
  }

  void keep(std::shared_ptr<Wire> wire) {
    if (options_.keep_alive <= io::Duration::zero()) return wire->close();
    ++open_;
    // Whatever comes on an unused connection, most likely its end, makes it useless.
    const auto drop = [weak = weak_from_this(), raw = wire.get()] {
      if (const auto self = weak.lock()) self->drop(raw);
    };
    wire->set_user(drop, drop);
    idle_.push_back({std::move(wire), reactor_.now() + options_.keep_alive});
    if (!expiry_) expire_later();
  }

  void drop(const Wire* wire) {
    const auto found =
        std::ranges::find_if(idle_, [&](const Kept& kept) { return kept.wire.get() == wire; });
    if (found == idle_.end()) return;
    const auto gone = std::move(found->wire);
    idle_.erase(found);
    --open_;
    gone->close();
    serve_waiting();
  }

  void expire_later() {
    expiry_.reset();
    if (idle_.empty()) return;
    const auto wait = std::max(io::Duration::zero(), idle_.front().until - reactor_.now());
    expiry_ = reactor_.after(wait, [this] {
      const auto self = shared_from_this();
      while (!idle_.empty() && idle_.front().until <= reactor_.now())
        drop(idle_.front().wire.get());
      expire_later();
    });
  }

  io::Reactor& reactor_;
  ClientOptions options_;  // constant after construction
  std::vector<std::shared_ptr<ClientCall>> calls_;
  std::deque<std::shared_ptr<ClientCall>> waiting_;
  std::deque<Kept> idle_;  // the longest unused first
  std::size_t open_ = 0;   // connections: idle, busy, and being made
  std::unique_ptr<io::Timer> expiry_;
  bool closed_ = false;
};

class CallHandle final : public Call {
 public:
  explicit CallHandle(std::shared_ptr<ClientCall> call) : call_(std::move(call)) {}
  ~CallHandle() override { call_->cancel(); }
  void pause() override { call_->set_paused(true); }
  void resume() override { call_->set_paused(false); }
  void write(std::string piece) override { call_->write(std::move(piece)); }
  void finish_body() override { call_->finish_body(); }
  std::size_t unsent() const override { return call_->unsent(); }

 private:
  const std::shared_ptr<ClientCall> call_;
};

// A call that was over before it began; it says so in a turn of its own, as every other does.
class RefusedCall final : public Call {
 public:
  RefusedCall(io::Reactor& reactor, std::shared_ptr<ResponseHandler> handler, Status why)
      : handler_(std::make_shared<std::shared_ptr<ResponseHandler>>(std::move(handler))) {
    reactor.post([weak = std::weak_ptr(handler_), why = std::move(why)] {
      if (const auto alive = weak.lock()) (*alive)->on_done(why);
    });
  }
  void pause() override {}
  void resume() override {}
  void write(std::string) override {}
  void finish_body() override {}
  std::size_t unsent() const override { return 0; }

 private:
  const std::shared_ptr<std::shared_ptr<ResponseHandler>> handler_;
};

class PooledClient final : public Client {
 public:
  PooledClient(io::Reactor& reactor, ClientOptions options)
      : reactor_(reactor), pool_(std::make_shared<ConnectionPool>(reactor, std::move(options))) {}
  ~PooledClient() override { pool_->close(); }

  std::unique_ptr<Call> send(Request request, CallOptions options,
                             std::shared_ptr<ResponseHandler> handler) override {
    if (const auto text = request_text(request, pool_->options(), options.upgrade); !text) {
      auto why = text.error().with_context(fmt::format("{} {}{}", log::printable(request.method),
                                                       pool_->options().server.origin(),
                                                       log::printable(request.target)));
      return std::make_unique<RefusedCall>(reactor_, std::move(handler), std::move(why));
    }
    return std::make_unique<CallHandle>(
        pool_->send(std::move(request), options, std::move(handler)));
  }

  void close_idle() override { pool_->close_idle(); }

 private:
  io::Reactor& reactor_;
  const std::shared_ptr<ConnectionPool> pool_;
};

}  // namespace

std::unique_ptr<Client> Client::make(io::Reactor& reactor, ClientOptions options) {
  return std::make_unique<PooledClient>(reactor, std::move(options));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep both
void ResponseHandler::on_upgrade(std::shared_ptr<io::Stream> stream, std::string /*rest*/) {
  stream->close();  // asked for, and then nobody to take it
}

}  // namespace divisi::http
