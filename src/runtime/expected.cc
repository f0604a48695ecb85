#include "runtime/expected.h"

#include "base/log.h"

#include <exception>
#include <utility>

namespace divisi::runtime {

Expected::Expected(std::shared_ptr<Session> session, std::string_view event,
                   std::shared_ptr<divisi::detail::Capture> capture)
    : session_(std::move(session)),
      event_(event),
      capture_(std::move(capture)),
      // Before the subscription, with which the router may bring what it kept.
      heard_(session_->loop.core()->expect(event_, capture_, session_->step())) {
  try {
    subscription_ = session_->subscribe(event_);
  } catch (...) {
    session_->loop.core()->forget(*heard_);
    throw;
  }
}

Expected::~Expected() {
  session_->loop.core()->forget(*heard_);
  if (!subscription_ || session_->stopping.load()) return;
  try {
    session_->unsubscribe_unused(event_, *subscription_);
  } catch (const std::exception& error) {  // it stays subscribed, as after a wait_for
    log::debug("event {} stays subscribed: {}", event_, error.what());
  }
}

event::WaitResult Expected::wait(event::WaitSpec spec) {
  spec.already = [&] { return session_->ends_waits(spec.wake_on_finish); };
  return session_->loop.core()->wait(*heard_, spec);
}

}  // namespace divisi::runtime
