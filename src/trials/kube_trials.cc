#include "trials/kube_trials.h"

#include "http/base64.h"
#include "kube/retry.h"
#include "kube/time.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace divisi::trials {
namespace {

// A writer that does not rename may still be writing: how long a result may be no result.
constexpr io::Duration kTruncated = std::chrono::seconds(2);
constexpr io::Duration kTruncatedPoll = std::chrono::milliseconds(200);
constexpr io::Duration kHealthEvery = std::chrono::seconds(1);
constexpr io::Duration kHelperWithin = std::chrono::seconds(60);
constexpr io::Duration kProbeWithin = std::chrono::seconds(10);
// A server that restarts is not worth a line.
constexpr int kUnwellBeforeTold = 2;
constexpr int kFailedLooksBeforeTold = 3;
constexpr std::size_t kLogBytes = 4096;
constexpr std::int64_t kLogLines = 100;
constexpr io::Duration kLogWithin = std::chrono::seconds(5);
constexpr std::string_view kNoResult = "the program wrote no result";

// Whether the same request may succeed later.
bool for_a_moment(const Status& status) {
  static constexpr std::array kCodes{Code::kTooManyRequests, Code::kTimeout,  Code::kUnavailable,
                                     Code::kInternal,        Code::kClosed,   Code::kConflict,
                                     Code::kExpired,         Code::kCancelled};
  return std::ranges::find(kCodes, status.code()) != kCodes.end();
}

bool alive_phase(std::string_view phase) {
  return phase == "Pending" || phase == "Running";
}

kube::InformerOptions cache_options(const kube::Resource& resource,
                                    const KubeTrialsOptions& options) {
  kube::InformerOptions made;
  made.reflector.resource = resource;
  made.reflector.space = options.space;
  made.reflector.label_selector = fmt::format("{}={}", kProjectLabel, options.project);
  return made;
}

// The last posted report that was passed on.
struct LastReport {
  std::int64_t step = -1;
  json::Value figures{};
};

// Reports that di-server keeps, beyond the last one, as lines of a metrics file. The last one comes
// again when its step has got further figures.
std::string report_lines(const json::Value& job, LastReport& last) {
  const json::Value* posted = job.find_path({"status", "trial", "reports"});
  if (posted == nullptr || posted->as_object() == nullptr) return {};
  std::map<std::int64_t, const json::Value*> steps;
  for (const auto& [text, figures] : *posted->as_object()) {
    std::int64_t step = -1;
    std::from_chars(text.data(), text.data() + text.size(), step);
    if (step < 0 || figures.as_object() == nullptr) continue;
    const bool grown = step == last.step && !json::equivalent(figures, last.figures);
    if (step > last.step || grown) steps[step] = &figures;
  }
  std::string lines;
  for (const auto& [step, figures] : steps) {
    json::Value numbers = *figures;
    for (auto& [name, value] : *numbers.as_object()) {
      if (value.as_string() != nullptr) value = json::Value();  // not a number
    }
    lines += fmt::format("{{\"step\":{},\"values\":{}}}\n", step, json::print(numbers));
  }
  if (!steps.empty()) last = {steps.rbegin()->first, *steps.rbegin()->second};
  return lines;
}

// The result that di-server keeps, if it is one of the files that count.
std::optional<PodFile> posted_result(const json::Value& job,
                                     const std::vector<std::string>& names) {
  const json::Value* posted = job.find_path({"status", "trial", "result"});
  if (posted == nullptr) return std::nullopt;
  const std::string_view name = posted->string_at({"name"});
  const bool counts = std::ranges::any_of(names, [name](std::string_view known) {
    return known == name || (known.ends_with(name) && known[known.size() - name.size() - 1] == '/');
  });
  auto bytes = http::decode_base64(posted->string_at({"bytes"}));
  if (!counts || !bytes) return std::nullopt;
  return PodFile{fmt::format("posted to di-server/{}", name), *std::move(bytes)};
}

// Why a pod does not come to run, where that does not mend itself soon.
std::string waiting_reason(const json::Value& pod) {
  const json::Value* states = pod.find_path({"status", "containerStatuses"});
  if (states == nullptr || states->as_array() == nullptr) return {};
  for (const json::Value& each : *states->as_array()) {
    const std::string_view reason = each.string_at({"state", "waiting", "reason"});
    if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing") continue;
    return fmt::format("{}: {}", reason, each.string_at({"state", "waiting", "message"}));
  }
  return {};
}

}  // namespace

