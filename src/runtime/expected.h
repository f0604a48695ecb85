// Expected: an event of a task that will be waited for (Task::expect). It is heard from here on.
//
// Threads: any; the destructor when no wait is under way.
#pragma once

#include "divisi/detail/waiting.h"
#include "event/loop_core.h"
#include "runtime/task_session.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::runtime {

class Expected {
 public:
  // `capture` as in event::WaitSpec.
  Expected(std::shared_ptr<Session> session, std::string_view event,
           std::shared_ptr<divisi::detail::Capture> capture);
  ~Expected();
  Expected(const Expected&) = delete;
  Expected& operator=(const Expected&) = delete;

  const std::string& event() const noexcept { return event_; }
  const std::shared_ptr<divisi::detail::Capture>& capture() const noexcept { return capture_; }
  Session& session() const noexcept { return *session_; }

  event::WaitResult wait(event::WaitSpec spec);

 private:
  const std::shared_ptr<Session> session_;
  const std::string event_;
  const std::shared_ptr<divisi::detail::Capture> capture_;
  std::shared_ptr<event::LoopCore::Expected> heard_;
  std::optional<std::uint64_t> subscription_;  // ours alone
};

}  // namespace divisi::runtime
