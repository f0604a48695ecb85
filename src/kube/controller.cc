#include "kube/controller.h"

#include "base/log.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {
namespace {

void observe(Histogram& times, io::Duration time) {
  times.observe(std::chrono::duration<double>(time).count());
}

}  // namespace

Controller::Controller(io::Reactor& reactor, ControllerOptions options, Reconcile reconcile)
    : reactor_(reactor),
      options_(std::move(options)),
      reconcile_(std::move(reconcile)),
      queue_(reactor, options_.queue, [this] { take_more(); }),
      alive_(std::make_shared<bool>(true)) {
  if (options_.metrics != nullptr) add_metrics(*options_.metrics);
}

Controller::~Controller() {
  *alive_ = false;
}

// Under the names that dashboards for controllers expect.
void Controller::add_metrics(Metrics& metrics) {
  const auto read = [this](auto value) {
    return [this, alive = alive_, value] { return *alive ? static_cast<double>(value(*this)) : 0; };
  };
  const Metrics::Labels queue = {{"name", options_.name}};
  const auto reconciled = [&](const char* result, auto value) {
    metrics.counter("controller_runtime_reconcile_total", "Reconciliations by their result.",
                    read(value), {{"controller", options_.name}, {"result", result}});
  };
  reconciled("success", [](const Controller& c) { return c.counters_.succeeded; });
  reconciled("error", [](const Controller& c) { return c.counters_.failed; });
  metrics.gauge("workqueue_depth", "Keys that wait to be looked at.",
                read([](const Controller& c) { return c.queue_.size(); }), queue);
  metrics.counter("workqueue_adds_total", "Keys that came to the queue.",
                  read([](const Controller& c) { return c.queue_.added(); }), queue);
  metrics.counter("workqueue_retries_total", "Keys that were tried again after a failure.",
                  read([](const Controller& c) { return c.queue_.retried(); }), queue);
  waited_ = &metrics.histogram("workqueue_queue_duration_seconds",
                               "How long keys waited in the queue.", queue);
  took_ = &metrics.histogram("controller_runtime_reconcile_time_seconds",
                             "How long reconciliations took.", {{"controller", options_.name}});
}

void Controller::watch(Informer& informer, Keys keys) {
  informers_.push_back(&informer);
  const auto add = [this, &informer, keys = std::move(keys)](const ObjectPtr& object) {
    // What was there before we came is no news.
    const Priority priority = informer.synced() ? Priority::kChange : Priority::kFlood;
    for (std::string& key : keys(*object)) queue_.add(std::move(key), priority);
  };
  informer.add_handler({.on_added = add,
                        .on_changed =
                            [add](const ObjectPtr& before, const ObjectPtr& now) {
                              // It may have changed whom it concerns.
                              if (before != now) add(before);
                              add(now);
                            },
                        .on_deleted = [add](const ObjectPtr& last, bool) { add(last); },
                        .on_synced = [this] { take_more(); }});
}

void Controller::start() {
  started_ = true;
  take_more();
}

bool Controller::ready() const {
  return std::ranges::all_of(informers_,
                             [](const Informer* informer) { return informer->synced(); });
}

Status Controller::trouble() const {
  for (const Informer* const informer : informers_) {
    if (!informer->synced() && !informer->reflector().last_error().ok()) {
      return informer->reflector().last_error();
    }
  }
  return {};
}

void Controller::stop(std::function<void()> drained) {
  stopping_ = true;
  drained_ = std::move(drained);
  take_more();
}

void Controller::take_more() {
  // Not inside the handler of an informer: what a burst of events asks for is worked on once.
  if (std::exchange(taking_, true)) return;
  reactor_.post([this, alive = alive_] {
    if (!*alive) return;
    taking_ = false;
    if (stopping_) {
      if (queue_.working() == 0 && drained_) std::exchange(drained_, nullptr)();
      return;
    }
    if (!started_ || !ready()) return;
    while (queue_.working() < options_.workers) {
      const auto key = queue_.take();
      if (!key) return;
      if (waited_ != nullptr) observe(*waited_, queue_.waited());
      reconcile_(*key, [this, still = alive_, name = *key,
                        began = reactor_.now()](Result<Requeue> outcome) {
        if (*still) ended(name, began, std::move(outcome));
      });
    }
  });
}

void Controller::ended(const std::string& key, io::TimePoint began, Result<Requeue> outcome) {
  queue_.done(key);
  if (took_ != nullptr) observe(*took_, reactor_.now() - began);
  if (outcome) {
    ++counters_.succeeded;
    queue_.forget(key);
    if (outcome->after > io::Duration(0)) queue_.add_after(key, outcome->after);
  } else {
    ++counters_.failed;
    // Conflicts are everyday: somebody was faster, the cache will show it.
    if (outcome.error().code() == Code::kConflict) {
      log::debug("controller={} key={} again: {}", options_.name, key, outcome.error().message());
    } else {
      log::warning("controller={} key={} failed, tried again: {}", options_.name, key,
                   outcome.error().message());
    }
    queue_.add_failed(key);
  }
  take_more();
}

}  // namespace divisi::kube
