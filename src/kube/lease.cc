#include "kube/lease.h"

#include "base/log.h"
#include "io/jitter.h"
#include "kube/time.h"

#include <utility>

namespace divisi::kube {
namespace {

// Tries of the others do not fall on one moment.
constexpr double kJitter = 1.2;

}  // namespace

LeaderElection::LeaderElection(Client& client, LeaseOptions options, LeaseHandlers handlers)
    : client_(client),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      alive_(std::make_shared<bool>(true)) {
  DIVISI_CHECK(options_.renew_within < options_.duration,
               "a leader gives up before the others take over");
}

LeaderElection::~LeaderElection() {
  *alive_ = false;
}

void LeaderElection::start() {
  look();
}

void LeaderElection::look() {
  client_.get(resources::leases(), options_.space, options_.name, {},
              [this, alive = alive_](Result<json::Value> lease) {
                if (*alive && !stopped_) seen(std::move(lease));
              });
}

void LeaderElection::seen(Result<json::Value> lease) {
  if (!lease && lease.error().code() == Code::kNotFound) {
    json::Value made;
    made["apiVersion"] = resources::leases().api_version();
    made["kind"] = resources::leases().kind;
    made["metadata"]["name"] = options_.name;
    made["metadata"]["namespace"] = options_.space;
    return claim(std::move(made), true);
  }
  if (!lease) {
    log::warning("lease={} {}", options_.name, lease.error().message());
    return again();
  }
  observe(*lease);
  const std::string_view holder = lease->string_at({"spec", "holderIdentity"});
  const auto lasts =
      lease->int_at({"spec", "leaseDurationSeconds"}).value_or(options_.duration.count());
  const bool expired = client_.reactor().now() - observed_at_ >= std::chrono::seconds(lasts);
  if (holder.empty() || holder == options_.identity || expired)
    return claim(*std::move(lease), false);
  again();
}

// The time of the others' clocks says nothing here: only that something changed.
void LeaderElection::observe(const json::Value& lease) {
  const std::string_view holder = lease.string_at({"spec", "holderIdentity"});
  std::string now(holder);
  now.append("\n").append(lease.string_at({"spec", "renewTime"}));
  now.append("\n").append(lease.string_at({"metadata", "resourceVersion"}));
  if (now != observed_) {
    observed_ = std::move(now);
    observed_at_ = client_.reactor().now();
  }
  if (holder == holder_) return;
  holder_ = holder;
  if (handlers_.on_leader) handlers_.on_leader(holder_);
}

json::Value LeaderElection::spec(const json::Value& before, bool release) const {
  const std::string now = micro_time(options_.wall_clock());
  const std::string_view holder = before.string_at({"spec", "holderIdentity"});
  const auto transitions = before.int_at({"spec", "leaseTransitions"}).value_or(0);
  const bool same = holder == options_.identity;
  json::Value made;
  made["holderIdentity"] = release ? std::string() : options_.identity;
  made["leaseDurationSeconds"] =
      release ? std::int64_t{1} : std::int64_t{options_.duration.count()};
  const std::string_view acquired = before.string_at({"spec", "acquireTime"});
  made["acquireTime"] = same && !acquired.empty() ? std::string(acquired) : now;
  made["renewTime"] = now;
  // A lease that nobody held yet, or that was given back, changes hands all the same.
  made["leaseTransitions"] = same || before.find("spec") == nullptr ? transitions : transitions + 1;
  return made;
}

void LeaderElection::claim(json::Value lease, bool is_new) {
  lease["spec"] = spec(lease, false);
  const io::TimePoint asked = client_.reactor().now();
  const auto done = [this, asked, alive = alive_](Result<json::Value> answer) {
    if (*alive && !stopped_) claimed(std::move(answer), asked);
  };
  if (is_new) {
    client_.create(resources::leases(), options_.space, lease, {}, done);
  } else {
    client_.update(resources::leases(), lease, {}, done);
  }
}

void LeaderElection::claimed(Result<json::Value> lease, io::TimePoint asked) {
  if (!lease) {
    // Somebody else was faster: no news for the log.
    if (lease.error().code() != Code::kConflict && lease.error().code() != Code::kAlreadyExists) {
      log::warning("lease={} {}", options_.name, lease.error().message());
    }
    return again();
  }
  observe(*lease);
  last_ = *std::move(lease);
  // Counted from the request: the others may count from any moment after it.
  renewed_at_ = asked;
  // An answer that came too late says nothing of now: whoever does not lead yet asks again.
  if (!leads_ && client_.reactor().now() - asked >= options_.renew_within) return again();
  check_deadline();
  if (stopped_) return;
  if (!std::exchange(leads_, true) && handlers_.on_started) handlers_.on_started();
  again();
}

void LeaderElection::check_deadline() {
  const io::Duration left = renewed_at_ + options_.renew_within - client_.reactor().now();
  if (left <= io::Duration(0)) return lose();
  deadline_ = client_.reactor().after(left, [this] { lose(); });
}

void LeaderElection::lose() {
  if (!std::exchange(leads_, false)) return;
  log::error("lease={} could not be renewed within {} s: no longer leader", options_.name,
             options_.renew_within.count());
  stopped_ = true;
  timer_.reset();
  if (handlers_.on_lost) handlers_.on_lost();
}

void LeaderElection::again() {
  if (stopped_) return;
  const double factor = leads_ ? 1.0 : 1.0 + kJitter * io::jitter();
  const auto delay = std::chrono::duration_cast<io::Duration>(options_.retry_every * factor);
  timer_ = client_.reactor().after(delay, [this] { look(); });
}

void LeaderElection::stop(std::function<void()> released) {
  stopped_ = true;
  timer_.reset();
  deadline_.reset();
  if (!std::exchange(leads_, false)) return released();
  json::Value lease = last_;
  lease["spec"] = spec(last_, true);
  client_.update(
      resources::leases(), lease, {},
      [this, alive = alive_, released = std::move(released)](Result<json::Value> answer) {
        if (!answer) log::warning("lease={} {}", options_.name, answer.error().message());
        released();
      });
}

}  // namespace divisi::kube
