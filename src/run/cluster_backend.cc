#include "run/cluster_backend.h"

#include "run/cluster_link.h"
#include "run/cluster_objects.h"
#include "run/cluster_start.h"
#include "run/job_watch.h"
#include "run/manifest.h"
#include "run/package_zip.h"
#include "run/rendering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <poll.h>
#include <set>
#include <utility>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

// How long a cluster may be away while a job is followed.
constexpr std::chrono::seconds kMostAway{120};
constexpr std::chrono::seconds kAskAgain{2};
constexpr int kLookEvery = 1000;  // milliseconds
// Beyond the grace of its pods: how long a deleted job may take to go.
constexpr std::chrono::seconds kSlowEnd{60};

std::chrono::seconds grace_of(const JobRecord& record) {
  return std::chrono::seconds(record.data.int_at({"graceSeconds"}).value_or(30));
}

// A DIJob of somebody else has no record here, and a job that was started again meanwhile has a
// newer one.
Status save_where_recorded(const JobRecords& records, const JobRecord& record) {
  const auto kept = records.load(record.name);
  if (!kept || kept->data.string_at({"run"}) != record.data.string_at({"run"})) return {};
  return records.save(record);
}

bool was_started(const JobRecord& record) {
  return record.data.bool_at({"started"}).value_or(false);
}

// The first failure is the job's end, also where its workers are two Jobs.
Status end_the_others(ClusterLink& link, BackendKind kind, const std::vector<json::Value>& owners) {
  if (kind != BackendKind::kJob) return {};
  json::Value change;
  change["spec"]["suspend"] = true;
  for (const std::string& name : jobs_to_end(owners)) {
    DIVISI_TRY_STATUS(link.patch(batch_jobs(), name, change));
  }
  return {};
}

// How long the cluster has been away, and what is said about it.
class Absence {
 public:
  explicit Absence(OutputSink& sink) : sink_(sink) {}

  static bool is(const Status& status) { return status.code() == Code::kUnavailable; }
  bool lasts() const noexcept { return since_.has_value(); }

  // The cluster did not answer: kUnavailable once that has lasted too long.
  Status add(const Status& why) {
    const auto now = Clock::now();
    if (!since_) {
      since_ = now;
      sink_.note(fmt::format("{}; trying again for {} s", why.message(), kMostAway.count()));
    }
    if (now - *since_ < kMostAway) return {};
    return make_status(Code::kUnavailable,
                       "{}; given up after {} s, the job may go on: divisi jobs tells",
                       why.message(), kMostAway.count());
  }

  void end(const std::string& cluster) {
    if (since_) sink_.note(fmt::format("the cluster {} answers again", cluster));
    since_.reset();
  }

 private:
  OutputSink& sink_;
  std::optional<Clock::time_point> since_;
};

// One job, from the first look to its end.
class Following {
 public:
  Following(ClusterLink& link, BackendKind kind, const JobRecords& records, JobRecord& record,
            const FollowOptions& options, OutputSink& sink)
      : link_(link),
        kind_(kind),
        records_(records),
        record_(record),
        options_(options),
        sink_(sink),
        ended_before_(has_ended(record.state)),
        absence_(sink),
        watch_(link, kind, record,
               {.follow = options.follow, .ranks = options.ranks, .since = options.since}) {}

  Status run() {
    while (true) {
      wait();
      if (options_.wake_fd >= 0 && is_readable(options_.wake_fd) && options_.on_wake &&
          !options_.on_wake()) {
        return make_status(Code::kCancelled, "following {} was given up", record_.name);
      }
      // Lines alone change nothing; whether the cluster is away is looked at once a second.
      const auto now = Clock::now();
      if (!watch_.take_changed() && now - looked_at_ < std::chrono::milliseconds(kLookEvery)) {
        take_lines();
        continue;
      }
      looked_at_ = now;
      const JobWatch::Seen seen = watch_.seen();
      // After the look: lines that came before it are printed before its end is believed.
      take_lines();
      if (!seen.trouble.ok()) return seen.trouble;
      DIVISI_TRY_STATUS(look_whether_away(seen));
      if (!seen.synced) continue;
      if (options_.follow && !has_ended(record_.state)) DIVISI_TRY_STATUS(judge(seen));
      const auto done = is_done(seen);
      if (!done) return done.error();
      if (*done) break;
    }
    print_collected();
    return end();
  }

