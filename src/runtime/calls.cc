#include "runtime/calls.h"

#include "base/deadline.h"
#include "base/log.h"

#include <string>
#include <utility>

namespace divisi::runtime {

namespace {
constexpr std::string_view kReply = "call.reply";
}

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
                    std::chrono::milliseconds timeout) {
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
  std::unique_lock lock(mutex_);
  const bool in_time =
      answered_.wait_until(lock, deadline_after(timeout), [&] { return pending_[id].done; });
  const Pending result = std::move(pending_[id]);
  pending_.erase(id);
  lock.unlock();
  if (!in_time) {
    throw TimeoutError(
        fmt::format("call '{}' on node {}: no answer within {} ms", name, node, timeout.count()));
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
