#include "runtime/network.h"

#include "base/log.h"
#include "mesh/node_labels.h"
#include "runtime/progress_reporter.h"
#include "runtime/task_core.h"
#include "runtime/worker.h"

#include <algorithm>
#include <cstdlib>
#include <pthread.h>
#include <string_view>
#include <utility>

namespace divisi::runtime {

namespace {

// What a node that ends waits for the di-server to take its last figures: what a job came to is
// what people look at. Half a second was not enough for a process with 0.06 of a core.
constexpr auto kProgressDeadline = std::chrono::milliseconds(5'000);

mesh::NodeOptions node_options(const WorkerConfig& config) {
  mesh::NodeOptions options;
  options.self.job = config.job_id;
  options.self.node = config.node_id;
  options.self.labels = config.labels;
  options.secret = config.secret;
  options.listen = config.listen;
  options.listen_on_loopback = config.listen_on_loopback;
  options.dial = config.dial;
  options.dial.insert(options.dial.end(), config.attach_to.begin(), config.attach_to.end());
  options.lasting.insert(config.attach_to.begin(), config.attach_to.end());
  options.expected_nodes = config.linked_nodes;
  // In a job of known size: a mesh links every node, and the first host of a star, which dials
  // nobody, is dialled by all workers of the others.
  if (config.expected_nodes > 0 && config.topology == Topology::kMesh) {
    options.expected_peers = config.expected_nodes - 1;
  } else if (config.expected_nodes > 0 && config.topology == Topology::kStar &&
             config.attach_to.empty()) {
    options.expected_peers =
        config.expected_nodes - config.n_workers + static_cast<int>(config.linked_nodes.size());
  }
  options.join_timeout = config.join_timeout;
  options.send_timeout = config.send_timeout;
  options.queue_bytes = config.queue_bytes;
  options.memory_bytes = config.memory_bytes;
  options.max_message_bytes = config.max_message_bytes;
  options.relay = config.relay;
  options.allow_pickle = config.allow_pickle;
  const char* const trace = std::getenv("DIVISI_TRACE");
  options.trace = config.trace || (trace != nullptr && std::string_view(trace) == "1");
  return options;
}

// One report about a peer for the router's listeners.
class PeerReport final : public event::Batch {
 public:
  PeerReport(const char* name, Payload payload, int node)
      : name_(name), payload_(std::move(payload)), node_(node) {}

  void deliver(event::Dispatcher& sink) noexcept override {
    sink.dispatch({name_, payload_.view(), node_, 0});
  }

 private:
  const char* const name_;
  const Payload payload_;
  const int node_;
};

// An emit would not do: it throws what an earlier listener has thrown.
void report(event::LoopCore& listeners, mesh::PeerChange change, int node) {
  const char* const name = mesh::to_string(change);
  if (!listeners.listened(name)) return;
  PackScratch scratch;
  const PayloadView& payload = pack_args(scratch, node);
  if (listeners.dispatch_inline({name, payload, node, 0})) return;
  auto posted = std::make_unique<PeerReport>(name, Payload::copy_of(payload), node);
  if (listeners.post(std::move(posted))) listeners.wake();
}

// What the launcher hears of the events that were given up; ok if none of them changes the outcome.
// A process that was seen to end is the launcher's to judge.
Status undelivered(const std::vector<mesh::GivenUp>& peers, bool ignore_lost) {
  std::uint64_t events = 0;
  std::string nodes;
  for (const mesh::GivenUp& peer : peers) {
    if (peer.dead || (peer.lost && ignore_lost)) continue;
    events += peer.events;
    nodes += fmt::format("{} {} for node {}, which {}", nodes.empty() ? ":" : ",", peer.events,
                         peer.node, peer.lost ? "is lost" : "took nothing");
  }
  if (events == 0) return {};
  return make_status(Code::kUnavailable, "{} events were not delivered{}", events, nodes);
}

// The hooks are in place before any worker starts, and before the constructors of tests that put
// others there: linkers order constructors of the same priority as they like.
[[gnu::constructor(1000)]] void install_hooks() {
  WorkerHooks hooks;
  hooks.activate = [](const WorkerConfig& config) { return Network::instance().activate(config); };
  hooks.deactivate = [](bool failed) { return Network::instance().deactivate(failed); };
  hooks.main_ended = [](bool failed) {
    if (!failed) Network::instance().main_returned();
    TaskCore::of_process().main_ended(failed);
  };
  hooks.unseen_error = [] { return Network::instance().take_unseen_error(); };
  hooks.next_attempt = [](int retries) { Network::instance().next_attempt(retries); };
  hooks.request_finish = [] { Network::instance().request_finish(); };
  hooks.forget_finish = [] { Network::instance().forget_finish(); };
  hooks.peer_died = [](int node, const std::string& address) {
    Network::instance().peer_died(node, address);
  };
  set_worker_hooks(std::move(hooks));
  static Network& network = Network::instance();  // made before any fork
  ::pthread_atfork(nullptr, nullptr, [] { network.forked(); });
}

}  // namespace

Network& Network::instance() {
  static auto* const network = new Network;  // threads that outlive main may still use it
  return *network;
}

io::Reactor& Network::reactor() {
  std::call_once(reactor_made_, [this] { reactor_ = io::make_reactor(); });
  return *reactor_;
}

// Waits for the peers. The job may change its size meanwhile, and for as long as this node is in
// it.
Status Network::join(Membership& job) {
  reactor_->run_on_loop([&] {
    job.follower = follow_job(*reactor_, *job.node, job.config.job_links,
                              [&job](int node) { job.barrier->remove_peer(node); });
  });
  return job.node->join();
}

std::vector<mesh::GivenUp> Network::leave(Membership& job, const mesh::EndLimits& limits) {
  reactor_->run_on_loop([&] { job.follower.reset(); });
  return job.node->close(limits);
}

// On the loop, where peers come and go: one that dies meanwhile is taken out after it was put in.
void Network::add_peers_to_barrier(Membership& job) {
  reactor_->run_on_loop([&] {
    for (const auto& peer : job.node->peers()) job.barrier->add_peer(peer.node, peer.incarnation);
  });
}

Status Network::activate(const WorkerConfig& config) {
  const std::lock_guard lock(mutex_);
  if (is_active()) {
    return make_status(Code::kInvalid, "this process is node {} of a job already",
                       membership()->config.node_id);
  }
  free_ended();
  auto made = std::make_unique<Membership>(config);
  Membership& job = *made;
  auto node = mesh::Node::start(reactor(), node_options(config),
                                [this, &job](mesh::PeerChange change, const mesh::PeerInfo& peer) {
                                  peer_changed(job, change, peer);
                                });
  if (!node) return std::move(node).error();
  job.node = *std::move(node);
  joining_.store(&job);
  if (finish_requested_.load()) job.node->cancel_join();
  {
    const std::lock_guard news(early_mutex_);
    for (const auto& [dead, address] : std::exchange(died_early_, {})) {
      tell_of_death(job, dead, address);
    }
  }
  job.calls = std::make_unique<Calls>(*job.node, job.internal);
  job.barrier = std::make_unique<Barrier>(*job.node, job.internal);
  job.complete.store(true);
  add_peers_to_barrier(job);
  log::info("listen on {}, attach to [{}]", job.node->address(),
            fmt::join(job.node->dialled(), ", "));
  memberships_.push_back(std::move(made));
  Status joined = join(job);
  if (!joined.ok()) {
    joining_.store(nullptr);
    leave(job, {.total = std::chrono::milliseconds(0)});
    job.ended = true;
    free_ended();
    return joined;
  }
  // A link is there a moment before it is told: main's first barrier must know all of them.
  add_peers_to_barrier(job);
  active_.store(&job);
  joining_.store(nullptr);
  if (finish_requested_.load()) job.interruption.request_stop();
  return {};
}

void Network::peer_changed(Membership& job, mesh::PeerChange change, const mesh::PeerInfo& peer) {
  using mesh::PeerChange;
  if (job.complete.load()) {  // before that, activate() looks at the peers itself
    if (change == PeerChange::kJoined || change == PeerChange::kBack)
      job.barrier->add_peer(peer.node, peer.incarnation);
    if (change == PeerChange::kLost || change == PeerChange::kLeft) {
      job.calls->peer_gone(peer.node);
    }
  }
  report(*job.events.core(), change, peer.node);
  const auto& linked = job.config.linked_nodes;
  const bool hub = job.config.topology == Topology::kStar && job.config.local_id > 0 &&
                   std::ranges::find(linked, peer.node) != linked.end();
  if (change == PeerChange::kBack && hub) job.hub_lost.store(false);
  if (change == PeerChange::kLost && hub && job.config.finish_on_hub_lost) {
    log::warning("lost the hub, node {}: finishing", peer.node);
    job.hub_lost.store(true);
    finish_tasks(job);
  }
}

Status Network::deactivate(bool) {
  const std::lock_guard lock(mutex_);
  Membership* const job = active_.exchange(nullptr);
  if (job == nullptr) return {};
  leaving_.store(job);
  if (finish_requested_.load()) {
    job->barrier->leave();
    job->interruption.request_stop();
  }
  const auto given_up = leave(*job, {.hurry = job->interruption.get_token()});
  leaving_.store(nullptr);
  flush_progress(kProgressDeadline);
  if (const Status stopped = job->events.core()->stop(); !stopped.ok()) {
    log::error("{}", stopped.message());
  }
  unseen_error_ = job->events.take_error();
  job->internal.stop_noexcept();
  log::info("Stopping parallel worker on node: {}", job->config.node_id);
  Status outcome;
  // After a signal, the signal is the outcome.
  if (!finish_requested_.load()) outcome = undelivered(given_up, job->config.ignore_lost);
  job->ended = true;
  free_ended();
  return outcome;
}

Network::Pin Network::pin(const std::atomic<Membership*>& which) const {
  static std::atomic<std::size_t> next{0};
  static thread_local const std::size_t mine = next.fetch_add(1) % pins_.size();
  return {pins_[mine].count, which};
}

// Whoever takes a pin afterwards finds no ended membership: those are in none of the pointers any
// more. If a thread is inside of one, the next run tries again.
void Network::free_ended() {
  const auto ended = [](const auto& job) { return job->ended; };
  if (is_fork_.load() || std::ranges::none_of(memberships_, ended)) return;
  if (std::ranges::any_of(pins_, [](const PinCount& pin) { return pin.count.load() != 0; })) return;
  reactor_->run_on_loop([] {});  // what was posted about them has run
  std::erase_if(memberships_, ended);
}

std::size_t Network::kept() const {
  const std::lock_guard lock(mutex_);
  return memberships_.size();
}

// Until another attempt, if there is one.
void Network::main_returned() {
  const auto job = membership();
  if (job == nullptr) return;
  job->main_returned.store(true);
  job->node->welcome_newcomers(false);
}

std::exception_ptr Network::take_unseen_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unseen_error_, nullptr);
}