const kube::Resource& dijobs() {
  static const kube::Resource resource{"diengine.opendilab.org", "v2alpha1", "dijobs", "DIJob"};
  return resource;
}

struct KubeTrials::Trial {
  TrialSpec spec{};
  TrialObjects objects{};
  std::string pod{};
  Stage stage = Stage::kMakingMap;
  bool job_seen = false;
  bool pod_seen = false;
  bool started = false;
  bool suspected = false;
  bool looking = false;
  bool look_again = false;  // what is being looked at may be older than the end of the pod
  bool map_made = false;    // or may have been: it is deleted
  bool job_made = false;
  enum class Helper { kNone, kStarting, kRuns, kFailed } helper = Helper::kNone;
  std::string node{};     // where its pod was
  std::string created{};  // when its job was
  std::string job_uid{};
  int failed_looks = 0;             // in a row
  std::optional<PodFile> posted{};  // the result that its reporter left at di-server, not looked at
  std::optional<std::string> last_post{};  // the bytes of the last one
  bool at_post = false;                    // a posted result is being looked at
  std::optional<std::string> bad_post{};   // why it is none
  std::string trouble{};                   // why its reporter could not
  bool posts_read = false;                 // from the cluster itself, after the end
  LastReport last_report{};
  std::size_t reports_from = 0;  // of the metrics file, passed on already
  bool cancelled = false;
  bool told = false;
  std::string last_look{};  // why this look is the last one; empty: it is not
  std::string noticed{};    // the last notice of it
  std::optional<io::TimePoint> bad_since{};
  std::string status{};
  std::string text{};
  int to_delete = 0;
  bool delete_again = false;
  kube::Backoff backoff{{std::chrono::milliseconds(500), std::chrono::seconds(15)}};
  std::string output{};
  std::string errors{};
  std::unique_ptr<kube::Exec> exec{};
  std::unique_ptr<http::Call> log{};
  std::unique_ptr<io::Timer> step_timer{};
  std::unique_ptr<io::Timer> time_out{};
  std::unique_ptr<io::Timer> lost{};
};

KubeTrials::KubeTrials(kube::Client& client, JobTemplate jobs, KubeTrialsOptions options, Tell tell)
    : client_(client),
      jobs_(std::move(jobs)),
      options_(std::move(options)),
      tell_(std::move(tell)),
      jobs_cache_(client, cache_options(dijobs(), options_)),
      pods_cache_(client, cache_options(kube::resources::pods(), options_)) {
  const auto job_changed = [this](const kube::ObjectPtr& job) {
    changed(kube::split_key(job->key()).name);
  };
  const auto pod_changed = [this](const kube::ObjectPtr& pod) {
    changed(name_of_pod(kube::split_key(pod->key()).name));
  };
  jobs_cache_.add_handler(
      {.on_added = job_changed,
       .on_changed = [job_changed](const auto&, const auto& now) { job_changed(now); },
       .on_deleted = [job_changed](const auto& last, bool) { job_changed(last); }});
  pods_cache_.add_handler(
      {.on_added = pod_changed,
       .on_changed = [pod_changed](const auto&, const auto& now) { pod_changed(now); },
       .on_deleted = [pod_changed](const auto& last, bool) { pod_changed(last); }});
}

KubeTrials::~KubeTrials() {
  *alive_ = false;
}