 private:
  static bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) > 0;
  }

  void wait() {
    std::array<pollfd, 2> watched{pollfd{watch_.fd(), POLLIN, 0},
                                  pollfd{options_.wake_fd, POLLIN, 0}};
    ::poll(watched.data(), watched.size(), kLookEvery);
  }

  void take_lines() {
    for (OutputLine& line : watch_.take_lines()) {
      if (options_.follow) {
        sink_.line(line);
      } else {
        const auto time = line.time;
        collected_.emplace(time, std::move(line));
      }
    }
  }

  // What is not followed comes in the order of its times.
  void print_collected() {
    for (const auto& [time, line] : collected_) sink_.line(line);
  }

  Status look_whether_away(const JobWatch::Seen& seen) {
    const auto now = Clock::now();
    const bool asked_for = seen.errors != errors_ || absence_.lasts();
    if (!asked_for || now - asked_ < kAskAgain) return {};
    asked_ = now;
    errors_ = seen.errors;
    const Status answer = link_.ping();
    if (!answer.ok()) return absence_.add(answer);
    absence_.end(link_.name());
    return {};
  }

  Status judge(const JobWatch::Seen& seen) {
    const JobRecord before = record_;
    judge_job(kind_, seen.owners, seen.pods, record_);
    say_waits(seen);
    const Status others = end_the_others(link_, kind_, seen.owners);
    if (Absence::is(others)) return absence_.add(others);
    DIVISI_TRY_STATUS(others);
    if (to_json(before) == to_json(record_)) return {};
    return save_where_recorded(records_, record_);
  }

  // Each reason once, with the first pod that has it.
  void say_waits(const JobWatch::Seen& seen) {
    for (const json::Value& pod : seen.pods) {
      const auto wait = wait_of_pod(pod);
      if (!wait || !said_.insert(wait->kind).second) continue;
      sink_.note(fmt::format("pod {} does not start ({}): {}", pod.string_at({"metadata", "name"}),
                             wait->kind, wait->text));
    }
    if (!has_ended(record_.state) && seen.pods.empty() && !record_.reason.empty() &&
        said_.insert(record_.reason).second) {
      sink_.note(record_.reason);
    }
  }

  Result<bool> is_done(const JobWatch::Seen& seen) {
    if (!options_.follow) return seen.logs_settled;
    if (!has_ended(record_.state)) return false;
    // A deleted job ends with its pods.
    if (seen.owners.empty() && !seen.pods.empty()) {
      const auto now = Clock::now();
      if (!deleted_at_) deleted_at_ = now;
      if (now - *deleted_at_ < grace_of(record_) + kSlowEnd) return false;
      sink_.note(fmt::format("pod {} is deleted and does not end",
                             seen.pods.front().string_at({"metadata", "name"})));
      return true;
    }
    if (!looked_) {
      // The watch of pods may be behind that of the job.
      auto listed = link_.list(kube::resources::pods(), pod_labels(kind_, record_.name));
      if (!listed && Absence::is(listed.error())) {
        const Status away = absence_.add(listed.error());
        if (!away.ok()) return failure(away);
        return false;
      }
      if (!listed) return failure(listed.error());
      looked_ = true;
      auto pods = pods_of(*std::move(listed), owner_uids(record_));
      if (!ended_before_ && !seen.owners.empty()) judge_job(kind_, seen.owners, pods, record_);
      watch_.look_at(std::move(pods));
      return false;
    }
    return seen.logs_settled;
  }

  Status end() {
    take_lines();
    if (!options_.follow || ended_before_) return {};
    if (record_.state == JobState::kStopped) {
      DIVISI_TRY_STATUS(delete_objects(link_, kind_, record_));
    }
    return save_where_recorded(records_, record_);
  }

  ClusterLink& link_;
  const BackendKind kind_;
  const JobRecords& records_;
  JobRecord& record_;
  const FollowOptions& options_;
  OutputSink& sink_;
  const bool ended_before_;
  Absence absence_;
  JobWatch watch_;
  std::multimap<std::chrono::system_clock::time_point, OutputLine> collected_;
  std::set<std::string> said_;
  std::uint64_t errors_ = 0;
  Clock::time_point looked_at_{};
  Clock::time_point asked_{};
  std::optional<Clock::time_point> deleted_at_;
  bool looked_ = false;
};

