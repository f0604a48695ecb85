#include "runtime/progress_reporter.h"

#include "base/log.h"

#include <algorithm>
#include <utility>

namespace divisi::runtime {

namespace {

constexpr auto kCallDeadline = std::chrono::seconds(5);
constexpr auto kLongestPause = std::chrono::milliseconds(30'000);

void merge(Figures& into, const Figures& other, bool other_is_newer) {
  for (const auto& [name, value] : other) {
    if (other_is_newer) {
      into[name] = value;
    } else {
      into.emplace(name, value);
    }
  }
}

json::Value as_json(const Figures& figures) {
  json::Value object = json::Object();
  for (const auto& [name, value] : figures) object[name] = value;
  return object;
}

}  // namespace

void ProgressReporter::Unsent::add(const Unsent& other, bool other_is_newer) {
  merge(job, other.job, other_is_newer);
  for (const auto& [who, figures] : other.ranks) merge(ranks[who], figures, other_is_newer);
}

json::Value ProgressReporter::Unsent::body() const {
  json::Value value = json::Object();
  if (!job.empty()) value["progress"] = as_json(job);
  for (const auto& [who, figures] : ranks) value["ranks"][who] = as_json(figures);
  return value;
}

ProgressReporter::ProgressReporter(io::Reactor& reactor, JobServer server,
                                   std::chrono::milliseconds interval)
    : reactor_(reactor), server_(std::move(server)), interval_(interval), pause_(interval) {}

ProgressReporter::~ProgressReporter() {
  reactor_.run_on_loop([this] {
    alive_.reset();
    timer_.reset();
    call_.reset();
    client_.reset();
  });
}

void ProgressReporter::report(const Figures& job, const std::string& who, const Figures& process) {
  Unsent news{.job = job};
  if (!process.empty()) news.ranks[who] = process;
  const std::lock_guard lock(mutex_);
  unsent_.add(news, true);
  if (unsent_.empty() || std::exchange(posted_, true)) return;
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) send_when_due();
  });
}

bool ProgressReporter::flush(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  flushing_ = true;
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) send_when_due();
  });
  const bool done =
      changed_.wait_for(lock, deadline, [this] { return unsent_.empty() && on_its_way_.empty(); });
  flushing_ = false;
  return done;
}

void ProgressReporter::send_when_due() {
  {
    const std::lock_guard lock(mutex_);
    posted_ = true;
    if (!on_its_way_.empty()) return;  // sent() comes back
    if (unsent_.empty()) {
      posted_ = false;
      return;
    }
    if (flushing_) next_ = {};
  }
  const auto now = reactor_.now();
  if (now >= next_) return send();
  timer_ = reactor_.after(next_ - now, [this] { send_when_due(); });
}

void ProgressReporter::send() {
  std::string body;
  {
    const std::lock_guard lock(mutex_);
    on_its_way_ = std::exchange(unsent_, {});
    body = json::print(on_its_way_.body());
  }
  next_ = reactor_.now() + pause_;
  if (!client_) client_ = server_.connect(reactor_);
  http::Request request = server_.request("POST", "/profilings");
  request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  call_ = client_->fetch(
      std::move(request),
      {.deadline = kCallDeadline, .idle_timeout = {}, .limits = {}, .upgrade = false},
      [this](const Result<http::Response>& response) {
        if (!response) return sent(response.error());
        const bool taken = response->status / 100 == 2;
        sent(taken ? Status()
                   : make_status(Code::kUnavailable, "the di-server answers {}", response->status));
      });
}

void ProgressReporter::sent(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    const Unsent told = std::exchange(on_its_way_, {});
    if (!status.ok()) unsent_.add(told, false);
    changed_.notify_all();
  }
  if (status.ok()) {
    pause_ = interval_;
  } else {
    pause_ = std::max(interval_, std::min(pause_ * 2, kLongestPause));
    next_ = reactor_.now() + pause_;
    log::debug("progress was not reported: {}", status.message());
  }
  // Not from inside of the call that ends.
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) send_when_due();
  });
}

}  // namespace divisi::runtime