void KubeTrials::start() {
  jobs_cache_.start();
  pods_cache_.start();
  check_health();
}

Status KubeTrials::trouble() const {
  const Status& jobs = jobs_cache_.reflector().last_error();
  return jobs.ok() ? pods_cache_.reflector().last_error() : jobs;
}

// A watch that is quiet may be dead or alive: whether the cluster is back is asked for.
void KubeTrials::check_health() {
  health_timer_ = client_.reactor().after(kHealthEvery, [this] { check_health(); });
  if (probe_ != nullptr || (trouble().ok() && !away_)) return;
  http::CallOptions options;
  options.deadline = kProbeWithin;
  probe_ = client_.stream(
      "asking for its version", "/version", options, [](std::string_view) {},
      [this](const Status& status) { probed(status); });
}

void KubeTrials::probed(const Status& status) {
  client_.reactor().post([this, alive = alive_] {
    if (*alive) probe_.reset();
  });
  const bool answers = status.ok() || !for_a_moment(status);
  unwell_ = answers ? 0 : unwell_ + 1;
  const bool away = away_ ? !answers : unwell_ >= kUnwellBeforeTold;
  if (away == std::exchange(away_, away)) return;
  tell_({.kind = TrialEvent::Kind::kNotice,
         .text = away ? fmt::format("the cluster does not answer ({}); the trials wait for it",
                                    status.message())
                      : "the cluster answers again"});
}

KubeTrials::Trial* KubeTrials::find(std::string_view name) {
  const auto found = trials_.find(name);
  return found == trials_.end() ? nullptr : found->second.get();
}

const std::string& KubeTrials::name_of_pod(const std::string& pod) const {
  static const std::string none;
  const auto found = by_pod_.find(pod);
  return found == by_pod_.end() ? none : found->second;
}

void KubeTrials::later(Trial& trial, io::Duration delay, void (KubeTrials::*step)(Trial&)) {
  trial.step_timer = client_.reactor().after(delay, [this, step, trial = &trial] {
    trial->step_timer.reset();
    (this->*step)(*trial);
  });
}

// --- from a configuration to a job ---

void KubeTrials::run(const TrialSpec& spec) {
  auto objects = jobs_.fill(spec);
  if (!objects) {
    return tell_({.kind = TrialEvent::Kind::kEnded,
                  .name = spec.name,
                  .status = "fail",
                  .text = objects.error().message()});
  }
  auto trial = std::make_shared<Trial>();
  trial->spec = spec;
  trial->spec.main_file.clear();
  trial->objects = *std::move(objects);
  trial->pod = jobs_.pod_name(spec.name);
  by_pod_[trial->pod] = spec.name;
  trials_[spec.name] = trial;
  make(*trial);
}

void KubeTrials::adopt(const std::string& name) {
  auto trial = std::make_shared<Trial>();
  trial->spec.name = name;
  trial->spec.project = options_.project;
  trial->pod = jobs_.pod_name(name);
  trial->stage = Stage::kRunning;
  trial->job_seen = trial->job_made = trial->map_made = true;
  by_pod_[trial->pod] = name;
  trials_[name] = trial;
  observe(*trial);
}

void KubeTrials::discard(const std::string& name) {
  auto trial = std::make_shared<Trial>();
  trial->spec.name = name;
  trial->stage = Stage::kEnding;
  trial->map_made = trial->told = true;
  trials_[name] = trial;
  remove(*trial);
}

void KubeTrials::make(Trial& trial) {
  if (trial.cancelled) return finish(trial, "cancelled", {});
  const bool map = trial.stage == Stage::kMakingMap;
  client_.create(
      map ? kube::resources::config_maps() : dijobs(), options_.space,
      map ? trial.objects.config_map : trial.objects.job, {.answer = kube::Answer::kMetadata},
      [this, alive = alive_, name = trial.spec.name](const Result<json::Value>& outcome) {
        if (*alive) made(name, outcome);
      });
}

