#include "divisi/parallel.h"

#include "base/either_stop.h"
#include "base/glob.h"
#include "base/log.h"
#include "divisi/detail/front_end.h"
#include "divisi/node_restarts.h"
#include "divisi/task.h"
#include "runtime/entry.h"
#include "runtime/listener_gate.h"
#include "runtime/network.h"
#include "runtime/runner.h"
#include "runtime/worker.h"

#include <algorithm>
#include <cstdio>
#include <cxxabi.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace divisi {

namespace {

using runtime::Network;

// Once a call, for main may end between two: what is there stays until the call ends, and only
// refuses.
Network::Pin job() {
  return Network::instance().membership();
}

// A listener that failed is told once, where it can be handled. The router's listeners themselves
// emit on: were one of them to get the error, it would fail for the fault of another.
void raise_once(EventLoop& events) {
  if (!events.has_error() || events.core()->is_current()) return;
  if (const std::exception_ptr error = events.take_error()) std::rethrow_exception(error);
}

// Peers hear of the events among `before` that nobody listens to any more. Not by listened(): it
// may free listeners, and what they took with them may call the router.
void unsubscribe_unheard(Network::Membership& job, const std::vector<std::string>& before) {
  const std::lock_guard lock(job.listeners_mutex);
  const std::vector<std::string> heard = job.events.events();  // sorted
  for (const std::string& event : before) {
    if (std::ranges::binary_search(heard, event)) continue;
    job.node->unsubscribe(event, job.events.core().get());
  }
}

Result<runtime::PlanOptions> plan_options(const ParallelOptions& options) {
  if (options.mq_type != "nng" && options.mq_type != "divisi") {
    return failure(Code::kInvalid, "mq_type '{}' is not known; use 'nng' (the built-in transport)",
                   options.mq_type);
  }
  if (options.codec != "native" && options.codec != "raw") {
    return failure(Code::kInvalid, "codec '{}' is not known; use 'native'", options.codec);
  }
  if (options.hub_lost != "ignore" && options.hub_lost != "finish") {
    return failure(Code::kInvalid, "hub_lost '{}' is not known; use 'ignore' or 'finish'",
                   options.hub_lost);
  }
  runtime::PlanOptions plan;
  plan.n_parallel_workers = options.n_parallel_workers;
  DIVISI_TRY(plan.protocol, runtime::parse_protocol(options.protocol));
  DIVISI_TRY(plan.topology, runtime::parse_topology(options.topology));
  plan.address = options.address;
  plan.ports = options.ports;
  plan.node_ids = options.node_ids;
  plan.attach_to = options.attach_to;
  plan.startup_interval = options.startup_interval;
  runtime::WorkerConfig& common = plan.common;
  common.labels = options.labels;
  common.job_id = options.job_id;
  common.secret = options.secret;
  common.allow_pickle = options.allow_pickle;
  common.join_timeout = options.join_timeout;
  common.send_timeout = options.send_timeout;
  common.finish_grace = options.grace;
  common.queue_bytes = options.queue_bytes;
  common.memory_bytes = options.memory_bytes;
  common.max_message_bytes = options.max_message_bytes;
  common.send_policy = options.send_policy;
  common.codec = options.codec;
  common.relay = options.relay;
  common.finish_on_hub_lost = options.hub_lost == "finish";
  common.ignore_lost = options.worker_lost == "ignore";
  common.auto_recover = options.auto_recover;
  common.max_retries = options.max_retries;
  common.expected_nodes = options.expected_nodes;
  common.log_level = options.log_level;
  common.trace = options.trace;
  return plan;
}

}  // namespace

Parallel::Parallel() = default;
Parallel::~Parallel() = default;

Parallel& Parallel::instance() {
  static auto* const parallel = new Parallel;
  return *parallel;
}

Parallel& Task::router() const noexcept {
  return Parallel::instance();
}

Parallel::Runner Parallel::runner(ParallelOptions options) {
  return Runner(std::move(options));
}

Parallel::Runner Parallel::runner_from_environment() {
  return Runner(Runner::FromEnvironment());
}

bool Parallel::is_active() const {
  return job() != nullptr;
}
bool Parallel::interrupted() const {
  return Network::instance().interrupted();
}
int Parallel::node_id() const {
  return Network::instance().node_id();
}
int Parallel::local_id() const {
  return Network::instance().local_id();
}
int Parallel::n_parallel_workers() const {
  const auto active = job();
  return active == nullptr ? 0 : active->config.n_workers;
}
std::set<std::string> Parallel::labels() const {
  return Network::instance().labels();
}
std::string Parallel::mq_type() const {
  return is_active() ? "nng" : "";
}
std::string Parallel::address() const {
  const auto active = job();
  return active == nullptr ? "" : active->node->address();
}
bool Parallel::auto_recover() const {
  const auto active = job();
  return active != nullptr && active->config.auto_recover;
}
int Parallel::max_retries() const {
  const auto active = job();
  return active == nullptr ? -1 : active->config.max_retries;
}
int Parallel::retries() const {
  const auto active = job();
  return active == nullptr ? 0 : active->retries.load();
}
int Parallel::get_attach_to_len() const {
  return Network::instance().attach_to_count();
}

