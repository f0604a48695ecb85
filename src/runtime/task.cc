#include "divisi/task.h"

#include "base/log.h"
#include "event/loop_core.h"
#include "runtime/expected.h"
#include "runtime/task_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace divisi {
namespace {

std::string name_of_group(std::string_view kind, const std::vector<Middleware>& parts) {
  std::string names;
  for (const Middleware& part : parts) {
    if (!names.empty()) names += ',';
    names += part.name();
  }
  return fmt::format("{}<{}>", kind, names);
}

// A void part does nothing anyway; leaving it out saves its fiber.
std::vector<Middleware> without_void(std::vector<Middleware> parts) {
  std::erase_if(parts, [](const Middleware& part) { return part.is_void(); });
  return parts;
}

}  // namespace

void Back::operator()() const {
  if (const auto session = session_.lock(); session != nullptr) session->backward(*this);
}

Back::operator bool() const noexcept {
  return !suspended_.expired();
}

Back Wrapped::operator()(Context& ctx) const {
  return call_(ctx);
}

Task::Task(runtime::Router& router, StartOptions options)
    : core_(std::make_unique<runtime::TaskCore>(router, std::move(options))) {}

Task::~Task() {
  try {
    core_->stop(0, std::uncaught_exceptions() > core_->entered);
  } catch (const std::exception& error) {
    log::error("while a task was destroyed: {}", error.what());
  } catch (...) {
    log::error("an error of an unknown type while a task was destroyed");
  }
}

// --- life ---

Running Task::start(StartOptions options) {
  return {*this, begin(std::move(options))};
}
std::uint64_t Task::begin(StartOptions options) {
  return core_->start(std::move(options));
}
void Task::end(std::uint64_t life, bool failed) {
  core_->stop(life, failed);
}
void Task::stop() {
  core_->stop(0, false);
}

Task& Task::on_finish(std::function<void(Context&)> hook) {
  core_->require_or_start("on_finish")->on_finish(std::move(hook));
  return *this;
}

bool Task::running() const noexcept {
  return core_->current.load() != nullptr;
}

bool Task::async_mode() const noexcept {
  const auto session = core_->latest();
  return session == nullptr ? core_->defaults.async_mode : session->options.async_mode;
}

int Task::n_async_workers() const noexcept {
  const auto session = core_->latest();
  return session == nullptr ? core_->defaults.n_async_workers : session->options.n_async_workers;
}

// --- pipeline ---

// NOLINTNEXTLINE(performance-unnecessary-value-param): options are given as {...}
Task& Task::use(Middleware fn, UseOptions options) {
  core_->require_or_start("use")->use(std::move(fn), options);
  return *this;
}

Task& Task::use_wrapper(Wrapper wrapper) {
  core_->require_or_start("use_wrapper")->use_wrapper(std::move(wrapper));
  return *this;
}

std::size_t Task::middleware_count() const {
  const auto session = core_->latest();
  return session == nullptr ? 0 : session->middleware_count();
}

Middleware Task::serial_of(std::string_view kind, std::vector<Middleware> parts) {
  std::string name = name_of_group(kind, parts);
  return named(std::move(name), [parts = without_void(std::move(parts))](Context& ctx) {
    runtime::CallStack stack;
    bool suspended = false;
    for (const Middleware& part : parts) {
      suspended = stack.calls.emplace_back(part, ctx).forward() || suspended;
    }
    if (!suspended) return;
    suspend();
    for (MiddlewareCall& call : std::views::reverse(stack.calls)) call.backward();
  });
}

Middleware Task::parallel_of(std::vector<Middleware> parts) {
  const auto session = core_->require_or_start("parallel");
  if (session->options.async_mode) {
    throw UsageError(
        "Task::parallel is not allowed in async mode, where all middleware run in parallel");
  }
  session->allow_pool();
  std::string name = name_of_group("parallel", parts);
  return named(std::move(name),
               [core = core_.get(), parts = without_void(std::move(parts))](Context& ctx) {
                 core->require("parallel")->run_parallel(parts, ctx);
               });
}

