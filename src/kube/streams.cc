#include "kube/streams.h"

#include "http/websocket.h"
#include "kube/time.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace divisi::kube {
namespace {

// The first byte of each message: which stream it belongs to.
enum Channel : char {
  kInput = 0,
  kOutput = 1,
  kErrors = 2,
  kStatus = 3,
  kResize = 4,
  kClose = '\xff'
};

constexpr std::string_view kProtocol = "v5.channel.k8s.io";
constexpr std::string_view kOlderProtocol = "v4.channel.k8s.io";

std::string flag(bool on) {
  return on ? "true" : "";
}

std::string count(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "";
}

}  // namespace

std::unique_ptr<http::Call> read_log(Client& client, std::string_view space, std::string_view pod,
                                     const LogOptions& options,
                                     std::function<void(std::string_view)> on_piece,
                                     std::function<void(Status)> on_done) {
  const Query query{{"container", options.container},
                    {"follow", flag(options.follow)},
                    {"previous", flag(options.previous)},
                    {"timestamps", flag(options.timestamps)},
                    {"tailLines", count(options.tail_lines)},
                    {"sinceSeconds", count(options.since_seconds)},
                    {"sinceTime", options.since_time ? rfc3339(*options.since_time) : ""},
                    {"limitBytes", count(options.limit_bytes)}};
  http::CallOptions call;
  call.deadline = io::Duration(0);  // a followed log lasts as long as its pod
  return client.stream("reading the log of " + object_key(space, pod),
                       resources::pods().path(space, pod, "log") + query_text(query), call,
                       std::move(on_piece), std::move(on_done));
}

Result<int> exit_code_of(const json::Value& status) {
  if (status.string_at({"status"}) == "Success") return 0;
  if (status.string_at({"reason"}) == "NonZeroExitCode") {
    if (const json::Value* causes = status.find_path({"details", "causes"});
        causes != nullptr && causes->as_array() != nullptr) {
      for (const json::Value& cause : *causes->as_array()) {
        if (cause.string_at({"reason"}) != "ExitCode") continue;
        const std::string_view text = cause.string_at({"message"});
        int code = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
        if (error == std::errc() && end == text.data() + text.size()) return code;
      }
    }
  }
  const std::string_view message = status.string_at({"message"});
  return failure(Code::kInternal, "the command did not run: {}",
                 message.empty() ? "the server does not say why" : message);
}

namespace {

class WebSocketExec final : public Exec, public std::enable_shared_from_this<WebSocketExec> {
 public:
  WebSocketExec(io::Reactor& reactor, std::string what, ExecHandlers handlers)
      : reactor_(reactor), what_(std::move(what)), handlers_(std::move(handlers)) {}

  void open(Client& client, std::string target) {
    http::Request request{"GET", std::move(target), {}, {}};
    request.headers = http::WebSocket::request_headers(
        key_, {std::string(kProtocol), std::string(kOlderProtocol)});
    http::CallOptions options;
    options.upgrade = true;
    call_ = client.transport().send(Lane::kWatch, std::move(request), options,
                                    std::make_shared<Upgrade>(weak_from_this()));
  }

  void write(std::string_view input) override { send(std::string(1, kInput).append(input)); }
  std::size_t unsent() const override {
    std::size_t bytes = socket_ == nullptr ? 0 : socket_->unsent();
    for (const std::string& message : early_) bytes += message.size();
    return bytes;
  }
  void close_input() override {
    // Older servers know no such message: their commands see the end of the connection.
    if (socket_ == nullptr || protocol_ == kProtocol) send(std::string{kClose, kInput});
  }
  void resize(int columns, int rows) override {
    send(std::string(1, kResize) + fmt::format(R"({{"Width":{},"Height":{}}})", columns, rows));
  }
  void abandon() {
    handlers_ = {};
    socket_.reset();
    call_.reset();
  }

