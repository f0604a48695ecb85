#include "dist/replica_sync.h"

#include "base/log.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

// A di-server that is back is noticed within this time.
constexpr io::Duration kLongestPause = std::chrono::seconds(10);

std::vector<std::string> pods_of(const std::vector<std::string>& urls) {
  std::vector<std::string> pods;
  for (const std::string& url : urls) pods.push_back(pod_of_url(url));
  return pods;
}

// "pod: <namespace>/<name> not exists in cache". Other things may be missing for a while, such as
// the AggregatorConfig: then the report is repeated.
bool names_a_pod(const Status& status) {
  return status.code() == Code::kNotFound && status.message().find("pod: ") != std::string::npos;
}

}  // namespace

ReplicaSync::ReplicaSync(io::Reactor& reactor, DiServerClient& server, io::Duration interval,
                         bool full_urls, Hooks hooks)
    : reactor_(reactor),
      server_(server),
      interval_(interval),
      full_urls_(full_urls),
      hooks_(std::move(hooks)),
      pause_(interval) {}

void ReplicaSync::start() {
  turn();
}

void ReplicaSync::turn() {
  Failed failed = hooks_.failed ? hooks_.failed() : Failed();
  if (failed.collectors.empty() && failed.learners.empty()) return get();
  const auto collectors = full_urls_ ? failed.collectors : pods_of(failed.collectors);
  const auto learners = full_urls_ ? failed.learners : pods_of(failed.learners);
  server_.report_failed(collectors, learners,
                        [this, weak = std::weak_ptr(alive_),
                         failed = std::move(failed)](const Result<Replicas>& answer) {
                          if (weak.expired()) return;
                          if (!answer) {
                            note(answer.error());
                            if (names_a_pod(answer.error()) && hooks_.on_unknown) {
                              hooks_.on_unknown();
                            }
                          } else if (hooks_.on_reported) {
                            hooks_.on_reported(failed, *answer);
                          }
                          get();
                        });
}

void ReplicaSync::get() {
  server_.get([this, weak = std::weak_ptr(alive_)](const Result<Replicas>& answer) {
    if (weak.expired()) return;
    if (!answer) {
      note(answer.error());
      return turn_later(false);
    }
    if (std::exchange(complained_, false)) log::info("di-server answers again");
    hooks_.on_replicas(*answer);
    turn_later(true);
  });
}

void ReplicaSync::turn_later(bool success) {
  pause_ = success ? interval_ : std::min(pause_ * 2, std::max(interval_, kLongestPause));
  timer_ = reactor_.after(pause_, [this] { turn(); });
}

void ReplicaSync::note(const Status& status) {
  if (std::exchange(complained_, true)) return;
  log::warning("{}; trying again until it answers", log::printable(status.message()));
}

}  // namespace divisi::dist
