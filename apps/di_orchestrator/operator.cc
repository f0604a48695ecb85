// di-operator: waits for the lease if it has to, then keeps DIJobs until it is told to end.

#include "dijob/operator.h"

#include "base/log.h"
#include "dijob/allocator_loop.h"
#include "dijob/job_secret.h"
#include "io/crypto.h"
#include "kube/lease.h"
#include "missing_rights.h"
#include "program.h"
#include "strict_admission.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace divisi::apps {
namespace {

// The reference's: while an old operator holds it, this one waits, and the other way round.
constexpr const char* kLease = "12841a5d.opendilab.org";
constexpr std::chrono::seconds kLeaseDeadline{5};  // well below the 10 s in which it is renewed

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// How many jobs are in each phase. Counted once for all gauges of a scrape: to count is to read
// every job.
class Phases {
 public:
  explicit Phases(const dijob::Operator& jobs) : jobs_(jobs) {}

  double count(const std::string& phase) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= stale_at_) {
      counts_.clear();
      for (const auto& job : jobs_.jobs().all()) {
        ++counts_[std::string(job->value().string_at({"status", "phase"}))];
      }
      stale_at_ = now + std::chrono::seconds(1);
    }
    return counts_[phase];
  }

 private:
  const dijob::Operator& jobs_;
  std::map<std::string, int> counts_;
  std::chrono::steady_clock::time_point stale_at_{};
};

void add_metrics(kube::Metrics& metrics, const dijob::Operator& jobs) {
  add_process_metrics(metrics);
  metrics.gauge("divisi_pods", "Pods of jobs that are known.",
                [&jobs] { return static_cast<double>(jobs.pods()); });
  const auto phases = std::make_shared<Phases>(jobs);
  for (const char* phase : {"Created", "Pending", "Starting", "Running", "Restarting",
                            "Rescheduling", "Succeeded", "Failed", "Unknown"}) {
    metrics.gauge("divisi_dijobs", "Jobs by their phase.",
                  [phases, phase] { return phases->count(phase); }, {{"phase", phase}});
  }
}

class Process {
 public:
  Status start(kube::Session& session, const OperatorFlags& flags) {
    log::info("di-operator of {} jobs={}", session.config().described_by,
              flags.common.space.empty() ? "all" : flags.common.space);
    strict_ = std::make_unique<StrictAdmission>(session.reactor(), session.client().transport(),
                                                flags.sync_period, flags.strict_admission);
    key_ = std::make_unique<dijob::SecretKey>(session.client(), own_space(session, flags));
    answers_.emplace(session.client().transport(), metrics_);
    rights_.emplace(session.client(), "di-operator", session.config().default_namespace,
                    host_name());
    jobs_ = std::make_unique<dijob::Operator>(session.client(), job_options(flags));
    allocator_ = std::make_unique<dijob::Allocator>(session.client(), allocator_options(flags));
    add_metrics(metrics_, *jobs_);
    DIVISI_TRY_STATUS(answer_probes(session, flags));
    if (flags.leader_elect) {
      elect(session, flags);
    } else {
      work();
    }
    return {};
  }

  // No more writes, then the lease goes back.
  void stop(std::function<void()> done) {
    strict_.reset();
    key_.reset();
    allocator_->stop();
    jobs_->stop([this, done = std::move(done)]() mutable {
      if (election_ == nullptr) return done();
      election_->stop(std::move(done));
    });
  }

 private:
  dijob::OperatorOptions job_options(const OperatorFlags& flags) {
    dijob::OperatorOptions options;
    options.names = flags.common.names;
    options.space = flags.common.space;
    options.resync_every = flags.sync_period;
    options.instance = host_name();
    options.metrics = &metrics_;
    options.force_delete_after = flags.force_delete_after;
    options.first_server_url = flags.common.first_server_url;
    options.aggregator_at_start = flags.aggregator_at_start;
    options.aggregator_config_space = flags.common.aggregator_config_space;
    options.aggregator_config = flags.common.aggregator_config;
    return options;
  }

  static dijob::AllocatorOptions allocator_options(const OperatorFlags& flags) {
    dijob::AllocatorOptions options;
    options.space = flags.common.space;
    options.period = flags.sync_period;
    options.defaults = flags.default_resources;
    return options;
  }

  Status answer_probes(kube::Session& session, const OperatorFlags& flags) {
    kube::HealthOptions health;
    health.metrics = &metrics_;
    health.ready["jobs"] = [this]() -> Status {
      // One that waits for the lease is ready to take over.
      if (!works_ || jobs_->ready()) return {};
      const Status why = jobs_->controller().trouble();
      return make_status(Code::kUnavailable, "the jobs are not known yet{}{}", why.ok() ? "" : ": ",
                         why.message());
    };
    for (const Listen& address : {flags.probe, flags.common.metrics}) {
      auto server = serve_probes(session.reactor(), address, health);
      if (!server) return server.error();
      probes_.push_back(*std::move(server));
    }
    return {};
  }

  // Where the lease and the key are.
  static std::string own_space(kube::Session& session, const OperatorFlags& flags) {
    return flags.lease_space.empty() ? session.config().default_namespace : flags.lease_space;
  }

  void work() {
    works_ = true;
    strict_->start();
    key_->load([this](Result<std::string> key) {
      if (key) {
        jobs_->use_secret_key(*std::move(key));
      } else {
        log::warning(
            "jobs have no hash of their secret, and di-server --auth=job-secret lets nobody in: "
            "{}; "
            "deploy/divisi.yaml has the Role that is missing",
            key.error().message());
      }
      jobs_->start();
      allocator_->start();
    });
  }

  void elect(kube::Session& session, const OperatorFlags& flags) {
    kube::LeaseOptions lease;
    lease.space = own_space(session, flags);
    lease.name = kLease;
    lease.identity = fmt::format("{}_{:016x}", host_name(), io::random_u64());
    lease_client_ = std::make_unique<kube::Client>(session.reactor(), session.client().transport(),
                                                   kube::ClientOptions{.deadline = kLeaseDeadline});
    lease_client_->use_lane(kube::Lane::kLease);
    log::info("waiting for lease={}/{} as={}", lease.space, lease.name, lease.identity);
    election_ = std::make_unique<kube::LeaderElection>(
        *lease_client_, std::move(lease),
        kube::LeaseHandlers{
            .on_started =
                [this] {
                  log::info("this operator leads");
                  work();
                },
            // Another may write from now on: nothing of this process may, not even to clean up.
            .on_lost =
                [] {
                  log::error("the lease was lost: another operator may lead now");
                  std::_Exit(1);
                },
            .on_leader = [](const std::string& who) { log::info("leader={}", who); }});
    metrics_.gauge("leader_election_master_status", "1 while this process leads.",
                   [this] { return election_->leads() ? 1.0 : 0.0; }, {{"name", kLease}});
    election_->start();
  }

  kube::Metrics metrics_;
  std::optional<CountedAnswers> answers_;
  std::optional<MissingRights> rights_;
  std::unique_ptr<dijob::Operator> jobs_;
  std::unique_ptr<dijob::Allocator> allocator_;
  std::unique_ptr<StrictAdmission> strict_;
  std::unique_ptr<dijob::SecretKey> key_;
  std::unique_ptr<kube::Client> lease_client_;
  std::unique_ptr<kube::LeaderElection> election_;
  std::vector<std::unique_ptr<http::Server>> probes_;
  bool works_ = false;
};

}  // namespace

int run_operator(const OperatorFlags& flags, const EndSignal& end) {
  return run_until_ended<Process>(flags, end);
}

}  // namespace divisi::apps