void KubeTrials::made(const std::string& name, const Result<json::Value>& outcome) {
  Trial* trial = find(name);
  if (trial == nullptr) return;
  if (outcome) return made_one(*trial);
  const Status& why = outcome.error();
  if (why.code() == Code::kAlreadyExists) return compare(*trial, why);
  if (trial->cancelled) return finish(*trial, "cancelled", {});
  if (!for_a_moment(why)) return finish(*trial, "fail", why.message());
  (trial->stage == Stage::kMakingMap ? trial->map_made : trial->job_made) = true;
  notice(*trial, why.message() + "; it is tried again");
  later(*trial, trial->backoff.next(), &KubeTrials::make);
}

// What is still the case is told once.
void KubeTrials::notice(Trial& trial, std::string text) {
  if (away_ || text == trial.noticed) return;
  trial.noticed = text;
  tell_({.kind = TrialEvent::Kind::kNotice, .name = trial.spec.name, .text = std::move(text)});
}

// It is ours when an answer of the server was lost, and somebody else's otherwise.
void KubeTrials::compare(Trial& trial, const Status& exists) {
  const bool map = trial.stage == Stage::kMakingMap;
  client_.get(
      map ? kube::resources::config_maps() : dijobs(), options_.space,
      map ? config_map_name(trial.spec.name) : trial.spec.name, {},
      [this, alive = alive_, name = trial.spec.name, exists, map](Result<json::Value> found) {
        Trial* one = *alive ? find(name) : nullptr;
        if (one == nullptr) return;
        if (!found) return later(*one, one->backoff.next(), &KubeTrials::make);
        if (found->string_at({"metadata", "annotations", kRunNote}) == one->spec.run) {
          return made_one(*one);
        }
        (map ? one->map_made : one->job_made) = false;
        finish(*one, "fail", exists.message() + ": it is not of this scheduler");
      });
}

void KubeTrials::made_one(Trial& trial) {
  trial.backoff.reset();
  (trial.stage == Stage::kMakingMap ? trial.map_made : trial.job_made) = true;
  if (trial.stage == Stage::kMakingMap) {
    trial.stage = Stage::kMakingJob;
    return make(trial);
  }
  trial.stage = Stage::kRunning;
  trial.objects = {};
  if (trial.cancelled) return finish(trial, "cancelled", {});
  observe(trial);
}

// --- what becomes of it ---

void KubeTrials::changed(const std::string& name) {
  if (Trial* trial = find(name)) observe(*trial);
}

void KubeTrials::observe(Trial& trial) {
  if (trial.stage != Stage::kRunning) return;
  if (!trial.last_look.empty()) return observe_helper(trial);
  const kube::ObjectPtr job = jobs_cache_.find(kube::object_key(options_.space, trial.spec.name));
  const kube::ObjectPtr pod = pods_cache_.find(kube::object_key(options_.space, trial.pod));
  const json::Value pod_now = pod == nullptr ? json::Value() : pod->value();
  const std::string phase(pod_now.string_at({"status", "phase"}));
  const json::Value job_now = job == nullptr ? json::Value() : job->value();
  const std::string job_phase(job_now.string_at({"status", "phase"}));
  if (job != nullptr) {
    trial.created = job_now.string_at({"metadata", "creationTimestamp"});
    trial.job_uid = job->uid();
    take_posts(trial, job_now);
  }
  if (pod != nullptr) trial.node = pod_now.string_at({"spec", "nodeName"});
  trial.job_seen = trial.job_seen || job != nullptr;
  trial.pod_seen = trial.pod_seen || pod != nullptr;

  if (trial.pod_seen && phase != "Pending" && !phase.empty()) pod_started(trial);
  if (trial.job_seen && job == nullptr) {
    return look_for_the_last_time(trial, "its DIJob was deleted by somebody else");
  }
  if (job_phase == "Failed") {
    if (options_.require_exit_zero) return finish(trial, "fail", "its DIJob has failed");
    return look_for_the_last_time(trial, "its DIJob has failed");
  }
  if (phase == "Succeeded" || job_phase == "Succeeded") {
    return look_for_the_last_time(trial, std::string(kNoResult));
  }
  if (!trial.pod_seen) return;  // it is not made yet
  if (!alive_phase(phase)) return suspect(trial);
  if (std::exchange(trial.suspected, false)) {
    trial.lost.reset();
    tell_({.kind = TrialEvent::Kind::kBack, .name = trial.spec.name});
  }
  if (const std::string reason = waiting_reason(pod_now); phase == "Pending" && !reason.empty()) {
    notice(trial, fmt::format("pod {} waits: {}", trial.pod, reason));
  }
}

