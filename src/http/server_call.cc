#include "http/server_call.h"

#include "base/log.h"

#include <utility>

namespace divisi::http {

namespace {

class ConnectionCall final : public ServerCall {
 public:
  ConnectionCall(std::shared_ptr<ServerConnection> connection, Request request, std::string peer)
      : connection_(std::move(connection)), request_(std::move(request)), peer_(std::move(peer)) {}

  ~ConnectionCall() override {
    if (stage_ == Stage::kOpen) {
      respond(
          {.status = 500, .headers = {{"Content-Type", "text/plain"}}, .body = "not answered\n"});
    } else if (stage_ == Stage::kStarted) {
      connection_->abort_answer();
    }
  }

  const Request& request() const override { return request_; }
  std::string peer() const override { return peer_; }

  void respond(Response response) override {
    if (stage_ != Stage::kOpen) return;
    if (!sendable(response.status, response.headers)) response = {.status = 500};
    stage_ = Stage::kDone;
    connection_->send_head({.status = response.status, .headers = std::move(response.headers)},
                           response.body.size());
    connection_->send_body(std::move(response.body));
    connection_->end_answer();
  }

  void start(ResponseHead head) override {
    if (stage_ != Stage::kOpen) return;
    if (!sendable(head.status, head.headers)) return respond({.status = 500});
    stage_ = Stage::kStarted;
    connection_->send_head(head, std::nullopt);
  }

  void write(std::string piece) override {
    if (stage_ == Stage::kStarted) connection_->send_piece(std::move(piece));
  }

  void finish() override {
    if (stage_ != Stage::kStarted) return;
    stage_ = Stage::kDone;
    connection_->end_answer();
  }

  std::size_t unsent() const override { return stage_ == Stage::kDone ? 0 : connection_->unsent(); }

  void on_gone(std::function<void()> gone) override {
    if (stage_ != Stage::kDone) connection_->set_gone(std::move(gone));
  }

  void upgrade(Headers headers,
               std::function<void(std::shared_ptr<io::Stream>, std::string)> then) override {
    if (stage_ != Stage::kOpen) return;
    if (!sendable(101, headers)) return respond({.status = 500});
    stage_ = Stage::kDone;
    connection_->upgrade(headers, std::move(then));
  }

 private:
  enum class Stage { kOpen, kStarted, kDone };

  // A handler's mistake: the client gets 500, the log the reason.
  bool sendable(int status, const Headers& headers) const {
    auto wrong = check_sendable(headers);
    if (wrong.ok() && (status < 100 || status > 999)) {
      wrong = make_status(Code::kInvalid, "{} is no status", status);
    }
    if (wrong.ok()) return true;
    log::error("answer to {} {}: {}", log::printable(request_.method),
               log::printable(request_.target), wrong.message());
    return false;
  }

  const std::shared_ptr<ServerConnection> connection_;
  const Request request_;
  const std::string peer_;
  Stage stage_ = Stage::kOpen;
};

}  // namespace

std::shared_ptr<ServerCall> make_server_call(std::shared_ptr<ServerConnection> connection,
                                             Request request, std::string peer) {
  return std::make_shared<ConnectionCall>(std::move(connection), std::move(request),
                                          std::move(peer));
}

}  // namespace divisi::http