ListenerId Parallel::add(std::string_view event, std::unique_ptr<detail::Listener> listener,
                         ListenOptions options, bool once) {
  const auto active = job();
  if (active == nullptr) {
    throw UsageError(fmt::format(
        "router.on('{}'): this process is not part of a job; call it inside main", event));
  }
  // Not under the lock: listeners may be freed, whose destructors may call the router.
  listener->runs_inline = options.inline_;
  listener->once = once;
  const auto& loop = active->events.core();
  // Reports about peers are made here: no peer may send them.
  if (mesh::is_peer_change(event)) return loop->add(event, std::move(listener));
  const bool is_behind = active->node->begin_catch_up();
  ListenerId id{};
  try {
    id = loop->add(event, std::move(listener), is_behind);
  } catch (...) {
    if (is_behind) active->node->cancel_catch_up();
    throw;
  }
  const std::lock_guard lock(active->listeners_mutex);
  if (std::ranges::binary_search(active->events.events(),
                                 event)) {  // an off() may have been faster
    active->node->subscribe(event, event, loop);
  }
  if (is_behind) active->node->catch_up(event, event, loop, id);
  return id;
}

void Parallel::off(std::string_view pattern) {
  const auto active = job();
  if (active == nullptr) return;
  const auto before = active->events.events();
  active->events.off(pattern);
  unsubscribe_unheard(*active, before);
}

Subscription Parallel::subscribe(std::string_view event, std::unique_ptr<detail::Listener> listener,
                                 ListenOptions options, bool once) {
  auto gate = std::make_shared<detail::ListenerGate>();
  const ListenerId id = add(event, detail::gated(std::move(listener), gate), options, once);
  return {std::move(gate), event, id};
}

void Parallel::remove(std::string_view event, ListenerId id) {
  const auto active = job();
  if (active == nullptr) return;
  active->events.core()->remove_exact(event, id);
  unsubscribe_unheard(*active, {std::string(event)});
}

void Parallel::send(std::string_view topic, const PayloadView& payload,
                    const SendOptions& options) {
  if (mesh::is_peer_change(topic)) {
    throw UsageError(fmt::format("router.emit('{}'): the router reports that itself", topic));
  }
  if (const auto active = job()) raise_once(active->events);
  Network::instance().send(topic, payload, options);
}

std::vector<PeerInfo> Parallel::peers() const {
  std::vector<PeerInfo> all;
  const auto active = job();
  if (active == nullptr) return all;
  for (const auto& peer : active->node->peers()) {
    all.push_back(
        {peer.node, peer.labels, peer.roles, peer.listen, peer.connected, peer.lost, peer.ready});
  }
  return all;
}

bool Parallel::wait_for_peers(std::size_t count, std::chrono::milliseconds timeout,
                              const std::stop_token& stop) const {
  const auto active = job();
  if (active == nullptr) return false;
  const EitherStop either(stop, active->interruption.get_token());
  return active->node->wait_for_peers(count, timeout, either.token());
}

void Parallel::ready() {
  Network::instance().ready();
}

bool Parallel::flush(std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const auto active = job();
  return active == nullptr || active->node->flush(timeout, stop);
}

void Parallel::barrier(std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const auto active = job();
  if (active == nullptr) return;
  const EitherStop either(stop, active->interruption.get_token());
  try {
    active->barrier->wait(timeout, either.token());
  } catch (const Error&) {
    if (interrupted()) active->barrier->leave();
    throw;
  }
}

RouterStats Parallel::stats() const {
  RouterStats all;
  const auto active = job();
  if (active == nullptr) return all;
  const mesh::NodeStats stats = active->node->stats();
  for (const auto& peer : stats.peers) {
    all.peers.push_back({peer.node, peer.sent, peer.received, peer.resent, peer.dropped, peer.lost,
                         peer.gaps, peer.reconnects, peer.queued_bytes, peer.unacknowledged,
                         peer.oldest, peer.refused});
  }
  for (const auto& topic : stats.topics) {
    all.topics.push_back({topic.topic, topic.sent, topic.received, topic.dropped});
  }
  all.unlistened = stats.unlistened;
  all.held = stats.held;
  all.undelivered = stats.undelivered;
  all.gaps = stats.gaps;
  return all;
}

std::uint64_t Parallel::begin_call() {
  const auto active = job();
  if (active == nullptr) throw UsageError("router.call: this process is not part of a job");
  return active->calls->begin();
}

Value Parallel::finish_call(std::uint64_t id, int node_id, std::string_view name,
                            const PayloadView& request, const CallOptions& options) {
  const auto active = job();
  if (active == nullptr) throw Error(Code::kClosed, "router.call: the job has ended");
  return active->calls->finish(id, node_id, name, request, options,
                               active->interruption.get_token());
}