class ClusterBackend : public Backend {
 public:
  ClusterBackend(BackendKind kind, RunOptions options)
      : kind_(kind), options_(std::move(options)) {}

  BackendKind kind() const noexcept override { return kind_; }

  Result<RunJob> plan(const RunOptions& options, const std::string& entry) const override {
    if (!options.manifest.empty()) return plan_manifest(options);
    return plan_cluster(options, kind_, entry);
  }

  Result<std::vector<json::Value>> documents(const RunJob& job,
                                             const PackageCut* package) const override {
    if (!job.objects.empty()) return job.objects;
    DIVISI_TRY(const std::string zip, zip_for_config_map(package));
    return kind_ == BackendKind::kDijob ? dijob_documents(job, zip) : job_documents(job, zip);
  }

  Result<std::string> script(const RunJob& job, const PackageCut* package) const override {
    DIVISI_TRY(const std::vector<json::Value> objects, documents(job, package));
    return kubectl_script(job, objects);
  }

  Status start(const RunJob& wanted, const PackageCut* package, const JobRecords& records,
               JobRecord& record, int, OutputSink& sink) override {
    if (wanted.options.image.empty() && wanted.objects.empty()) {
      return make_status(Code::kInvalid,
                         "--backend {} needs --image, a container image with ditask in it; "
                         "--backend local needs none",
                         backend_name(kind_));
    }
    ClusterPlace place = place_of(wanted.options);
    const auto link = ClusterLink::open(place);
    if (!link) return link.error();
    // From here on the cluster is this one, whatever the kubeconfig says later.
    place.context = (*link)->context();
    place.name_space = (*link)->space();
    keep_place(place, record);
    record.data["graceSeconds"] =
        std::int64_t{std::chrono::ceil<std::chrono::seconds>(wanted.options.grace).count()};
    RunOptions options = wanted.options;
    options.name = wanted.name;
    options.name_space = place.name_space;
    auto job = wanted.objects.empty() ? plan(options, wanted.entry) : wanted;
    if (!job) return job.error();
    job->options = options;
    for (WorkerRecord& worker : record.workers) {
      worker.host = job->workers[static_cast<std::size_t>(worker.rank)].host;
    }
    DIVISI_TRY_STATUS(create_job(**link, *job, package, records, record));
    sink.note(fmt::format("cluster {}, namespace {}", (*link)->name(), (*link)->space()));
    return {};
  }

  Status refresh(const JobRecords& records, JobRecord& record) override {
    if (has_ended(record.state)) return {};
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    if (!was_started(record)) {
      if (record.supervisor && is_alive(*record.supervisor)) return {};
      return end_half_started(**link, records, record);
    }
    const auto owners = find_owners(**link, kind_, record);
    if (!owners) return owners.error();
    auto listed = (*link)->list(kube::resources::pods(), pod_labels(kind_, record.name));
    if (!listed) return listed.error();
    const auto pods = pods_of(*std::move(listed), owner_uids(record));
    judge_job(kind_, *owners, pods, record);
    DIVISI_TRY_STATUS(end_the_others(**link, kind_, *owners));
    return save_where_recorded(records, record);
  }

  Status follow(const JobRecords& records, JobRecord& record, const FollowOptions& options,
                OutputSink& sink) override {
    if (options.previous) {
      return make_status(Code::kInvalid,
                         "--previous: the backend {} keeps no output of pods that were replaced",
                         backend_name(kind_));
    }
    DIVISI_TRY_STATUS(look_first(records, record, options, sink));
    if (owner_uids(record).empty()) return {};  // it never began
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    return Following(**link, kind_, records, record, options, sink).run();
  }

