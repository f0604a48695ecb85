// EventLoop: the public face of LoopCore.
#include "base/log.h"
#include "base/status.h"
#include "divisi/event.h"
#include "event/loop_core.h"

#include <map>
#include <mutex>
#include <utility>

namespace divisi {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<EventLoop>> loops;  // guarded by mutex
};

// Never destroyed: loops in it may be running while static objects are.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

// The caller holds the result until after the lock: the last handle may go with it.
std::shared_ptr<EventLoop> forget(const EventLoop* loop) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.loops.find(loop->name());
  if (found == all.loops.end() || found->second.get() != loop) return nullptr;
  std::shared_ptr<EventLoop> handle = std::move(found->second);
  all.loops.erase(found);
  return handle;
}

}  // namespace

EventLoop::EventLoop(std::string name, EventLoopOptions options)
    : core_(event::LoopCore::create(std::move(name), options)) {}

EventLoop::~EventLoop() {
  stop_noexcept();
}

std::shared_ptr<EventLoop> EventLoop::get_event_loop(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<EventLoop>& loop = all.loops[name];
  if (loop == nullptr) loop = std::make_shared<EventLoop>(name);
  return loop;
}

const std::string& EventLoop::name() const noexcept {
  return core_->name();
}

ListenerId EventLoop::add(std::string_view event, std::unique_ptr<detail::Listener> listener,
                          ListenOptions options, bool once) {
  listener->runs_inline = options.inline_;
  listener->once = once;
  return core_->add(event, std::move(listener));
}

void EventLoop::off(std::string_view pattern) {
  core_->remove(pattern);
}

void EventLoop::off(std::string_view pattern, ListenerId id) {
  core_->remove(pattern, id);
}

void EventLoop::off_function(std::string_view pattern, const void* function) {
  core_->remove_function(pattern, function);
}

void EventLoop::emit_erased(std::string_view event, detail::Emission& emission) {
  core_->emit(event, emission);
}

bool EventLoop::listened(std::string_view event) const {
  return core_->listened(event);
}

std::vector<std::string> EventLoop::events() const {
  return core_->events();
}

std::optional<Args> EventLoop::wait_for(std::string_view event, std::chrono::nanoseconds timeout,
                                        WaitOptions options) {
  core_->errors().raise();
  event::WaitSpec spec;
  spec.timeout = timeout;
  spec.stop = std::move(options.stop);
  event::WaitResult result = core_->wait(event, spec);
  switch (result.reason) {
    case event::WakeReason::kEvent:
      if (result.decode_error != nullptr) std::rethrow_exception(result.decode_error);
      return std::move(result.args);
    case event::WakeReason::kTimeout:
      if (options.ignore_timeout) return std::nullopt;
      throw TimeoutError(
          fmt::format("wait_for(\"{}\"): nothing came within {} ms", event,
                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()));
    case event::WakeReason::kError: core_->errors().raise(); return std::nullopt;
    default: return std::nullopt;
  }
}

void EventLoop::stop() {
  const std::shared_ptr<EventLoop> handle = forget(this);
  throw_if_failed(core_->stop());
  if (const std::exception_ptr error = core_->errors().take()) {
    std::rethrow_exception(error);
  }
}

void EventLoop::stop_noexcept() noexcept {
  try {
    stop();
  } catch (const std::exception& error) {
    log::error("stopped with an error nobody has seen loop={} error={}", name(), error.what());
  } catch (...) {
    log::error("stopped with an error nobody has seen loop={}", name());
  }
}

bool EventLoop::has_error() const noexcept {
  return core_->errors().has_error();
}

std::exception_ptr EventLoop::error() const {
  return core_->errors().get();
}

std::exception_ptr EventLoop::take_error() {
  return core_->errors().take();
}

void EventLoop::raise_stored() {
  core_->errors().raise();
}

}  // namespace divisi