void Network::next_attempt(int retries) {
  const auto job = membership();
  if (job == nullptr) return;
  job->retries.store(retries);
  job->main_returned.store(false);
  job->node->welcome_newcomers(true);
  job->node->unsubscribe_all(job->events.core().get());
  job->events.off("*");
  job->events.take_error();
}

void Network::request_finish() {
  finish_requested_.store(true);
  if (const auto joining = pin(joining_)) joining->node->cancel_join();
  if (const auto leaving = pin(leaving_)) leaving->interruption.request_stop();
  const auto job = membership();
  if (job == nullptr) return;
  TaskCore::interrupt_all(*this);
  finish_tasks(*job);  // for listeners of `finish`
  job->interruption.request_stop();
}

void Network::finish_tasks(Membership& job) {
  PackScratch scratch;
  job.node->deliver_local("task.finish", Payload::copy_of(pack_args(scratch, true)));
}

void Network::tell_of_death(Membership& job, int node_id, const std::string& address) {
  const auto place = io::Address::parse(address);
  job.node->peer_died(node_id, place ? std::optional(*place) : std::nullopt);
  if (!place) return;
  // It does not come back: no barrier waits for it.
  reactor_->post([&job, node_id] {
    if (job.complete.load()) job.barrier->remove_peer(node_id);
  });
}

