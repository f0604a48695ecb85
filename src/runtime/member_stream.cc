#include "runtime/member_stream.h"

#include "base/log.h"
#include "io/jitter.h"
#include "runtime/event_stream.h"

#include <algorithm>
#include <utility>

namespace divisi::runtime {

namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(500);
constexpr auto kLongestPause = std::chrono::milliseconds(15'000);

// The server says something every 15 s; three times nothing is a server that is gone.
constexpr auto kSilence = std::chrono::seconds(50);

// Half of the pause up to all of it, so that the workers of a large job do not come at once.
io::Duration spread(std::chrono::milliseconds pause) {
  return std::chrono::duration_cast<io::Duration>(pause * (0.5 + io::jitter() / 2));
}

}  // namespace

// One answer of the server, from its head to its end.
class MemberStream::Reading final : public http::ResponseHandler {
 public:
  explicit Reading(MemberStream& owner) : owner_(owner) {}

  void on_head(http::ResponseHead head) override {
    const std::string_view type = head.headers.get("Content-Type");
    if (head.status != 200) {
      refused_ = make_status(Code::kUnavailable, "it answers {}", head.status);
    } else if (!type.starts_with("text/event-stream")) {
      refused_ = make_status(Code::kInvalid, "it answers with '{}' instead of a stream",
                             log::printable(std::string(type.substr(0, 80))));
    } else {
      owner_.listener_.on_word();
    }
  }

  bool on_body(std::string_view piece) override {
    if (!refused_.ok()) return false;
    refused_ = events_.write(piece, [this](std::string_view event, std::string_view data) {
      if (event == "members") take(data);
    });
    owner_.listener_.on_word();
    return refused_.ok();
  }

  void on_done(Status status) override { owner_.ended(refused_.ok() ? status : refused_); }

 private:
  void take(std::string_view data) {
    const auto members = parse_members(data);
    if (!members) {
      log::debug("the di-server's list of members is not understood: {}",
                 members.error().message());
      return;
    }
    owner_.pause_ = std::chrono::milliseconds(0);
    owner_.listener_.on_members(*members);
  }

  MemberStream& owner_;  // its call ends, without callbacks, before it does
  EventStream events_;
  Status refused_;
};

MemberStream::MemberStream(io::Reactor& reactor, JobServer server, Listener listener)
    : reactor_(reactor),
      server_(std::move(server)),
      listener_(std::move(listener)),
      client_(server_.connect(reactor)) {
  connect();
}

MemberStream::~MemberStream() = default;

void MemberStream::connect() {
  http::Request request = server_.request("GET", "/members?watch=true");
  request.headers.add("Accept", "text/event-stream");
  call_ = client_->send(
      std::move(request),
      {.deadline = io::Duration(0), .idle_timeout = kSilence, .limits = {}, .upgrade = false},
      std::make_shared<Reading>(*this));
}

void MemberStream::ended(const Status& why) {
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  log::debug("members of the job: {}", why.ok() ? "the stream has ended" : why.message());
  again_ = reactor_.after(spread(pause_), [this] { connect(); });
}

}  // namespace divisi::runtime