void KubeTrials::pod_started(Trial& trial) {
  if (std::exchange(trial.started, true)) return;
  tell_({.kind = TrialEvent::Kind::kStarted, .name = trial.spec.name});
  if (options_.time_out > io::Duration(0)) {
    trial.time_out = client_.reactor().after(
        options_.time_out, [this, trial = &trial] { finish(*trial, "time out", {}); });
  }
  poll_later(trial, io::Duration(0));
}

void KubeTrials::suspect(Trial& trial) {
  if (std::exchange(trial.suspected, true)) return;
  tell_({.kind = TrialEvent::Kind::kSuspected, .name = trial.spec.name});
  trial.lost =
      client_.reactor().after(options_.lost_after, [this, name = trial.spec.name] { lost(name); });
}

void KubeTrials::lost(const std::string& name) {
  Trial* trial = find(name);
  if (trial == nullptr || !trial->suspected) return;
  if (away_) {  // what is known of it is old
    trial->lost = client_.reactor().after(options_.lost_after, [this, name] { lost(name); });
    return;
  }
  look_for_the_last_time(
      *trial, fmt::format("pod {} is gone or has failed, and no other came", trial->pod));
}

// --- its result ---

void KubeTrials::poll_later(Trial& trial, io::Duration delay) {
  later(trial, delay, &KubeTrials::look);
}

void KubeTrials::look_for_the_last_time(Trial& trial, std::string why) {
  trial.last_look = std::move(why);
  trial.step_timer.reset();
  trial.lost.reset();
  trial.look_again = trial.looking;
  look(trial);
}

// The watch of pods may be ahead of that of jobs: an end that is known while the result that was
// posted before it is not.
void KubeTrials::read_posts(Trial& trial) {
  client_.get(dijobs(), options_.space, trial.spec.name, {},
              [this, alive = alive_, name = trial.spec.name](const Result<json::Value>& job) {
                Trial* one = *alive ? find(name) : nullptr;
                if (one == nullptr || one->stage != Stage::kRunning) return;
                if (!job && for_a_moment(job.error())) {
                  return later(*one, one->backoff.next(), &KubeTrials::read_posts);
                }
                if (job) take_posts(*one, *job);
                one->posts_read = true;
                one->looking = false;
                look(*one);
              });
}

void KubeTrials::take_posts(Trial& trial, const json::Value& job) {
  if (job.find_path({"status", "trial"}) == nullptr) return;
  if (std::string lines = report_lines(job, trial.last_report); !lines.empty()) {
    tell_({.kind = TrialEvent::Kind::kReports, .name = trial.spec.name, .text = std::move(lines)});
  }
  trial.trouble = job.string_at({"status", "trial", "trouble"});
  auto result = posted_result(job, options_.result_names);
  if (!result || result->bytes == trial.last_post) return;
  trial.last_post = result->bytes;
  trial.posted = std::move(result);
  trial.bad_post.reset();
  trial.bad_since.reset();
  if (trial.started && trial.last_look.empty() && !trial.looking) poll_later(trial, {});
}

