#include "run/pod_logs.h"

#include "kube/retry.h"
#include "kube/streams.h"
#include "kube/time.h"
#include "run/cluster_objects.h"
#include "run/job_log.h"

#include <algorithm>
#include <utility>

namespace divisi::run {
namespace {

// Lines of the two outputs may be a little out of order; the server cuts times to whole seconds.
constexpr std::chrono::seconds kOverlap{2};
constexpr kube::BackoffOptions kOpenAgain{.first = std::chrono::milliseconds(100),
                                          .longest = std::chrono::seconds(3),
                                          .full_jitter = false};

}  // namespace

std::optional<OutputLine> TimedLines::take(const std::string& line) {
  OutputLine made;
  const std::size_t blank = line.find(' ');
  const auto time = kube::parse_time(std::string_view(line).substr(0, blank));
  made.time = time ? *time : newest_.value_or(Time());
  made.text = time && blank != std::string::npos ? line.substr(blank + 1) : time ? "" : line;
  const std::size_t hash = std::hash<std::string>{}(line);
  if (const auto repeated = repeats_.find(hash); repeated != repeats_.end()) {
    repeats_.erase(repeated);
    return std::nullopt;
  }
  newest_ = std::max(newest_.value_or(made.time), made.time);
  recent_.emplace(made.time, hash);
  recent_.erase(recent_.begin(), recent_.lower_bound(*newest_ - kOverlap));
  return made;
}

std::optional<TimedLines::Time> TimedLines::resume() {
  repeats_.clear();
  if (!newest_) return std::nullopt;
  for (const auto& [time, hash] : recent_) repeats_.insert(hash);
  return *newest_ - kOverlap + std::chrono::seconds(1);
}

class PodLogs::Log {
 public:
  Log(PodLogs& owner, const json::Value& pod)
      : owner_(owner),
        pod_(pod.string_at({"metadata", "name"})),
        container_(main_container_of(pod)),
        rank_(rank_of_pod(pod).value_or(0)) {}

  void look_at(const json::Value& pod) {
    ended_ = pod_has_ended(pod);
    if (!has_log(pod)) return;
    readable_ = true;
    if (state_ == State::kWaiting) open();
  }

  void gone() {
    gone_ = true;
    // A stream that is open is read to its end.
    if (state_ == State::kWaiting || state_ == State::kPausing) finish();
  }

  bool settled() const { return state_ == State::kDone || !readable_; }

  void pause(bool paused) {
    if (state_ != State::kOpen) return;
    if (paused) {
      call_->pause();
    } else {
      call_->resume();
    }
  }

 private:
  enum class State { kWaiting, kOpen, kPausing, kDone };

  void open() {
    state_ = State::kOpen;
    splitter_ = {};
    kube::LogOptions options;
    options.container = container_;
    options.follow = owner_.options_.follow;
    options.timestamps = true;
    options.since_time = lines_.resume();
    if (!options.since_time) options.since_time = owner_.options_.since;
    call_ = kube::read_log(
        owner_.client_, owner_.space_, pod_, options,
        [this](std::string_view piece) { take(splitter_.add(piece)); },
        [this](const Status& status) { stream_ended(status); });
    if (owner_.paused_) call_->pause();
  }

  void take(const std::vector<std::string>& lines) {
    if (!lines.empty()) backoff_.reset();
    for (const std::string& line : lines) {
      auto made = lines_.take(line);
      if (!made) continue;
      if (owner_.options_.since && made->time < *owner_.options_.since) continue;
      made->rank = rank_;
      owner_.on_line_(*std::move(made));
    }
  }

  void stream_ended(const Status& status) {
    if (status.ok() && (ended_ || gone_ || !owner_.options_.follow)) {
      take(splitter_.finish());
      return finish();
    }
    if (status.code() == Code::kForbidden) owner_.trouble_ = status;
    if (gone_ || status.code() == Code::kNotFound || status.code() == Code::kForbidden) {
      return finish();
    }
    // It broke, or the pod has ended and we do not know it yet: the rest is asked for again.
    state_ = State::kPausing;
    pause_ = owner_.client_.reactor().after(backoff_.next(), [this] { open(); });
  }

  void finish() {
    state_ = State::kDone;
    pause_.reset();
    owner_.on_change_();
  }

  PodLogs& owner_;
  const std::string pod_;
  const std::string container_;
  const int rank_;
  State state_ = State::kWaiting;
  bool readable_ = false;  // the container has begun
  bool ended_ = false;
  bool gone_ = false;
  LineSplitter splitter_;
  TimedLines lines_;
  kube::Backoff backoff_{kOpenAgain};
  std::unique_ptr<http::Call> call_;
  std::unique_ptr<io::Timer> pause_;
};

PodLogs::PodLogs(kube::Client& client, std::string space, PodLogsOptions options,
                 std::function<void(OutputLine)> on_line, std::function<void()> on_change)
    : client_(client),
      space_(std::move(space)),
      options_(std::move(options)),
      on_line_(std::move(on_line)),
      on_change_(std::move(on_change)) {}

PodLogs::~PodLogs() = default;

void PodLogs::look_at(const json::Value& pod) {
  const auto rank = rank_of_pod(pod);
  if (!rank || (!options_.ranks.empty() && !options_.ranks.contains(*rank))) return;
  std::unique_ptr<Log>& log = logs_[std::string(pod.string_at({"metadata", "uid"}))];
  if (log == nullptr) log = std::make_unique<Log>(*this, pod);
  log->look_at(pod);
}

void PodLogs::gone(const std::string& uid) {
  if (const auto found = logs_.find(uid); found != logs_.end()) found->second->gone();
}

bool PodLogs::settled() const {
  return std::ranges::all_of(logs_, [](const auto& entry) { return entry.second->settled(); });
}

void PodLogs::pause(bool paused) {
  paused_ = paused;
  for (const auto& [uid, log] : logs_) log->pause(paused);
}

}  // namespace divisi::run
