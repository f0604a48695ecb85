#include "runtime/task_session.h"

#include "base/deadline.h"
#include "base/log.h"
#include "divisi/error.h"
#include "runtime/labels.h"
#include "runtime/signal_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::runtime {

Session::Session(StartOptions start_options, Router& the_router,
                 std::shared_ptr<std::atomic<bool>> finish, std::uint64_t the_life)
    : options(std::move(start_options)),
      router(the_router),
      distributed(the_router.is_active()),
      life(the_life),
      loop(fmt::format("task_{}", fmt::ptr(this)),
           EventLoopOptions{.on_error = options.on_error,
                            .stop_timeout = to_nanoseconds(options.stop_timeout)}),
      finish_(std::move(finish)),
      steps_(std::make_shared<JobGroup>()),
      ctx_(options.ctx != nullptr ? options.ctx : std::make_shared<Context>()),
      pool_allowed_(options.async_mode || distributed),
      labels_(initial_labels()) {
  loop.core()->leave_errors_to_owner();
}

Session::~Session() = default;

void Session::start() {
  if (!distributed) return;
  SignalWatch::come_first();  // a main brings its handlers before it starts its task
  announce_labels();
  listen_to_finish();
  // One that came before was heard by nobody.
  if (router.must_finish()) set_finish(true);
}

void Session::use(Middleware fn, const UseOptions& use_options) {
  if (fn.is_void()) return;
  const auto& filters = use_options.filter_labels;
  const auto matches = [&](const auto& pattern) { return match_labels(pattern); };
  if (!filters.empty() && std::ranges::none_of(filters, matches)) return;
  // Wrappers run without the lock, so another one may come meanwhile.
  std::unique_lock lock(mutex_);
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (std::size_t applied = 0; applied < wrappers_.size(); ++applied) {
    Wrapper wrapper = wrappers_[applied];
    lock.unlock();
    fn = wrapper(std::move(fn));
    wrapper = nullptr;
    lock.lock();
  }
  if (stopping.load()) return;  // a wrapper has stopped the task
  middleware_.push_back({std::move(fn), use_options.lock});
}

void Session::use_wrapper(Wrapper wrapper) {
  if (wrapper == nullptr) throw UsageError("Task::use_wrapper was given an empty function");
  // The wrapper runs without the lock, so more middleware, another wrapper, or the end of the task
  // may come meanwhile. All are wrapped together, or none if it throws.
  std::vector<Registered> wrapped;
  std::unique_lock lock(mutex_);
  std::size_t earlier = wrappers_.size();
  while (wrapped.size() < middleware_.size()) {
    Registered next = middleware_[wrapped.size()];
    lock.unlock();
    next.fn = wrapper(std::move(next.fn));
    wrapped.push_back(std::move(next));
    lock.lock();
    if (wrappers_.size() == earlier) continue;
    lock.unlock();
    wrapped.clear();  // begin again: the other one goes inside of this one
    lock.lock();
    earlier = wrappers_.size();
  }
  if (stopping.load()) return;
  middleware_.swap(wrapped);
  wrappers_.push_back(std::move(wrapper));
}

void Session::on_finish(std::function<void(Context&)> hook) {
  if (hook == nullptr) throw UsageError("Task::on_finish was given an empty function");
  const std::lock_guard lock(mutex_);
  finish_hooks_.push_back(std::move(hook));
}

std::size_t Session::middleware_count() const {
  const std::lock_guard lock(mutex_);
  return middleware_.size();
}

std::optional<Registered> Session::middleware_at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  if (index >= middleware_.size()) return std::nullopt;
  return middleware_[index];
}

std::shared_ptr<Context> Session::ctx() const {
  const std::lock_guard lock(mutex_);
  return ctx_;
}

std::shared_ptr<Context> Session::share(Context& context) const {
  const std::lock_guard lock(mutex_);
  if (ctx_.get() == &context) return ctx_;
  return {std::shared_ptr<void>(), &context};
}

void Session::renew() {
  std::shared_ptr<Context> fresh = ctx()->renew();
  const std::lock_guard lock(mutex_);
  ctx_.swap(fresh);
}

std::set<std::string> Session::initial_labels() const {
  std::set<std::string> labels = options.labels;
  if (options.async_mode) labels.insert("async");
  if (!distributed) {
    labels.insert("standalone");
    return labels;
  }
  labels.insert("distributed");
  labels.insert(fmt::format("node.{}", router.node_id()));
  labels.merge(router.labels());
  return labels;
}

void Session::announce_labels() {
  std::set<std::string> labels = options.labels;
  if (options.async_mode) labels.insert("async");
  if (!labels.empty()) router.announce_labels(this, std::move(labels));
}

std::set<std::string> Session::labels() const {
  const std::lock_guard lock(mutex_);
  return labels_;
}

bool Session::match_labels(std::string_view pattern) const {
  const std::lock_guard lock(mutex_);
  return any_label_matches(pattern, labels_);
}

std::set<std::string> Session::roles() const {
  const std::lock_guard lock(mutex_);
  return {roles_.begin(), roles_.end()};
}

void Session::add_role(std::string_view role) {
  constexpr std::size_t kLongestRole = 255;
  if (role.empty() || role.size() > kLongestRole) {
    throw UsageError(fmt::format("a role has 1 to {} bytes, not {}", kLongestRole, role.size()));
  }
  {
    const std::lock_guard lock(mutex_);
    roles_.emplace(role);
  }
  if (distributed) router.announce_role(std::string(role));
}

bool Session::has_role(std::string_view role) const {
  const std::lock_guard lock(mutex_);
  return roles_.empty() || roles_.contains(role);
}

bool Session::is_meant(const Target& target) const {
  if (target.one_of) return false;
  switch (target.kind) {
    case Target::Kind::kAll: return true;
    case Target::Kind::kNode: return distributed && target.node == router.node_id();
    case Target::Kind::kLabel: return match_labels(target.pattern);
    case Target::Kind::kRole: {
      const std::lock_guard lock(mutex_);
      return roles_.contains(target.pattern);
    }
  }
  return false;
}

}  // namespace divisi::runtime
