#include "runtime/testing/fake_di_server.h"

#include "base/log.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace divisi::runtime::testing {

namespace {
constexpr auto kDeadline = std::chrono::seconds(60);
}

FakeDiServer::FakeDiServer() {
  reactor_->run_on_loop([this] {
    auto listening =
        http::Server::listen(*reactor_, {.address = *io::Address::parse("tcp://127.0.0.1:0")},
                             [this](const auto& call) { answer(call); });
    if (!listening) throw std::runtime_error(listening.error().message());
    server_ = *std::move(listening);
  });
}

FakeDiServer::~FakeDiServer() {
  reactor_->run_on_loop([this] {
    listeners_.clear();
    server_.reset();
  });
}

std::string FakeDiServer::url() const {
  return fmt::format("http://127.0.0.1:{}", server_->address().port);
}

std::string FakeDiServer::event(const std::string& data) {
  return "event: members\ndata: " + data + "\n\n";
}

void FakeDiServer::set_members(std::string data) {
  reactor_->run_on_loop([&] {
    members_ = std::move(data);
    for (const auto& call : listeners_) call->write(event(members_));
  });
}

void FakeDiServer::cut() {
  reactor_->run_on_loop([this] {
    for (const auto& call : std::exchange(listeners_, {})) call->finish();
  });
}

void FakeDiServer::set_status(int status) {
  reactor_->run_on_loop([&] { status_ = status; });
}

void FakeDiServer::answer(const std::shared_ptr<http::ServerCall>& call) {
  const http::Request& request = call->request();
  const bool is_post = request.method == "POST";
  {
    const std::lock_guard lock(mutex_);
    (is_post ? posts_ : streams_).push_back(request);
    changed_.notify_all();
  }
  if (status_ != 0) return call->respond({.status = status_, .body = "no"});
  if (is_post) {
    return call->respond({.body = R"({"success":true,"code":0,"message":"","data":null})"});
  }
  call->start({.status = 200, .headers = {{"Content-Type", "text/event-stream"}}});
  call->write(": still here\n\n");
  if (!members_.empty()) call->write(event(members_));
  listeners_.push_back(call);
}

bool FakeDiServer::wait_for_streams(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kDeadline, [&] { return streams_.size() >= count; });
}

bool FakeDiServer::wait_for_posts(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kDeadline, [&] { return posts_.size() >= count; });
}

std::vector<http::Request> FakeDiServer::posts() const {
  const std::lock_guard lock(mutex_);
  return posts_;
}

std::vector<http::Request> FakeDiServer::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_;
}

}  // namespace divisi::runtime::testing
