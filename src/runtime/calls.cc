#include "runtime/calls.h"

#include "base/deadline.h"
#include "base/either_stop.h"
#include "base/log.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace divisi::runtime {

namespace {
constexpr std::string_view kReply = "call.reply";
// What a process that is asked to end gives its calls: it may want to save what they bring.
constexpr std::chrono::milliseconds kLastAnswers{1'000};
}  // namespace

Calls::Calls(mesh::Node& node, EventLoop& loop) : node_(node) {
  loop.on(kReply, [this](std::uint64_t id, bool ok, const Value& value) {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // too late
    found->second.done = true;
    found->second.ok = ok;
    found->second.value = value;
    answered_.notify_all();
  });
  node_.subscribe(kReply, kReply, loop.core());
}

std::uint64_t Calls::begin() {
  const std::lock_guard lock(mutex_);
  return next_++;
}

Value Calls::finish(std::uint64_t id, int node, std::string_view name, const PayloadView& request,
                    const CallOptions& wanted, const std::stop_token& interruption) {
  const std::string topic = "call." + std::string(name);
  {
    const std::lock_guard lock(mutex_);
    pending_[id].node = node;
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    pending_.erase(id);
  };
  Status sent;
  if (!node_.listens(node, topic)) {
    sent = make_status(Code::kNotFound, "node {} is not linked or does not serve it", node);
  } else {
    SendOptions options;
    options.to = Target::to_node(node);
    sent = node_.send(topic, request, options);
  }
  if (!sent.ok()) {
    forget();
    throw_if_failed(sent.with_context(fmt::format("call '{}' on node {}", name, node)));
  }
  const EitherStop either(wanted.stop, interruption);
  const auto deadline = deadline_after(wanted.timeout);
  const auto done = [&] { return pending_[id].done; };
  std::unique_lock lock(mutex_);
  bool answered = answered_.wait_until(lock, either.token(), deadline, done);
  if (!answered && interruption.stop_requested()) {
    answered = answered_.wait_until(lock, wanted.stop,
                                    std::min(deadline, deadline_after(kLastAnswers)), done);
  }
  const Pending result = std::move(pending_[id]);
  pending_.erase(id);
  lock.unlock();
  if (!answered && either.token().stop_requested()) {
    throw Error(Code::kCancelled,
                fmt::format("call '{}' on node {}: given up before the answer came", name, node));
  }
  if (!answered) {
    throw TimeoutError(fmt::format("call '{}' on node {}: no answer within {} ms", name, node,
                                   wanted.timeout.count()));
  }
  if (!result.ok) {
    throw Error(Code::kInternal, fmt::format("call '{}' on node {}: {}", name, node,
                                             result.value.as<std::string>()));
  }
  return result.value;
}

void Calls::answer(int node, std::uint64_t id, bool ok, const Value& value) {
  PackScratch scratch;
  SendOptions options;
  options.to = Target::to_node(node);
  const Status sent = node_.send(kReply, pack_args(scratch, id, ok, value), options);
  if (sent.ok()) return;
  if (sent.code() == Code::kNotFound || sent.code() == Code::kClosed) {
    log::debug("an answer for node {} is dropped, the caller has gone: {}", node, sent.message());
    return;
  }
  // One that is too long to travel is told in short.
  if (ok && sent.code() == Code::kInvalid) {
    answer(node, id, false, Value(sent.message()));
    return;
  }
  log::warning("an answer for node {} is dropped: {}", node, sent.message());
}

void Calls::peer_gone(int node) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, pending] : pending_) {
    if (pending.node != node || pending.done) continue;
    pending.done = true;
    pending.ok = false;
    pending.value = Value("the node is gone");
  }
  answered_.notify_all();
}

}  // namespace divisi::runtime