// Only whole lines are passed on; the rest is read again.
void KubeTrials::take_report_lines(Trial& trial, const PodFile& file) {
  const std::size_t end = file.bytes.rfind('\n');
  if (end == std::string::npos) {
    // A line that is longer than what is read in one go is left out.
    if (file.bytes.size() >= kMaxReports) trial.reports_from += file.bytes.size();
    return;
  }
  trial.reports_from += end + 1;
  tell_({.kind = TrialEvent::Kind::kReports,
         .name = trial.spec.name,
         .text = file.bytes.substr(0, end + 1)});
}

void KubeTrials::look(Trial& trial) {
  if (trial.stage != Stage::kRunning || trial.looking) return;
  trial.looking = true;
  if (trial.posted) {
    trial.at_post = true;
    return tell_look(trial, {.result = std::exchange(trial.posted, std::nullopt)});
  }
  if (!trial.last_look.empty() && !trial.posts_read) return read_posts(trial);
  const bool helped = trial.helper == Trial::Helper::kRuns;
  const std::string name = helped ? helper_name(trial.spec.name) : trial.pod;
  const kube::ObjectPtr pod = pods_cache_.find(kube::object_key(options_.space, name));
  if (pod == nullptr || pod->value().string_at({"status", "phase"}) != "Running") {
    return tell_look(trial, {});
  }
  trial.output.clear();
  trial.errors.clear();
  const ResultPlace place{
      trial.spec.name,       options_.project,
      jobs_.remote_path(),   helped ? std::string(kHelperStamp) : jobs_.config_path(),
      options_.result_names, trial.reports_from};
  trial.exec = kube::Exec::start(
      client_, options_.space, name,
      {.container = helped ? std::string(kHelperContainer) : jobs_.container(),
       .command = search_command(place)},
      {.on_output = [trial = &trial](std::string_view text) { trial->output.append(text); },
       .on_error =
           [trial = &trial](std::string_view text) {
             trial->errors.append(
                 text.substr(0, kLogBytes - std::min(kLogBytes, trial->errors.size())));
           },
       .on_done = [this,
                   name = trial.spec.name](const Result<int>& code) { fetched(name, code); }});
}

void KubeTrials::fetched(const std::string& name, const Result<int>& code) {
  Trial* trial = find(name);
  if (trial == nullptr) return;
  trial->exec.reset();
  if (trial->stage != Stage::kRunning) return;
  std::string trouble;
  if (!code) trouble = code.error().message();
  if (code && *code != 0) trouble = trial->errors;
  Result<PodResults> found = trouble.empty() ? parse_search(trial->output) : PodResults();
  if (!found) trouble = found.error().message();
  trial->output = {};
  // A look into a container that has just ended fails.
  trial->failed_looks = trouble.empty() ? 0 : trial->failed_looks + 1;
  if (trial->failed_looks >= kFailedLooksBeforeTold && trial->last_look.empty()) {
    notice(*trial, fmt::format("looking for the result in pod {}: {}", trial->pod, trouble));
  }
  if (found && found->reports) take_report_lines(*trial, *found->reports);
  tell_look(*trial, found ? *std::move(found) : PodResults());
}

void KubeTrials::tell_look(Trial& trial, PodResults found) {
  tell_({.kind = TrialEvent::Kind::kLook, .name = trial.spec.name, .found = std::move(found)});
}