void Network::peer_died(int node_id, const std::string& address) {
  const std::lock_guard news(early_mutex_);
  // In this order: who is no longer joining is active.
  if (const auto job = pin(joining_)) return tell_of_death(*job, node_id, address);
  if (const auto job = membership()) return tell_of_death(*job, node_id, address);
  died_early_.emplace_back(node_id, address);
}

int Network::node_id() const {
  const auto job = membership();
  return job == nullptr ? -1 : job->config.node_id;
}

int Network::local_id() const {
  const auto job = membership();
  return job == nullptr ? -1 : job->config.local_id;
}

std::set<std::string> Network::labels() const {
  const auto job = membership();
  return job == nullptr ? std::set<std::string>() : job->config.labels;
}

int Network::attach_to_count() const {
  const auto job = membership();
  return job == nullptr ? 0 : static_cast<int>(job->node->dialled().size());
}

void Network::send(std::string_view topic, const PayloadView& payload, const SendOptions& options) {
  const auto job = membership();
  if (job == nullptr) return;
  // What is meant for this node alone its own task delivers.
  if (options.to.kind == Target::Kind::kNode && options.to.node == job->config.node_id) return;
  Status status;
  if (!options.policy && job->config.send_policy != Policy::kBlock) {
    SendOptions changed = options;
    changed.policy = job->config.send_policy;
    status = job->node->send(topic, payload, changed);
  } else {
    status = job->node->send(topic, payload, options);
  }
  if (status.code() != Code::kClosed) throw_if_failed(status);
}