 private:
  // Of the request that becomes the connection.
  class Upgrade final : public http::ResponseHandler {
   public:
    explicit Upgrade(std::weak_ptr<WebSocketExec> exec) : exec_(std::move(exec)) {}
    void on_head(http::ResponseHead head) override { head_ = std::move(head); }
    bool on_body(std::string_view piece) override {
      constexpr std::size_t kMost = 64 << 10;
      body_.append(piece.substr(0, kMost - std::min(kMost, body_.size())));
      return true;
    }
    void on_upgrade(std::shared_ptr<io::Stream> stream, std::string rest) override {
      if (const auto exec = exec_.lock()) exec->upgraded(head_, std::move(stream), std::move(rest));
    }
    void on_done(Status status) override {
      const auto exec = exec_.lock();
      if (exec == nullptr || head_.status == 101) return;
      if (status.ok()) {
        status =
            status_of_answer(exec->what_, head_.status, head_.headers.get("Content-Type"), body_);
      } else {
        status = status.with_context(exec->what_);
      }
      exec->finish(failure(std::move(status)));
    }

   private:
    const std::weak_ptr<WebSocketExec> exec_;
    http::ResponseHead head_;
    std::string body_;
  };

  void upgraded(const http::ResponseHead& head, std::shared_ptr<io::Stream> stream,
                std::string rest) {
    if (const Status status = http::WebSocket::check_answer(head, key_); !status.ok()) {
      return finish(failure(status.with_context(what_)));
    }
    protocol_ = head.headers.get("Sec-WebSocket-Protocol");
    socket_ = http::WebSocket::attach(
        reactor_, http::WebSocket::Role::kClient, std::move(stream), std::move(rest),
        {.on_message = [this](const std::string& message, bool) { received(message); },
         .on_progress =
             [this] {
               if (handlers_.on_progress) handlers_.on_progress();
             },
         .on_closed = [this](const Status& status) { closed(status); }},
        {});
    for (std::string& message : std::exchange(early_, {})) socket_->send(std::move(message), true);
  }

  void send(std::string message) {
    if (socket_ == nullptr) {
      early_.push_back(std::move(message));
    } else {
      socket_->send(std::move(message), true);
    }
  }

  void received(std::string_view message) {
    if (message.empty()) return;
    const char channel = message.front();
    message.remove_prefix(1);
    if (channel == kOutput && handlers_.on_output) handlers_.on_output(message);
    if (channel == kErrors && handlers_.on_error) handlers_.on_error(message);
    if (channel != kStatus) return;
    const auto status = json::parse(message);
    outcome_ = status ? exit_code_of(*status) : failure(status.error().with_context(what_));
  }

  void closed(const Status& status) {
    if (outcome_) return finish(*std::move(outcome_));
    const Status reason = status.ok() ? make_status(Code::kClosed,
                                                    "the connection was closed before "
                                                    "the command ended")
                                      : status;
    finish(failure(reason.with_context(what_)));
  }

  void finish(Result<int> outcome) {
    const auto done = std::exchange(handlers_.on_done, nullptr);
    if (done) done(std::move(outcome));
  }

  io::Reactor& reactor_;
  const std::string what_;
  ExecHandlers handlers_;
  std::string key_;
  std::string protocol_;
  std::unique_ptr<http::Call> call_;
  std::unique_ptr<http::WebSocket> socket_;
  std::vector<std::string> early_;  // written before the connection was open
  std::optional<Result<int>> outcome_;
};

// What the caller holds: letting it go ends everything, also from inside a callback.
class ExecHandle final : public Exec {
 public:
  explicit ExecHandle(std::shared_ptr<WebSocketExec> exec) : exec_(std::move(exec)) {}
  ~ExecHandle() override { exec_->abandon(); }
  void write(std::string_view input) override { exec_->write(input); }
  std::size_t unsent() const override { return exec_->unsent(); }
  void close_input() override { exec_->close_input(); }
  void resize(int columns, int rows) override { exec_->resize(columns, rows); }

 private:
  const std::shared_ptr<WebSocketExec> exec_;
};

}  // namespace

std::unique_ptr<Exec> Exec::start(Client& client, std::string_view space, std::string_view pod,
                                  const ExecOptions& options, ExecHandlers handlers) {
  Query query{{"container", options.container},
              {"stdin", flag(options.input)},
              {"stdout", "true"},
              {"stderr", flag(!options.terminal)},
              {"tty", flag(options.terminal)}};
  for (const std::string& word : options.command) query.emplace_back("command", word);
  auto exec = std::make_shared<WebSocketExec>(
      client.reactor(), "running a command in " + object_key(space, pod), std::move(handlers));
  exec->open(client, resources::pods().path(space, pod, "exec") + query_text(query));
  return std::make_unique<ExecHandle>(std::move(exec));
}

}  // namespace divisi::kube