void KubeTrials::judge(const std::string& name, Verdict verdict, const std::string& why) {
  Trial* trial = find(name);
  if (trial == nullptr || !std::exchange(trial->looking, false)) return;
  if (trial->stage != Stage::kRunning) return;
  if (verdict == Verdict::kAccepted) return finish(*trial, "success", {});
  const bool of_post = std::exchange(trial->at_post, false);
  if (of_post && verdict == Verdict::kBad) trial->bad_post = why;
  // Behind a post that is no result may be a file that is one.
  if (of_post) trial->look_again = false;
  if (of_post || trial->posted) return look(*trial);
  const bool waits = trial->last_look.empty() && trial->bad_post;
  if (verdict == Verdict::kBad || waits) {
    return still_bad(*trial, verdict == Verdict::kBad ? why : *trial->bad_post);
  }
  trial->bad_since.reset();
  if (std::exchange(trial->look_again, false)) return look(*trial);
  if (!trial->last_look.empty()) {
    if (!start_helper(*trial)) finish(*trial, "fail", why_nothing(*trial));
    return;
  }
  poll_later(*trial, options_.poll_every);
}

void KubeTrials::still_bad(Trial& trial, const std::string& why) {
  const io::TimePoint now = client_.reactor().now();
  if (!trial.bad_since) trial.bad_since = now;
  if (now - *trial.bad_since >= kTruncated) return finish(trial, "fail", why);
  poll_later(trial, kTruncatedPoll);
}

std::string KubeTrials::why_nothing(const Trial& trial) {
  if (trial.bad_post) return *trial.bad_post;
  if (trial.trouble.empty()) return trial.last_look;
  return fmt::format("{}; its reporter: {}", trial.last_look, trial.trouble);
}

// False: the project path went with the pod, or was looked at already.
bool KubeTrials::start_helper(Trial& trial) {
  const auto created = kube::parse_time(trial.created);
  if (trial.helper != Trial::Helper::kNone || !created) return false;
  const auto since =
      std::chrono::duration_cast<std::chrono::seconds>(created->time_since_epoch()).count();
  const json::Value pod = jobs_.helper(trial.spec, {trial.node, trial.job_uid, since});
  if (pod.is_null()) return false;
  trial.helper = Trial::Helper::kStarting;
  by_pod_[helper_name(trial.spec.name)] = trial.spec.name;
  client_.create(kube::resources::pods(), options_.space, pod, {.answer = kube::Answer::kMetadata},
                 [this, alive = alive_, name = trial.spec.name](const Result<json::Value>& made) {
                   Trial* one = *alive && !made ? find(name) : nullptr;
                   if (one != nullptr && made.error().code() != Code::kAlreadyExists) {
                     helper_failed(*one, made.error().message());
                   }
                 });
  trial.lost = client_.reactor().after(
      kHelperWithin, [this, trial = &trial] { helper_failed(*trial, "it did not start in time"); });
  return true;
}

void KubeTrials::observe_helper(Trial& trial) {
  if (trial.helper != Trial::Helper::kStarting) return;
  const kube::ObjectPtr pod =
      pods_cache_.find(kube::object_key(options_.space, helper_name(trial.spec.name)));
  if (pod == nullptr) return;
  const std::string phase(pod->value().string_at({"status", "phase"}));
  if (phase == "Failed" || phase == "Succeeded") return helper_failed(trial, "it ended at once");
  if (phase != "Running") return;
  trial.lost.reset();
  trial.helper = Trial::Helper::kRuns;
  look(trial);
}

void KubeTrials::helper_failed(Trial& trial, const std::string& why) {
  if (trial.helper != Trial::Helper::kStarting || trial.stage != Stage::kRunning) return;
  trial.helper = Trial::Helper::kFailed;
  finish(
      trial, "fail",
      fmt::format("{}; and no pod could look for it on the volume: {}", why_nothing(trial), why));
}

// --- its end ---

void KubeTrials::cancel(const std::string& name) {
  Trial* trial = find(name);
  if (trial == nullptr) return;
  trial->cancelled = true;
  // What is being made is deleted when the server has answered: a delete may overtake a create.
  const bool waits = trial->step_timer != nullptr;
  if (trial->stage == Stage::kRunning || (trial->stage != Stage::kEnding && waits)) {
    finish(*trial, "cancelled", {});
  }
}