void Network::subscribe(std::string_view topic, std::string_view event,
                        std::shared_ptr<event::LoopCore> loop) {
  if (const auto job = membership()) job->node->subscribe(topic, event, loop);
}

bool Network::begin_catch_up() {
  const auto job = membership();
  return job != nullptr && job->node->begin_catch_up();
}

void Network::catch_up(std::string_view topic, std::string_view event,
                       const std::shared_ptr<event::LoopCore>& loop, ListenerId id) {
  if (const auto job = membership()) job->node->catch_up(topic, event, loop, id);
}

void Network::cancel_catch_up() {
  if (const auto job = membership()) job->node->cancel_catch_up();
}

void Network::unsubscribe(std::string_view topic, const event::LoopCore* loop) {
  if (const auto job = membership()) job->node->unsubscribe(topic, loop);
}

void Network::unsubscribe_all(const event::LoopCore* loop) {
  if (const auto job = membership()) job->node->unsubscribe_all(loop);
}

void Network::ready() {
  if (const auto job = membership()) job->node->ready();
}

bool Network::flush(std::chrono::milliseconds deadline) {
  const auto job = membership();
  return job == nullptr || job->node->flush(deadline);
}

bool Network::flush_at_end(std::chrono::milliseconds silence) {
  const auto job = membership();
  if (job == nullptr) return true;
  return job->node->flush({.silence = silence, .hurry = job->interruption.get_token()});
}

void Network::welcome_newcomers(bool welcome) {
  const auto job = membership();
  if (job != nullptr && !job->main_returned.load()) job->node->welcome_newcomers(welcome);
}

void Network::announce_role(std::string role) {
  if (const auto job = membership()) job->node->announce_role(std::move(role));
}

void Network::announce_labels(const void* task, std::set<std::string> labels) {
  const auto job = membership();
  if (job == nullptr) return;
  const std::lock_guard lock(
      job->labels_mutex);  // until they are told: the last word is the newest
  job->task_labels.erase(task);
  if (!labels.empty()) job->task_labels.emplace(task, std::move(labels));
  std::set<std::string> all;
  for (const auto& [owner, of_task] : job->task_labels) all.insert(of_task.begin(), of_task.end());
  if (const Status status = mesh::check_labels(all); !status.ok()) {
    log::warning("the labels of the tasks stay unknown to the peers: {}", status.message());
    return;
  }
  job->node->announce_labels(std::move(all));
}

bool Network::interrupted() const {
  return is_active() && finish_requested_.load();
}

bool Network::must_finish() const {
  const auto job = membership();
  return job != nullptr && (finish_requested_.load() || job->hub_lost.load());
}

bool Network::will_retry() const {
  const auto job = membership();
  if (job == nullptr || !job->config.auto_recover || finish_requested_.load()) return false;
  const int limit = job->config.max_retries;
  return limit == kUnlimitedRetries || job->retries.load() < limit;
}

}  // namespace divisi::runtime