Wrapped Task::wrap(Middleware fn, Lock lock) {
  std::string name = fn.name();
  return {std::move(name),
          [core = core_.get(), fn = std::move(fn), lock = std::move(lock)](Context& ctx) {
            const auto session = core->require("wrap");
            return session->forward(fn, session->share(ctx), lock);
          }};
}

void Task::run(std::int64_t max_step) {
  core_->require("run")->run(max_step);
}

Back Task::forward(Middleware fn, Context* ctx, std::optional<bool> async_mode) {
  const auto session = core_->require("forward");
  std::shared_ptr<Context> shared = ctx == nullptr ? session->ctx() : session->share(*ctx);
  if (!async_mode.value_or(session->options.async_mode)) {
    return session->forward(std::move(fn), std::move(shared), {});
  }
  session->allow_pool();
  session->forward_on_pool(std::move(fn), std::move(shared), {});
  return {};
}

Task& Task::backward(std::optional<bool> async_mode) {
  const auto session = core_->require("backward");
  const bool on_pool = async_mode.value_or(session->options.async_mode);
  if (on_pool) session->allow_pool();
  session->backward(on_pool);
  return *this;
}

Task& Task::backward(std::vector<Back>& stack, std::optional<bool> async_mode) {
  if (stack.empty()) return backward(async_mode);
  const auto session = core_->require("backward");
  const bool on_pool = async_mode.value_or(session->options.async_mode);
  if (on_pool) session->allow_pool();
  session->backward(std::exchange(stack, {}), on_pool);
  return *this;
}

std::size_t Task::backward_stack_size() const {
  const auto session = core_->latest();
  return session == nullptr ? 0 : session->backward_stack_size();
}

Task& Task::renew() {
  core_->require("renew")->renew();
  return *this;
}

Task& Task::sync() {
  core_->require("sync")->sync();
  return *this;
}

void Task::submit(std::function<void()> job) {
  core_->require("async_executor")->submit(std::move(job));
}

// --- state ---

std::shared_ptr<Context> Task::shared_ctx() const {
  const auto session = core_->latest();
  if (session == nullptr) runtime::TaskCore::refuse("ctx");
  return session->ctx();
}

bool Task::finish() const noexcept {
  return core_->finish->load();
}

void Task::set_finish(bool finish) {
  if (const auto session = core_->latest(); session != nullptr) {
    session->set_finish(finish);
  } else {
    core_->finish->store(finish);
  }
}

std::set<std::string> Task::labels() const {
  const auto session = core_->latest();
  return session == nullptr ? core_->defaults.labels : session->labels();
}

bool Task::match_labels(std::string_view pattern) const {
  const auto session = core_->latest();
  return session != nullptr && session->match_labels(pattern);
}

bool Task::match_labels(const std::vector<std::string>& patterns) const {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return match_labels(std::string_view(pattern));
  });
}

bool Task::match_labels(std::initializer_list<std::string_view> patterns) const {
  return std::ranges::any_of(patterns,
                             [&](std::string_view pattern) { return match_labels(pattern); });
}

std::set<std::string> Task::roles() const {
  const auto session = core_->latest();
  return session == nullptr ? std::set<std::string>() : session->roles();
}

Task& Task::add_role(std::string_view role) {
  core_->require_or_start("add_role")->add_role(role);
  return *this;
}

bool Task::has_role(std::string_view role) const {
  const auto session = core_->latest();
  return session == nullptr || session->has_role(role);
}

int Task::get_attach_to_len() const {
  if (!core_->router.is_active()) {
    throw UsageError(
        "Task::get_attach_to_len needs an active router: run under Parallel or ditask");
  }
  return core_->router.attach_to_count();
}

// --- events ---