  Status stop(const JobRecords& records, JobRecord& record, bool now) override {
    DIVISI_TRY_STATUS(refresh(records, record));
    if (has_ended(record.state) && !now) return {};
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    return delete_objects(**link, kind_, record,
                          now ? std::optional<std::int64_t>(0) : std::nullopt);
  }

  Status remove(const JobRecords&, const JobRecord& record) override {
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    DIVISI_TRY_STATUS(delete_objects(**link, kind_, record));
    return wait_until_gone(**link, kind_, record, grace_of(record) + kSlowEnd);
  }

  Status scale(const JobRecords& records, JobRecord& record, const std::string& task,
               int replicas) override {
    if (kind_ != BackendKind::kDijob) return Backend::scale(records, record, task, replicas);
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    const auto owners = find_owners(**link, kind_, record);
    if (!owners) return owners.error();
    if (owners->empty()) return make_status(Code::kNotFound, "{} was deleted", record.name);
    const auto resize = resize_of(owners->front(), replicas, task);
    if (!resize) return resize.error().with_context(record.name);
    return (*link)->patch(dijobs(), record.name, resize->patch, resize->by_scale ? "scale" : "",
                          resize->by_scale ? kube::PatchType::kMerge : kube::PatchType::kJson);
  }

  Status suspend(const JobRecords& records, JobRecord& record, bool suspended) override {
    if (kind_ != BackendKind::kDijob) return Backend::suspend(records, record, suspended);
    const auto link = ClusterLink::open(place_of(record));
    if (!link) return link.error();
    json::Value change;
    change["spec"]["suspend"] = suspended;
    return (*link)->patch(dijobs(), record.name, change);
  }

  Result<std::vector<JobRecord>> list_others() override {
    std::vector<JobRecord> others;
    if (kind_ != BackendKind::kDijob) return others;
    ClusterPlace place = place_of(options_);
    DIVISI_TRY(ClusterLink* const link, ClusterLink::open(place));
    if (const Status there = link->ping(); !there.ok()) return failure(there);
    place.context = link->context();
    place.name_space = link->space();
    const auto listed = link->list(dijobs(), "");
    // A cluster without the type, or one that does not show them, has none for us.
    if (!listed && listed.error().code() != Code::kUnavailable) return others;
    if (!listed) return failure(listed.error());
    for (const json::Value& dijob : *listed) {
      JobRecord record = record_of_dijob(dijob);
      keep_place(place, record);
      others.push_back(std::move(record));
    }
    return others;
  }

 private:
  // Whoever follows has patience with a cluster that is away, from the first look on.
  Status look_first(const JobRecords& records, JobRecord& record, const FollowOptions& options,
                    OutputSink& sink) {
    Absence absence(sink);
    while (true) {
      const Status status = refresh(records, record);
      if (!options.follow || !Absence::is(status)) return status;
      DIVISI_TRY_STATUS(absence.add(status));
      pollfd woken{options.wake_fd, POLLIN, 0};
      if (::poll(&woken, 1, kLookEvery) > 0 && options.on_wake && !options.on_wake()) {
        return make_status(Code::kCancelled, "following {} was given up", record.name);
      }
    }
  }

  // `divisi run` was killed before all of it was made: nothing of it may stay.
  Status end_half_started(ClusterLink& link, const JobRecords& records, JobRecord& record) {
    DIVISI_TRY_STATUS(delete_objects(link, kind_, record));
    judge_job(kind_, {}, {}, record);
    record.state = JobState::kFailed;
    record.exit_code = 128 + 9;
    record.reason = "divisi run was killed while it started the job";
    return save_where_recorded(records, record);
  }

  const BackendKind kind_;
  const RunOptions options_;
};

}  // namespace

std::unique_ptr<Backend> make_cluster_backend(BackendKind kind, const RunOptions& options) {
  return std::make_unique<ClusterBackend>(kind, options);
}

}  // namespace divisi::run