void KubeTrials::finish(Trial& trial, std::string status, std::string why) {
  if (trial.stage == Stage::kEnding) return;
  trial.stage = Stage::kEnding;
  trial.status = std::move(status);
  trial.text = std::move(why);
  trial.exec.reset();
  trial.time_out.reset();
  trial.lost.reset();
  trial.step_timer.reset();
  const bool failed = trial.status == "fail" || trial.status == "time out";
  const kube::ObjectPtr pod = pods_cache_.find(kube::object_key(options_.space, trial.pod));
  if (failed && pod != nullptr && trial.started) return read_log(trial);
  remove(trial);
}

void KubeTrials::read_log(Trial& trial) {
  trial.output.clear();
  trial.log = kube::read_log(
      client_, options_.space, trial.pod, {.container = jobs_.container(), .tail_lines = kLogLines},
      [trial = &trial](std::string_view piece) {
        trial->output.append(piece);
        if (trial->output.size() > 2 * kLogBytes) {
          trial->output.erase(0, trial->output.size() - kLogBytes);
        }
      },
      [this, trial = &trial](const Status&) {
        later(*trial, io::Duration(0), &KubeTrials::remove);
      });
  later(trial, kLogWithin, &KubeTrials::remove);
}

void KubeTrials::remove(Trial& trial) {
  trial.step_timer.reset();  // that of the log's deadline
  trial.log.reset();
  if (const std::size_t size = trial.output.size(); size > 0) {
    trial.output.erase(0, size - std::min(size, kLogBytes));
    trial.text += (trial.text.empty() ? "" : "\n") + trial.output;
    trial.output.clear();
  }
  const auto done = [this, alive = alive_,
                     name = trial.spec.name](const Result<json::Value>& gone) {
    if (*alive) removed(name, gone ? Status() : gone.error());
  };
  const kube::DeleteOptions options{.propagation = "Background", .answer = kube::Answer::kNone};
  const bool helper_made = trial.helper != Trial::Helper::kNone;
  trial.to_delete = (trial.map_made ? 1 : 0) + (trial.job_made ? 1 : 0) + (helper_made ? 1 : 0);
  if (trial.to_delete == 0) return told_end(trial);
  if (trial.map_made) {
    client_.remove(kube::resources::config_maps(), options_.space, config_map_name(trial.spec.name),
                   options, done);
  }
  if (helper_made) {
    client_.remove(kube::resources::pods(), options_.space, helper_name(trial.spec.name), options,
                   done);
  }
  if (trial.job_made) client_.remove(dijobs(), options_.space, trial.spec.name, options, done);
}

void KubeTrials::removed(const std::string& name, const Status& outcome) {
  Trial* trial = find(name);
  if (trial == nullptr) return;
  if (!outcome.ok() && outcome.code() != Code::kNotFound) {
    notice(*trial, outcome.message());
    trial->delete_again = trial->delete_again || for_a_moment(outcome);
  }
  if (--trial->to_delete > 0) return;
  if (!std::exchange(trial->delete_again, false)) return told_end(*trial);
  // Its end is known, though its objects are still there.
  if (!std::exchange(trial->told, true)) {
    tell_({.kind = TrialEvent::Kind::kEnded,
           .name = name,
           .status = trial->status,
           .text = trial->text});
  }
  later(*trial, trial->backoff.next(), &KubeTrials::remove);
}

void KubeTrials::told_end(Trial& trial) {
  TrialEvent event{.kind = TrialEvent::Kind::kEnded,
                   .name = trial.spec.name,
                   .status = std::move(trial.status),
                   .text = std::move(trial.text)};
  const bool told = trial.told;
  by_pod_.erase(trial.pod);
  by_pod_.erase(helper_name(trial.spec.name));
  trials_.erase(event.name);
  const std::string name = event.name;
  if (!told) tell_(std::move(event));
  tell_({.kind = TrialEvent::Kind::kGone, .name = name});
}

}  // namespace divisi::trials
