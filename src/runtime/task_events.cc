// The events of a task: listeners, waiting, and the way to the router.
#include "base/log.h"
#include "divisi/error.h"
#include "runtime/labels.h"
#include "runtime/task_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::runtime {
namespace {

constexpr std::string_view kFinishEvent = "finish";
constexpr std::size_t kLongestName = 255;

// Events that nobody listens to any more stay subscribed, as they may be waited for again. But not
// all, because names are also made up as one goes (wait_for("reply_17")).
constexpr std::size_t kMostUnheard = event::EarlyEvents::kMostNames;
constexpr std::size_t kLookAgainAfter = 256;

// "task." and the event's name, without an allocation.
class Topic {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the text as far as size_
  explicit Topic(std::string_view event) {
    if (event.empty() || event.size() > kLongestName) {
      throw UsageError(
          fmt::format("an event name has 1 to {} bytes, not {}", kLongestName, event.size()));
    }
    std::ranges::copy(kPrefix, text_);
    std::ranges::copy(event, text_ + kPrefix.size());
    size_ = kPrefix.size() + event.size();
  }
  operator std::string_view() const noexcept { return {text_, size_}; }

 private:
  static constexpr std::string_view kPrefix = "task.";
  char text_[kPrefix.size() + kLongestName];
  std::size_t size_;
};

}  // namespace

void Session::listen_to_finish() {
  // Takes whatever comes: true, or true with `failed` when a node ended by its last failure.
  loop.on(kFinishEvent, [weak = weak_from_this()](const Args& args) {
    const std::shared_ptr<Session> session = weak.lock();
    if (session == nullptr) return;
    if (const auto failed = args.kwargs.find("failed");
        failed != args.kwargs.end() && failed->second == Value(true)) {
      log::warning("a peer ended by a failure and asked this task to finish");
    }
    session->set_finish(args.size() == 0 || args[0].as<bool>());
  });
  subscribe(kFinishEvent);
}

void Session::set_finish(bool finish) {
  finish_->store(finish);
  if (finish) loop.core()->wake_waiters(event::WakeReason::kFinish);
}

void Session::interrupt() {
  if (!distributed) return;
  set_finish(true);
  loop.core()->wake_waiters(event::WakeReason::kStopped);
}

std::optional<std::uint64_t> Session::subscribe(std::string_view event) {
  if (!distributed) return std::nullopt;
  const Topic topic(event);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = subscribed_.find(event); found != subscribed_.end()) {
      found->second = ++uses_;
      return std::nullopt;
    }
  }
  // The set and the router change together, or an off() at the same time could have the last word.
  const std::lock_guard subscribing(subscribe_mutex_);
  std::vector<std::string> forgotten;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++uses_;
    if (!subscribed_.emplace(event, number).second) return std::nullopt;
    if (subscribed_.size() > most_subscribed_) forgotten = forget_unheard();
  }
  router.subscribe(topic, event, loop.core());
  for (const std::string& old : forgotten) router.unsubscribe(Topic(old), loop.core().get());
  return number;
}

void Session::unsubscribe_unused(std::string_view event, std::uint64_t number) {
  const std::lock_guard subscribing(subscribe_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = subscribed_.find(event);
    if (found == subscribed_.end() || found->second != number) return;
    if (std::ranges::binary_search(heard_events(), event)) return;
    subscribed_.erase(found);
  }
  router.unsubscribe(Topic(event), loop.core().get());
}

// Asked with mutex_ held: whoever listens later finds an event that was removed, and subscribes
// again. Not by listened(): it may free listeners, whose destructors are the user's and may come
// back to this session.
std::vector<std::string> Session::heard_events() const {
  return loop.events();
}

std::vector<std::string> Session::forget_unheard() {
  const std::vector<std::string> heard = heard_events();
  std::vector<std::pair<std::uint64_t, std::string>> unheard;
  for (const auto& [event, used] : subscribed_) {
    if (!std::ranges::binary_search(heard, event)) unheard.emplace_back(used, event);
  }
  std::vector<std::string> forgotten;
  if (unheard.size() > kMostUnheard) {
    const auto recent = unheard.end() - static_cast<std::ptrdiff_t>(kMostUnheard);
    std::ranges::nth_element(unheard, recent);
    for (auto old = unheard.begin(); old != recent; ++old) {
      subscribed_.erase(old->second);
      forgotten.push_back(std::move(old->second));
    }
  }
  most_subscribed_ = std::max(kMostUnheard, subscribed_.size()) + kLookAgainAfter;
  return forgotten;
}

