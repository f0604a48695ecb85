// wait_for: an asynchronous call of the loop, waited for by another thread. For programs that do
// one thing after another, and for tests.
//
//   auto pod = wait_for<json::Value>(reactor, [&](auto done) {
//     client.get(resources::pods(), "default", "web-0", {}, done);
//   });
#pragma once

#include "base/status.h"
#include "io/reactor.h"

#include <functional>
#include <future>
#include <memory>
#include <utility>

namespace divisi::kube {

// `start` runs on the loop. Not from the loop itself. What is destroyed before it answers is
// kCancelled.
template <class T, class Start>
Result<T> wait_for(io::Reactor& reactor, Start start) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto outcome = promise->get_future();
  std::function<void(Result<T>)> done = [promise](Result<T> answer) {
    promise->set_value(std::move(answer));
  };
  promise.reset();
  reactor.post([&start, done = std::move(done)]() mutable { start(std::move(done)); });
  try {
    return outcome.get();
  } catch (const std::future_error&) {
    return failure(Code::kCancelled, "it was destroyed before it answered");
  }
}

}  // namespace divisi::kube