Task::Emitting::Emitting(Task& owner, std::string_view event, const EmitOptions& options)
    : task_(owner), event_(event), options_(options) {
  runtime::TaskCore& core = *task_.core_;
  core.emitting.fetch_add(1);
  session_ = core.current.load();
  try {
    if (session_ == nullptr) runtime::TaskCore::refuse("emit");
    session_->raise_stored();
  } catch (...) {
    core.emitting.fetch_sub(1);
    throw;
  }
  if (!session_->accepting.load()) {
    log::debug("the task is stopping: event {} is ignored", event);
    return;
  }
  remote_ = session_->distributed && !options.only_local;
  if (remote_) session_->loop.core()->note_emit();
  local_ = options.only_local || (!options.only_remote && session_->is_meant(options.to));
  if (options.only_remote && !options.only_local && !session_->distributed) {
    log::debug("event {} is for peers only, but the router is not active", event);
  }
}

Task::Emitting::~Emitting() {
  task_.core_->emitting.fetch_sub(1);
}

void Task::Emitting::send(const PayloadView& payload) {
  session_->send(event_, payload, {options_.to, options_.policy});
}

void Task::Emitting::refuse() const {
  throw UsageError(
      fmt::format("event {} has an argument that cannot leave the process: list its fields with "
                  "DIVISI_FIELDS, or emit with divisi::only_local",
                  event_));
}

void Task::Emitting::deliver(detail::Emission& emission) {
  event::LoopCore& loop = *session_->loop.core();
  if (const std::uint64_t step = session_->step(); step != 0) {
    loop.emit(event_, emission, step);
  } else {
    loop.emit(event_, emission);
  }
}

ListenerId Task::listen(std::string_view event, std::unique_ptr<detail::Listener> listener,
                        ListenOptions options, bool once) {
  return core_->require_or_start(once ? "once" : "on")
      ->listen(event, std::move(listener), options, once);
}

void Task::off(std::string_view pattern) {
  core_->require("off")->off(pattern);
}
void Task::off(std::string_view pattern, ListenerId id) {
  core_->require("off")->off(pattern, id);
}
void Task::off_function(std::string_view pattern, const void* function) {
  core_->require("off")->off_function(pattern, function);
}

bool Task::listened(std::string_view event) const {
  const auto session = core_->latest();
  return session != nullptr && session->loop.listened(event);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as for use
std::optional<Args> Task::wait_for(std::string_view event, WaitForOptions options) {
  return core_->require("wait_for")->wait_for(event, options);
}

Expectation Task::expect(std::string_view event) {
  return Expectation(std::make_shared<runtime::Expected>(core_->require("expect"), event, nullptr));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as for use
std::optional<Args> Expectation::wait(WaitForOptions options) {
  if (expected_ == nullptr) {
    throw UsageError(
        "Expectation::wait was called on one that was moved from: call it on the object that it "
        "was moved to");
  }
  event::WaitSpec spec;
  spec.timeout = options.timeout;
  spec.wake_on_finish = options.wake_on_finish;
  spec.stop = options.stop;
  return expected_->session().given(expected_->wait(std::move(spec)), expected_->event(), options);
}

std::exception_ptr Task::stored_error() const {
  const auto session = core_->latest();
  return session == nullptr ? nullptr : session->loop.error();
}

// --- the scope of a start ---

Running::Running(Task& owner, std::uint64_t life) noexcept
    : task_(&owner), life_(life), entered_(std::uncaught_exceptions()) {}

void Running::stop() {
  if (task_ != nullptr) task_->end(life_, false);
}

Running::~Running() noexcept(false) {
  if (task_ == nullptr) return;
  const bool failed = std::uncaught_exceptions() > entered_;
  try {
    task_->end(life_, failed);
  } catch (...) {
    // The exception that ends the scope is the one to tell; ours came after it.
    if (!failed) throw;
    try {
      throw;
    } catch (const std::exception& error) {
      log::error("while the task stopped: {}", error.what());
    } catch (...) {
      log::error("an error of an unknown type while the task stopped");
    }
  }
}

}  // namespace divisi
