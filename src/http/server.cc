#include "http/server.h"

#include "base/log.h"
#include "http/server_connection.h"

#include <map>
#include <unordered_map>
#include <utility>

namespace divisi::http {

namespace {

// What the connections share. They and the listener's callback may outlive the Server by a turn.
class ServerCore final : public ServerConnection::Owner,
                         public std::enable_shared_from_this<ServerCore> {
 public:
  ServerCore(io::Reactor& reactor, ServerOptions options, Server::Handler handler)
      : reactor_(reactor), options_(std::move(options)), handler_(std::move(handler)) {}

  const ServerOptions& options() const override { return options_; }

  void on_request(std::shared_ptr<ServerCall> call) override { handler_(std::move(call)); }

  void on_closed(ServerConnection& connection) override {
    connections_.erase(&connection);
    tell_if_drained();
  }

  void on_accept(const std::shared_ptr<io::Stream>& stream) {
    if (closed_) return stream->close();
    if (connections_.size() + handshakes_.size() >= options_.max_connections) {
      log::warning("{} refused: {} connections are open", stream->peer(), options_.max_connections);
      return stream->close();
    }
    if (!options_.tls) return serve(stream);
    const std::uint64_t id = next_handshake_++;
    handshakes_[id] =
        io::start_tls(reactor_, options_.tls, stream, {}, options_.header_timeout,
                      [weak = weak_from_this(), id, peer = stream->peer()](auto secured) {
                        const auto self = weak.lock();
                        if (!self) return;
                        const auto done = self->handshakes_.extract(id);
                        if (secured) return self->serve(*std::move(secured));
                        log::debug("no TLS with {}: {}", peer, secured.error().message());
                      });
  }

  void set_tls(std::shared_ptr<const io::TlsContext> tls) { options_.tls = std::move(tls); }

  void drain(std::function<void()> done) {
    closed_ = true;
    drained_ = std::move(done);
    handshakes_.clear();
    for (const auto& [key, connection] : std::unordered_map(connections_)) connection->drain();
    tell_if_drained();
  }

  void close() {
    closed_ = true;
    drained_ = nullptr;
    handshakes_.clear();
    for (const auto& [key, connection] : std::exchange(connections_, {})) connection->close();
  }

 private:
  void serve(const std::shared_ptr<io::Stream>& stream) {
    auto connection =
        std::make_shared<ServerConnection>(reactor_, weak_from_this(), options_, stream);
    connections_.emplace(connection.get(), connection);
    connection->start();
  }

  void tell_if_drained() {
    if (!connections_.empty() || !drained_) return;
    reactor_.post(std::exchange(drained_, nullptr));
  }

  io::Reactor& reactor_;
  ServerOptions options_;  // but for `tls` constant after construction
  const Server::Handler handler_;
  std::unordered_map<ServerConnection*, std::shared_ptr<ServerConnection>> connections_;
  std::map<std::uint64_t, std::unique_ptr<io::Timer>> handshakes_;
  std::uint64_t next_handshake_ = 0;
  std::function<void()> drained_;
  bool closed_ = false;
};

class ListeningServer final : public Server {
 public:
  ListeningServer(std::shared_ptr<ServerCore> core, std::unique_ptr<io::Listener> listener)
      : core_(std::move(core)), address_(listener->address()), listener_(std::move(listener)) {}
  ~ListeningServer() override { core_->close(); }

  io::Address address() const override { return address_; }
  void set_tls(std::shared_ptr<const io::TlsContext> tls) override {
    core_->set_tls(std::move(tls));
  }
  void drain(std::function<void()> done) override {
    listener_.reset();
    core_->drain(std::move(done));
  }

 private:
  const std::shared_ptr<ServerCore> core_;
  const io::Address address_;
  std::unique_ptr<io::Listener> listener_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(io::Reactor& reactor, ServerOptions options,
                                               Handler handler) {
  const io::Address where = options.address;
  auto core = std::make_shared<ServerCore>(reactor, std::move(options), std::move(handler));
  DIVISI_TRY(auto listener, reactor.listen(where, [weak = std::weak_ptr(core)](const auto& stream) {
    if (const auto alive = weak.lock()) return alive->on_accept(stream);
    stream->close();
  }));
  return std::make_unique<ListeningServer>(std::move(core), std::move(listener));
}

}  // namespace divisi::http
