#include "divisi/detail/front_end.h"

#include "base/log.h"
#include "divisi/parallel.h"
#include "divisi/task.h"
#include "event/loop_core.h"
#include "event/strand.h"
#include "runtime/expected.h"
#include "runtime/network.h"
#include "runtime/secret_file.h"
#include "runtime/task_core.h"
#include "runtime/worker.h"

#include <utility>

namespace divisi::detail {

namespace {

event::WaitSpec wait_spec(const WaitCall& call) {
  event::WaitSpec spec;
  spec.timeout = call.timeout;
  spec.wake_on_finish = call.wake_on_finish;
  spec.capture = call.capture;
  spec.sleeper = call.sleeper;
  spec.registered = call.registered;
  return spec;
}

Waited waited(const event::WaitResult& result) {
  using event::WakeReason;
  switch (result.reason) {
    case WakeReason::kEvent:
      if (result.decode_error != nullptr) std::rethrow_exception(result.decode_error);
      return Waited::kEvent;
    case WakeReason::kTimeout: return Waited::kTimeout;
    case WakeReason::kCancelled: return Waited::kInterrupted;
    default: return Waited::kNothing;
  }
}

}  // namespace

void FrontEnd::set_rest_hook(void (*hook)() noexcept) {
  event::set_rest_hook(hook);
}

// --- loops ---

Waited FrontEnd::wait(EventLoop& loop, const WaitCall& call) {
  const auto result = loop.core()->wait(call.event, wait_spec(call));
  if (result.reason == event::WakeReason::kError) loop.raise_stored();
  return waited(result);
}

void FrontEnd::off(EventLoop& loop, std::string_view pattern, const void* function) {
  loop.core()->remove_function(pattern, function);
}

// --- tasks ---

void FrontEnd::start(Task& task, StartOptions options) {
  task.core_->start(std::move(options));
}

void FrontEnd::stop(Task& task, bool failed) {
  task.core_->stop(0, failed);
}

void FrontEnd::fail(Task& task) {
  if (const auto session = task.core_->latest()) {
    session->fail(std::make_exception_ptr(Error(Code::kCancelled, "a step of the task failed")));
  }
}

std::uint64_t FrontEnd::enter_step(Task& task, std::uint64_t step) {
  const auto session = task.core_->latest();
  return session == nullptr ? 0 : session->enter_step(step);
}

void FrontEnd::end_iteration(Task& task) {
  if (const auto session = task.core_->latest()) session->loop.core()->end_iteration();
}

void FrontEnd::raise_stored(Task& task) {
  if (const auto session = task.core_->latest()) session->raise_stored();
}

void FrontEnd::ready(Task& task) {
  const auto session = task.core_->latest();
  if (session == nullptr) return;
  session->own();  // its run begins
  if (session->distributed) session->router.ready();
}

ListenerId FrontEnd::listen(Task& task, std::string_view event, std::unique_ptr<Listener> listener,
                            bool once) {
  return task.listen(event, std::move(listener), {}, once);
}

void FrontEnd::off(Task& task, std::string_view pattern, const void* function) {
  task.off_function(pattern, function);
}

void FrontEnd::emit(Task& task, std::string_view event, const EmitOptions& options,
                    Outgoing& outgoing) {
  Task::Emitting emitting(task, event, options);
  if (emitting.remote()) {
    const PayloadView& payload = outgoing.pack();
    struct Sent {
      Outgoing& outgoing;
      ~Sent() { outgoing.sent(); }
    } const sent{outgoing};
    emitting.send(payload);
  }
  if (emitting.local()) emitting.deliver(outgoing.emission());
}

Waited FrontEnd::wait(Task& task, const WaitCall& call) {
  const auto session = task.core_->require("wait_for");
  const auto result = session->wait(call.event, wait_spec(call));
  if (result.reason == event::WakeReason::kError) session->raise_stored();
  return waited(result);
}

std::shared_ptr<runtime::Expected> FrontEnd::expect(Task& task, std::string_view event,
                                                    std::shared_ptr<Capture> capture) {
  return std::make_shared<runtime::Expected>(task.core_->require("expect"), event,
                                             std::move(capture));
}

Waited FrontEnd::wait(runtime::Expected& expected, const WaitCall& call) {
  const auto result = expected.wait(wait_spec(call));
  if (result.reason == event::WakeReason::kError) expected.session().raise_stored();
  return waited(result);
}

// --- the router ---

ListenerId FrontEnd::listen(Parallel& router, std::string_view event,
                            std::unique_ptr<Listener> listener, bool once) {
  return router.add(event, std::move(listener), {}, once);
}

void FrontEnd::forget(Parallel& router, std::string_view event, ListenerId id) {
  router.remove(event, id);
}

bool FrontEnd::accepts_pickle() {
  const auto job = runtime::Network::instance().membership();
  return job != nullptr && (!job->config.secret.empty() || job->config.allow_pickle);
}

std::uint64_t FrontEnd::begin_call() {
  return Parallel::instance().begin_call();
}

Value FrontEnd::finish_call(std::uint64_t call, int node_id, std::string_view name,
                            const PayloadView& request, std::chrono::milliseconds timeout) {
  return Parallel::instance().finish_call(call, node_id, name, request, {.timeout = timeout});
}

void FrontEnd::answer(int node_id, std::uint64_t call, bool ok, const Value& value) {
  Parallel::instance().answer(node_id, call, ok, value);
}

// --- workers ---

bool FrontEnd::is_spawned() {
  return runtime::is_spawned_worker();
}

int FrontEnd::run_spawned(
    const std::function<std::function<int()>(const ForeignEntry& entry)>& resolve) {
  return runtime::run_spawned_worker(
      [&](const runtime::EntryRef& ref) -> Result<runtime::MainFunction> {
        try {
          auto main = resolve({ref.foreign, ref.module, ref.name, ref.search_path});
          return [main = std::move(main)](const std::vector<std::string>&) { return main(); };
        } catch (const Error& error) {
          return failure(error.code(), "{}", error.what());
        }
      });
}

SecretFile FrontEnd::read_secret_file(const std::string& path, std::string_view option) {
  Result<runtime::Secret> secret = runtime::read_secret_file(path, option);
  if (!secret) throw UsageError(std::string(secret.error().message()));
  return {std::move(secret->value), std::move(secret->warning)};
}

void FrontEnd::open_node(const NodeSpec& spec) {
  runtime::WorkerConfig config;
  config.node_id = spec.node_id;
  config.topology = runtime::Topology::kAlone;
  config.listen = spec.listen;
  config.attach_to = spec.attach_to;
  config.labels = spec.labels;
  config.job_id = spec.job_id;
  config.secret = spec.secret;
  config.allow_pickle = spec.allow_pickle;
  config.join_timeout = spec.join_timeout;
  const Status status = runtime::Network::instance().activate(config);
  if (!status.ok()) throw Error(status.code(), status.message());
}

void FrontEnd::close_node() {
  const Status left = runtime::Network::instance().deactivate(false);
  if (!left.ok()) log::error("{}", left.message());
}

}  // namespace divisi::detail
