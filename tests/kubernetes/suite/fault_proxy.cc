#include "kubernetes/suite/fault_proxy.h"

#include "kube/testing/fake_api.h"

#include <utility>
#include <vector>

namespace divisi::kube::suite {
namespace {

bool is_watch(const http::Request& request) {
  return request.method == "GET" && request.target.find("watch=true") != std::string::npos;
}

}  // namespace

// One request on its way, and its answer on the way back.
class FaultProxy::Passing final : public http::ResponseHandler,
                                  public std::enable_shared_from_this<Passing> {
 public:
  Passing(FaultProxy& proxy, std::shared_ptr<http::ServerCall> call)
      : proxy_(proxy), call_(std::move(call)) {}

  void begin() {
    http::Request request = call_->request();
    watch_ = is_watch(request);
    for (const char* name : {"Host", "Connection", "Content-Length", "Transfer-Encoding",
                             "Accept-Encoding", "Authorization"}) {
      request.headers.remove(name);
    }
    call_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end();
    });
    http::CallOptions options;
    if (watch_) options.deadline = std::chrono::minutes(15);
    to_server_ = proxy_.real_.send(watch_ ? Lane::kWatch : Lane::kCall, std::move(request), options,
                                   shared_from_this());
  }

  void on_head(http::ResponseHead head) override {
    for (const char* name :
         {"Connection", "Content-Length", "Transfer-Encoding", "Content-Encoding"}) {
      head.headers.remove(name);
    }
    if (call_ != nullptr) call_->start(std::move(head));
  }

  bool on_body(std::string_view piece) override {
    if (call_ == nullptr) return false;
    const Storm& storm = proxy_.storm_;
    if (watch_ && proxy_.chance(storm.cut)) {
      if (proxy_.chance(0.5)) call_->write(std::string(piece.substr(0, piece.size() / 2)));
      end();
      return false;
    }
    if (watch_ && proxy_.chance(storm.half_close)) {
      call_->write(std::string(piece.substr(0, piece.size() / 3)));
      call_->finish();
      end();
      return false;
    }
    if (proxy_.chance(storm.slow) && piece.size() < 2000) {
      for (const char c : piece) slow_.push_back(c);
      drip();
      return true;
    }
    write(piece);
    if (watch_ && proxy_.chance(storm.repeat)) write(piece);
    return true;
  }

  void on_done(Status status) override {
    done_ = true;
    if (call_ != nullptr && status.ok() && slow_.empty()) call_->finish();
    if (slow_.empty()) end();
  }

  // Letting the call go without its end cuts the connection.
  void end() {
    const auto self = shared_from_this();
    call_.reset();
    timer_.reset();
    proxy_.reactor_.post([self] { self->to_server_.reset(); });
    proxy_.passing_.erase(self);
  }

 private:
  void write(std::string_view piece) {
    if (slow_.empty()) {
      call_->write(std::string(piece));
    } else {
      slow_.append(piece);
    }
  }

  // A few bytes each turn.
  void drip() {
    if (timer_ != nullptr || call_ == nullptr) return;
    timer_ = proxy_.reactor_.after(std::chrono::milliseconds(1), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || self->call_ == nullptr) return;
      self->timer_.reset();
      const std::size_t size = std::min<std::size_t>(7, self->slow_.size());
      self->call_->write(self->slow_.substr(0, size));
      self->slow_.erase(0, size);
      if (!self->slow_.empty()) return self->drip();
      if (!self->done_) return;
      self->call_->finish();
      self->end();
    });
  }

  FaultProxy& proxy_;
  std::shared_ptr<http::ServerCall> call_;
  std::unique_ptr<http::Call> to_server_;
  bool watch_ = false;
  bool done_ = false;
  std::string slow_;
  std::unique_ptr<io::Timer> timer_;
};

FaultProxy::FaultProxy(io::Reactor& reactor, Transport& real, std::uint64_t seed)
    : reactor_(reactor), real_(real), random_(seed) {}

FaultProxy::~FaultProxy() = default;

Result<std::unique_ptr<FaultProxy>> FaultProxy::listen(io::Reactor& reactor, Transport& real,
                                                       std::uint64_t seed) {
  std::unique_ptr<FaultProxy> proxy(new FaultProxy(reactor, real, seed));
  http::ServerOptions options;
  options.address.host = "127.0.0.1";
  DIVISI_TRY(
      proxy->server_,
      http::Server::listen(reactor, std::move(options),
                           [raw = proxy.get()](const std::shared_ptr<http::ServerCall>& call) {
                             raw->handle(call);
                           }));
  return proxy;
}

std::string FaultProxy::url() const {
  return "http://127.0.0.1:" + std::to_string(server_->address().port);
}

bool FaultProxy::chance(double probability) {
  const bool hit = probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
  faults_ += hit ? 1 : 0;
  return hit;
}

void FaultProxy::handle(const std::shared_ptr<http::ServerCall>& call) {
  if (spoil(call, is_watch(call->request()))) return;
  const auto passing = std::make_shared<Passing>(*this, call);
  passing_.insert(passing);
  passing->begin();
}

bool FaultProxy::spoil(const std::shared_ptr<http::ServerCall>& call, bool watch) {
  if (chance(storm_.refuse)) {
    std::vector<http::Response> answers{
        status_answer(429, "TooManyRequests", "spoiled"),
        status_answer(500, "InternalError", "spoiled"),
        {502, {{"Content-Type", "text/html"}}, "<html>bad gateway</html>"},
        status_answer(503, "ServiceUnavailable", "spoiled")};
    answers[0].headers.add("Retry-After", "1");
    call->respond(answers[random_() % answers.size()]);
    return true;
  }
  if (!watch && call->request().method != "GET" && chance(storm_.conflict)) {
    call->respond(status_answer(409, "Conflict", "spoiled"));
    return true;
  }
  if (watch && chance(storm_.expire)) {
    http::Response gone = status_answer(410, "Expired", "spoiled");
    if (chance(0.5)) {
      gone.body = R"({"type":"ERROR","object":)" + gone.body + "}\n";
      gone.status = 200;
    }
    call->respond(std::move(gone));
    return true;
  }
  // Neither answered nor passed on: the connection ends when the last holder lets it go, so it is
  // begun first.
  if (chance(storm_.drop)) {
    call->start({200, "OK", {{"Content-Type", "application/json"}}});
    return true;
  }
  return false;
}

void FaultProxy::cut_streams() {
  const auto all = passing_;
  for (const auto& each : all) each->end();
}

}  // namespace divisi::kube::suite
