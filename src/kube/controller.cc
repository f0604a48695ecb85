#include "kube/controller.h"

#include "base/log.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {

Controller::Controller(io::Reactor& reactor, ControllerOptions options, Reconcile reconcile)
    : reactor_(reactor),
      options_(std::move(options)),
      reconcile_(std::move(reconcile)),
      queue_(reactor, options_.queue, [this] { take_more(); }),
      alive_(std::make_shared<bool>(true)) {}

Controller::~Controller() {
  *alive_ = false;
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
      reconcile_(*key, [this, still = alive_, name = *key](Result<Requeue> outcome) {
        if (*still) ended(name, std::move(outcome));
      });
    }
  });
}

void Controller::ended(const std::string& key, Result<Requeue> outcome) {
  queue_.done(key);
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