ListenerId Session::listen(std::string_view event,
                           std::unique_ptr<divisi::detail::Listener> listener,
                           ListenOptions listen_options, bool once) {
  // The listener first: what the router kept for this event comes with the subscription.
  listener->runs_inline = listen_options.inline_;
  listener->once = once;
  const bool is_behind = distributed && router.begin_catch_up();
  ListenerId id{};
  try {
    id = loop.core()->add(event, std::move(listener), is_behind);
  } catch (...) {
    if (is_behind) router.cancel_catch_up();
    throw;
  }
  if (event == kFinishEvent) {
    const std::lock_guard lock(mutex_);
    finish_listeners_.push_back(id);
  }
  subscribe(event);
  if (is_behind) router.catch_up(Topic(event), event, loop.core(), id);
  return id;
}

void Session::off(std::string_view pattern) {
  for (const std::string& event : loop.events()) {
    if (!glob_match(pattern, event)) continue;
    if (event != kFinishEvent) {
      loop.off(event);
      continue;
    }
    // Our own listener stays: peers could not finish this task without it.
    std::vector<ListenerId> theirs;
    {
      const std::lock_guard lock(mutex_);
      theirs.swap(finish_listeners_);
    }
    for (const ListenerId id : theirs) loop.off(event, id);
  }
  unsubscribe_unheard(pattern);
}

void Session::off(std::string_view pattern, ListenerId id) {
  loop.off(pattern, id);
  unsubscribe_unheard(pattern);
}

void Session::off_function(std::string_view pattern, const void* function) {
  loop.core()->remove_function(pattern, function);
  unsubscribe_unheard(pattern);
}

void Session::unsubscribe_unheard(std::string_view pattern) {
  if (!distributed) return;
  const std::lock_guard subscribing(subscribe_mutex_);
  std::vector<std::string> unheard;
  {
    const std::lock_guard lock(mutex_);
    const std::vector<std::string> heard = heard_events();
    std::erase_if(subscribed_, [&](const auto& item) {
      const std::string& event = item.first;
      if (!glob_match(pattern, event) || std::ranges::binary_search(heard, event)) return false;
      unheard.push_back(event);
      return true;
    });
  }
  for (const std::string& event : unheard) router.unsubscribe(Topic(event), loop.core().get());
}

bool Session::owned_here() const {
  return owner_.load() == std::this_thread::get_id() && !event::LoopCore::in_listener();
}

void Session::raise_stored() {
  if (loop.has_error() && owned_here()) loop.raise_stored();
}

event::WaitResult Session::wait(std::string_view event, event::WaitSpec spec) {
  using event::WakeReason;
  spec.step = step();
  spec.already = [&]() -> std::optional<WakeReason> {
    // Subscribed from here on until off() or stop, or until many other names came after it, not
    // only while somebody waits: a peer's answer between two waits would otherwise race with the
    // news of the subscription.
    subscribe(event);
    return ends_waits(spec.wake_on_finish);
  };
  return loop.core()->wait(event, spec);
}

std::optional<event::WakeReason> Session::ends_waits(bool wake_on_finish) {
  using event::WakeReason;
  // Not before the subscription: what came early for an event is kept only until we are ready.
  if (distributed) router.ready();
  if (stopping.load() || router.interrupted()) return WakeReason::kStopped;
  if (wake_on_finish && finish_->load()) return WakeReason::kFinish;
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) return WakeReason::kFailure;
  return std::nullopt;
}

std::optional<Args> Session::wait_for(std::string_view event, const WaitForOptions& wait_options) {
  event::WaitSpec spec;
  spec.timeout = wait_options.timeout;
  spec.wake_on_finish = wait_options.wake_on_finish;
  spec.stop = wait_options.stop;
  return given(wait(event, std::move(spec)), event, wait_options);
}

std::optional<Args> Session::given(event::WaitResult result, std::string_view event,
                                   const WaitForOptions& wait_options) {
  using event::WakeReason;
  switch (result.reason) {
    case WakeReason::kEvent:
      if (result.decode_error != nullptr) std::rethrow_exception(result.decode_error);
      return std::move(result.args);
    case WakeReason::kTimeout:
      if (wait_options.ignore_timeout) return std::nullopt;
      throw TimeoutError(fmt::format("waited {:.3f} s for the event {}, which did not come",
                                     std::chrono::duration<double>(wait_options.timeout).count(),
                                     event));
    case WakeReason::kError: raise_stored(); return std::nullopt;
    default: return std::nullopt;
  }
}

void Session::send(std::string_view event, const PayloadView& payload,
                   const SendOptions& send_options) {
  router.send(Topic(event), payload, send_options);
}

}  // namespace divisi::runtime