void Parallel::answer(int node_id, std::uint64_t id, bool ok, const Value& value) {
  if (const auto active = job()) active->calls->answer(node_id, id, ok, value);
}

namespace {

// What the caller is told of the exception that is being handled.
std::string text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "threw " + runtime::describe_exception(std::current_exception());
  }
}

}  // namespace

void detail::ServedCall::call(const LocalCall&) {
  throw UsageError("a served function is called by other nodes, with router.call");
}

void detail::ServedCall::call(const PayloadView& payload) {
  std::optional<std::pair<int, std::uint64_t>> caller;  // and the number of the call
  bool ok = true;
  Value result;
  try {
    ArgReader args(payload);
    const int node = args.next<int>();
    caller.emplace(node, args.next<std::uint64_t>());
    args.begin_here();
    result = run(args);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    ok = false;
    result = Value(text_of_current_exception());
  }
  if (!caller) {
    log::warning("a call that does not say who made it is dropped: {}", result.as<std::string>());
  } else if (const auto active = job()) {
    active->calls->answer(caller->first, caller->second, ok, result);
  }
}

namespace {

void run_here(const runtime::WorkerConfig& worker, const runtime::MainFunction& call) {
  const auto [outcome, signal] = runtime::run_worker_inline(worker, call);
  if (signal != 0) {
    throw WorkerError(Code::kCancelled, fmt::format("ended by signal {}", signal), 128 + signal,
                      worker.node_id);
  }
  if (outcome.exception) std::rethrow_exception(outcome.exception);
  if (outcome.kind == runtime::WorkerOutcome::Kind::kUsage) throw UsageError(outcome.text);
  if (outcome.kind != runtime::WorkerOutcome::Kind::kDone) {
    throw WorkerError(Code::kUnavailable, fmt::format("node {}: {}", worker.node_id, outcome.text),
                      outcome.exit_code, worker.node_id);
  }
}

// Starts what `planned` says, with `call` as main if it is a single worker in this process, and
// `command` (empty: this program) as the others.
void run_plan(const ParallelOptions& options, const runtime::PlanOptions& planned,
              const runtime::MainFunction& call, std::vector<std::string> command) {
  auto worker_lost = runtime::parse_worker_lost(options.worker_lost);
  if (!worker_lost) throw_if_failed(worker_lost.error());
  if (options.max_restarts < 0) {
    throw UsageError(fmt::format("max_restarts={}: 0 or more", options.max_restarts));
  }
  auto plan = runtime::plan_workers(planned);
  if (!plan) throw_if_failed(plan.error());
  auto log_level = log::parse_level(options.log_level);
  if (!log_level) throw_if_failed(log_level.error());
  log::set_level(*log_level);
  for (const auto& warning : plan->warnings) log::warning("{}", warning);

  if (plan->workers.size() == 1) return run_here(plan->workers.front(), call);
  runtime::RunnerOptions run;
  run.worker_lost = *worker_lost;
  run.max_restarts = options.max_restarts;
  run.grace = options.grace;
  run.log_dir = options.log_dir;
  run.command_is_worker = !command.empty();
  run.command = std::move(command);
  const runtime::RunResult result = runtime::run_workers(run, plan->workers);
  if (!result.ok()) {
    throw WorkerError(result.status.code(), result.status.message(), result.exit_code,
                      result.failed_node);
  }
}

}  // namespace

void Parallel::Runner::start(const Main& main, std::vector<std::string> args) const {
  runtime::enter_worker_if_spawned();
  if (from_environment_) {
    auto worker = runtime::worker_config_from_environment();
    if (!worker) throw UsageError(worker.error().message());
    worker->args = std::move(args);
    return run_here(*worker, main.call);
  }
  auto planned = plan_options(options_);
  if (!planned) throw_if_failed(planned.error());
  if (options_.n_parallel_workers > 1) {
    if (main.function == nullptr) {
      throw UsageError(
          "several workers need a plain function: write it as one and name it with DIVISI_MAIN");
    }
    auto entry = runtime::find_entry(main.function);
    if (!entry) throw_if_failed(entry.error());
    planned->common.entry = entry->ref;
  }
  planned->common.args = std::move(args);
  run_plan(options_, *planned, main.call, {});
}

void detail::FrontEnd::run(const ParallelOptions& options, const ForeignMain& main) {
  auto planned = plan_options(options);
  if (!planned) throw_if_failed(planned.error());
  planned->common.entry.foreign = main.entry;
  run_plan(
      options, *planned, [&main](const std::vector<std::string>&) { return main.call(); },
      main.command);
}

int node_restarts() {
  const auto active = job();
  return active == nullptr ? 0 : active->config.restarts;
}

int Parallel::Runner::run_reporting(const Main& main,
                                    std::vector<std::string> args) const noexcept {
  try {
    start(main, std::move(args));
    return runtime::kExitOk;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return runtime::kExitUsage;
  } catch (...) {
    std::fprintf(stderr, "main failed: %s\n",
                 runtime::describe_exception(std::current_exception()).c_str());
    return runtime::kExitMainFailed;
  }
}

}  // namespace divisi
