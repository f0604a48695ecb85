// LoopFixture: a real loop, and the means to wait for what happens on it.
#pragma once

#include "http/client.h"
#include "http/server.h"
#include "io/reactor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace divisi::http::testing {

inline constexpr auto kDeadline = std::chrono::seconds(60);

template <class T>
T get(std::future<T> future) {
  if (future.wait_for(kDeadline) != std::future_status::ready) {
    throw std::runtime_error("nothing came before the deadline");
  }
  return future.get();
}

// What became of one call, event by event.
class Recorder final : public ResponseHandler {
 public:
  void on_head(ResponseHead told) override { head = std::move(told); }
  bool on_body(std::string_view piece) override {
    ++pieces;
    body += piece;
    largest = std::max(largest, piece.size());
    if (at_piece) at_piece(pieces);
    return wants_more;
  }
  void on_upgrade(std::shared_ptr<io::Stream> given, std::string beyond) override {
    stream = std::move(given);
    rest = std::move(beyond);
  }
  void on_done(Status status) override { done.set_value(std::move(status)); }

  ResponseHead head{};
  std::string body{};
  std::size_t pieces = 0;
  std::size_t largest = 0;
  std::shared_ptr<io::Stream> stream{};
  std::string rest{};
  bool wants_more = true;
  std::function<void(std::size_t)> at_piece{};
  std::promise<Status> done{};
};

class LoopFixture : public ::testing::Test {
 protected:
  ~LoopFixture() override {
    on_loop([&] {
      calls_.clear();
      client_.reset();
      server_.reset();
    });
  }

  void on_loop(const std::function<void()>& work) { reactor_->run_on_loop(work); }

  // Listens on a port of its own; `url_` is where.
  void serve(Server::Handler handler, ServerOptions options = {}) {
    options.address = *io::Address::parse("tcp://127.0.0.1:0");
    const bool secure = options.tls != nullptr;
    on_loop([&] {
      auto listening = Server::listen(*reactor_, std::move(options), std::move(handler));
      if (!listening) throw std::runtime_error(listening.error().message());
      server_ = *std::move(listening);
    });
    url_ = *Url::parse(
        fmt::format("{}://127.0.0.1:{}", secure ? "https" : "http", server_->address().port));
  }

  void use_client(ClientOptions options = {}) {
    if (options.server.host.empty()) options.server = url_;
    on_loop([&] { client_ = Client::make(*reactor_, std::move(options)); });
  }

  // Starts a call; the fixture holds its handle.
  std::future<Result<Response>> start_fetch(Request request, CallOptions options = {}) {
    auto done = std::make_shared<std::promise<Result<Response>>>();
    auto future = done->get_future();
    on_loop([&] {
      if (!client_) client_ = Client::make(*reactor_, {.server = url_});
      calls_.push_back(client_->fetch(std::move(request), options, [done](Result<Response> result) {
        done->set_value(std::move(result));
      }));
    });
    return future;
  }

  Result<Response> fetch(Request request, CallOptions options = {}) {
    return get(start_fetch(std::move(request), options));
  }

  // The index of the call in calls_.
  std::size_t start(Request request, CallOptions options, std::shared_ptr<Recorder> recorder) {
    on_loop([&] {
      if (!client_) client_ = Client::make(*reactor_, {.server = url_});
      calls_.push_back(client_->send(std::move(request), options, std::move(recorder)));
    });
    return calls_.size() - 1;
  }

  const std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<Call>> calls_;
  Url url_;
};

}  // namespace divisi::http::testing
