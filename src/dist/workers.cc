#include "dist/workers.h"

#include "base/log.h"
#include "io/jitter.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {

Workers::Workers(io::Reactor& reactor, Master& master, const CoordinatorLog& log,
                 WorkersOptions options, Hooks hooks)
    : reactor_(reactor), master_(master), log_(log), options_(options), hooks_(std::move(hooks)) {}

void Workers::want(Role role, const std::vector<std::string>& urls) {
  std::vector<std::string> surplus;
  for (const auto& [url, worker] : workers_) {
    if (worker->role == role && std::ranges::find(urls, url) == urls.end()) surplus.push_back(url);
  }
  for (const std::string& url : surplus) drop(url);
  std::erase_if(known_[index(role)], [&](const std::string& url) {
    const bool gone = std::ranges::find(urls, url) == urls.end();
    if (gone) unlisted_[index(role)].insert(url);
    return gone;
  });
  for (const std::string& url : urls) {
    if (!workers_.contains(url) && !failed_[index(role)].contains(url)) add(role, url);
  }
}

void Workers::add(Role role, const std::string& url) {
  auto worker = std::make_shared<Worker>();
  worker->url = url;
  worker->role = role;
  worker->since = reactor_.now();
  workers_.emplace(url, worker);
  known_[index(role)].insert(url);
  log_.line("try to connect to {}", url);
  connect(worker);
}

void Workers::drop(const std::string& url) {
  const auto found = workers_.find(url);
  if (found == workers_.end()) return;
  const WorkerPtr worker = found->second;
  log::info("{} {} is not listed any more: disconnected", role_name(worker->role), url);
  master_.disconnect(url, [](const Status&) {});
  erase(worker);
}

void Workers::erase(const WorkerPtr& worker) {
  worker->retry.reset();
  workers_.erase(worker->url);
  if (worker->joined && hooks_.on_gone) hooks_.on_gone(worker->role, worker->url);
}

void Workers::connect(const WorkerPtr& worker) {
  worker->state = State::kConnecting;
  master_.connect(worker->url, json::Object{},
                  [this, weak = std::weak_ptr(worker)](const Status& status) {
                    const WorkerPtr alive = weak.lock();
                    if (!alive) return;
                    if (!status.ok()) return retry_later(alive, status.message());
                    check_resource(alive);
                  });
}

void Workers::check_resource(const WorkerPtr& worker) {
  worker->state = State::kChecking;
  if (!options_.ask_resource) return become_idle(worker);
  master_.new_task(worker->url, json::Object{{"name", "resource"}}, options_.resource_limit,
                   [this, weak = std::weak_ptr(worker)](const TaskReport& report) {
                     const WorkerPtr alive = weak.lock();
                     if (!alive || alive->state != State::kChecking) return;
                     if (report.state != TaskState::kCompleted) {
                       return retry_later(alive, report.why);
                     }
                     alive->resource = report.result;
                     become_idle(alive);
                   });
}

void Workers::retry_later(const WorkerPtr& worker, const std::string& why) {
  if (!worker->complained) {
    worker->complained = true;
    log_.line("can't acquire resource for {}({})", role_name(worker->role), worker->url);
    log::info("{}: {}; trying again", worker->url, why);
  }
  if (reactor_.now() - worker->since >= options_.connect_limit) {
    log::warning("{} {} cannot be used: {}", role_name(worker->role), worker->url, why);
    erase(worker);
    master_.disconnect(worker->url, [](const Status&) {});
    failed_[index(worker->role)].insert(worker->url);
    if (hooks_.on_failed) hooks_.on_failed(worker->role, worker->url);
    return;
  }
  worker->state = State::kWaiting;
  worker->retry = reactor_.after(options_.connect_retry, [this, weak = std::weak_ptr(worker)] {
    const WorkerPtr alive = weak.lock();
    if (!alive) return;
    const std::vector<std::string> connected = master_.slaves();
    if (std::ranges::find(connected, alive->url) != connected.end()) return check_resource(alive);
    connect(alive);
  });
}

void Workers::become_idle(const WorkerPtr& worker) {
  worker->state = State::kIdle;
  worker->complained = false;
  const bool first = !std::exchange(worker->joined, true);
  if (first) {
    log_.line("Successed to connect to {}", worker->url);
    if (hooks_.on_joined) hooks_.on_joined(worker->role, worker->url);
  }
  if (hooks_.on_idle) hooks_.on_idle(worker->role, worker->url);
}

std::optional<Workers::Idle> Workers::take(Role role) {
  std::vector<WorkerPtr> idle;
  for (const auto& [url, worker] : workers_) {
    if (worker->role == role && worker->state == State::kIdle) idle.push_back(worker);
  }
  if (idle.empty()) return std::nullopt;
  const auto chosen = static_cast<std::size_t>(io::jitter() * static_cast<double>(idle.size()));
  const WorkerPtr& worker = idle[std::min(chosen, idle.size() - 1)];
  worker->state = State::kBusy;
  return Idle{.url = worker->url, .resource = worker->resource};
}

void Workers::release(const std::string& url) {
  const auto found = workers_.find(url);
  if (found == workers_.end() || found->second->state != State::kBusy) return;
  found->second->since = reactor_.now();
  check_resource(found->second);
}

void Workers::on_lost(const std::string& url) {
  const auto found = workers_.find(url);
  if (found == workers_.end()) return;
  const WorkerPtr worker = found->second;
  if (worker->joined) {
    // The list of workers decides whether it is tried again.
    return erase(worker);
  }
  if (worker->state == State::kChecking) retry_later(worker, "lost");
}

std::size_t Workers::joined(Role role) const {
  return static_cast<std::size_t>(std::ranges::count_if(workers_, [&](const auto& each) {
    return each.second->role == role && each.second->joined;
  }));
}

std::size_t Workers::joining(Role role) const {
  return static_cast<std::size_t>(std::ranges::count_if(workers_, [&](const auto& each) {
    return each.second->role == role && !each.second->joined;
  }));
}

std::vector<std::string> Workers::joined_urls(Role role) const {
  std::vector<std::string> urls;
  for (const auto& [url, worker] : workers_) {
    if (worker->role == role && worker->joined) urls.push_back(url);
  }
  return urls;
}

bool Workers::is_joined(const std::string& url) const {
  const auto found = workers_.find(url);
  return found != workers_.end() && found->second->joined;
}

void Workers::forget_failed(Role role, const std::vector<std::string>& urls) {
  for (const std::string& url : urls) failed_[index(role)].erase(url);
  forget_known(role, urls);  // they were replaced: nobody misses them when they are not listed
}

}  // namespace divisi::dist
