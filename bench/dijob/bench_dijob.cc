// bench_dijob MODE NAMESPACE JOBS PODS [PID]: one measurement of the operator that runs beside it
// against a real API server without nodes, as one line of JSON.
//
//   pods     JOBS x PODS pods as the operator makes them, by this program alone: what the server
//            sustains with the same client
//   submit   JOBS DIJobs of PODS pods each at once, until the last pod is there
//   replace  pods of jobs at rest fail one after another: from the event to the request for the
//            next pod, of which the server says when it came (AUDIT: its log); in between this
//            program makes a pod itself: how long the server takes for one
//   resident PID's memory, after JOBS jobs of PODS pods were made when there are any
//   churn    20 jobs of PODS pods made, failed and deleted again and again for JOBS seconds
//
// Every run makes objects of its own name and deletes them.

#include "dijob/names.h"
#include "dijob/plan.h"
#include "kube/informer.h"
#include "kube/session.h"
#include "kube/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <unistd.h>

namespace {

using namespace divisi;
using Clock = std::chrono::steady_clock;
using WallClock = std::chrono::system_clock;
constexpr int kAtOnce = 32;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_dijob: %s\n", why.c_str());
  std::_Exit(1);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void must(const Result<json::Value>& answer) {
  if (!answer) die(answer.error().message());
}

json::Value parsed(const std::string& text) {
  auto value = json::parse(text);
  if (!value) die(value.error().message());
  return *std::move(value);
}

std::string job_name(int number) {
  return fmt::format("b{}-{}", ::getpid(), number);
}

std::string job_of(std::string_view pod) {
  return std::string(pod.substr(0, pod.find('-', pod.find('-') + 1)));
}

std::string alone_name(int number) {
  return fmt::format("alone{}-{}", ::getpid(), number);
}

json::Value dijob(int number, int pods) {
  return parsed(fmt::format(
      R"({{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{{"name":"{}"}},"spec":{{
"backoffLimit":null,"cleanPodPolicy":"All","tasks":[{{"type":"learner","name":"learner","replicas":1,"template":{{"spec":{{
"containers":[{{"name":"di-container","image":"docker.io/local/worker:1","command":["ditask","--package","/app"]}}]}}}}}},
{{"type":"collector","name":"collector","replicas":{},"template":{{"spec":{{"containers":[{{"name":"di-container",
"image":"docker.io/local/worker:1","command":["ditask","--package","/app"]}}]}}}}}}]}}}})",
      job_name(number), pods - 1));
}

// What the operator asks the server for when it makes that pod of a job, but nobody's.
json::Value pod_alone(int number, int pods) {
  dijob::Observed job;
  job.object = dijob(number / pods, pods);
  job.object["metadata"]["namespace"] = "bench";
  job.object["metadata"]["uid"] = "7d1c2f60-0000-4000-8000-000000000000";
  std::vector<json::Value> objects;
  for (dijob::Action& action : dijob::plan(job).actions) {
    if (auto* const create = std::get_if<dijob::CreatePod>(&action)) {
      objects.push_back(std::move(create->object));
    }
  }
  json::Value pod = std::move(objects.at(static_cast<std::size_t>(number % pods)));
  pod["metadata"]["name"] = alone_name(number);
  pod["metadata"]["labels"][dijob::labels::kOperator] = "nobody";
  return pod;
}

// Runs `one` so many times, `at_once` together; seconds.
double many(kube::Session& session, int at_once, int count,
            const std::function<void(int number, std::function<void()> done)>& one) {
  std::promise<void> all;
  int started = 0;
  int ended = 0;
  std::function<void()> next = [&] {
    if (started >= count) return;
    one(started++, [&] {
      if (++ended == count) {
        all.set_value();
      } else {
        next();
      }
    });
  };
  const auto start = Clock::now();
  session.reactor().post([&] {
    for (int i = 0; i < at_once; ++i) next();
  });
  all.get_future().wait();
  return seconds_since(start);
}

void report(const std::string& figures) {
  fmt::print(R"({{{},"sent":1,"received":1,"disordered":0}})"
             "\n",
             figures);
  std::fflush(stdout);
}

kube::Done then(const std::function<void()>& done) {
  return [done](const Result<json::Value>& answer) {
    must(answer);
    done();
  };
}

void make_jobs(kube::Session& session, const std::string& space, int jobs, int pods,
               int first = 0) {
  many(session, kAtOnce, jobs, [&](int number, const auto& done) {
    session.client().create(dijob::dijobs(), space, dijob(first + number, pods), {}, then(done));
  });
}

void delete_jobs(kube::Session& session, const std::string& space, int jobs, int first = 0) {
  many(session, kAtOnce, jobs, [&](int number, const auto& done) {
    session.client().remove(dijob::dijobs(), space, job_name(first + number), {}, then(done));
  });
}

std::vector<std::string> names_of(kube::Session& session, const kube::Resource& resource,
                                  const std::string& space, std::string_view part) {
  std::promise<std::vector<std::string>> found;
  session.reactor().post([&] {
    session.client().list(resource, space, {}, [&](const Result<json::Value>& answer) {
      must(answer);
      std::vector<std::string> names;
      for (const json::Value& item : *answer->find("items")->as_array()) {
        const std::string_view name = item.string_at({"metadata", "name"});
        if (name.find(part) != std::string_view::npos) names.emplace_back(name);
      }
      found.set_value(std::move(names));
    });
  });
  return found.get_future().get();
}

void delete_all(kube::Session& session, const kube::Resource& resource, const std::string& space,
                const std::vector<std::string>& names) {
  if (names.empty()) return;
  many(session, kAtOnce, static_cast<int>(names.size()), [&](int number, const auto& done) {
    session.client().remove(resource, space, names[static_cast<std::size_t>(number)],
                            {.grace_seconds = 0}, [done](const Result<json::Value>&) { done(); });
  });
}

// There is no collector of garbage: what the jobs owned goes by hand.
void delete_owned(kube::Session& session, const std::string& space,
                  const std::vector<std::string>& pods) {
  delete_all(session, kube::resources::pods(), space, pods);
  const std::string ours = fmt::format("b{}-", ::getpid());
  for (const kube::Resource& each : {kube::resources::services(), kube::resources::secrets()}) {
    delete_all(session, each, space, names_of(session, each, space, ours));
  }
}

// Follows the pods of this run: those whose names begin with `start`.
class Pods {
 public:
  Pods(kube::Session& session, const std::string& space, std::string start)
      : session_(session), start_(std::move(start)) {
    std::promise<void> synced;
    session.reactor().run_on_loop([&] {
      cache_ = std::make_unique<kube::Informer>(
          session.client(), kube::InformerOptions{.reflector = {.resource = kube::resources::pods(),
                                                                .space = space}});
      cache_->add_handler({.on_added = [this](const auto& now) { seen(*now, +1); },
                           .on_changed = [this](const auto&, const auto& now) { seen(*now, 0); },
                           .on_deleted = [this](const auto& last, bool) { seen(*last, -1); },
                           .on_synced = [&] { synced.set_value(); }});
      cache_->start();
    });
    synced.get_future().wait();
  }
  ~Pods() {
    session_.reactor().run_on_loop([&] { cache_.reset(); });
  }

  void wait_for(std::size_t count) {
    std::promise<void> reached;
    session_.reactor().run_on_loop([&] {
      wanted_ = [&, count] {
        if (uids_.size() != count) return;
        wanted_ = nullptr;
        reached.set_value();
      };
      wanted_();
    });
    if (reached.get_future().wait_for(std::chrono::minutes(5)) != std::future_status::ready) {
      die("the pods do not come");
    }
  }

  // Fails that pod and waits for its successor. When the event of the failure came.
  WallClock::time_point fail(const std::string& space, const std::string& name) {
    std::promise<WallClock::time_point> replaced;
    session_.reactor().post([&] {
      failing_ = name;
      successor_ = [&](WallClock::time_point failed) { replaced.set_value(failed); };
      const json::Value patch = parsed(R"({"status":{"phase":"Failed"}})");
      session_.client().patch(kube::resources::pods(), space, name, kube::PatchType::kMerge, patch,
                              {.subresource = "status"}, must);
    });
    auto future = replaced.get_future();
    if (future.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
      die("no successor of " + name);
    }
    return future.get();
  }

  std::vector<std::string> names() {
    std::vector<std::string> all;
    session_.reactor().run_on_loop([&] {
      for (const auto& [name, uid] : uids_) all.push_back(name);
    });
    return all;
  }

 private:
  void seen(const kube::Object& object, int change) {
    const std::string name = kube::split_key(object.key()).name;
    if (!name.starts_with(start_)) return;
    if (change > 0) uids_[name] = object.uid();
    if (change < 0) uids_.erase(name);
    if (name == failing_) {
      if (change == 0 && object.text().find("\"phase\":\"Failed\"") != std::string::npos &&
          failed_at_ == WallClock::time_point()) {
        failed_at_ = WallClock::now();
      }
      if (change > 0 && failed_at_ != WallClock::time_point()) {
        failing_.clear();
        std::exchange(successor_, nullptr)(std::exchange(failed_at_, {}));
      }
    }
    if (wanted_) wanted_();
  }

  kube::Session& session_;
  const std::string start_;
  std::unique_ptr<kube::Informer> cache_;
  // Of the loop.
  std::map<std::string, std::string> uids_;
  std::function<void()> wanted_;
  std::string failing_;
  WallClock::time_point failed_at_{};
  std::function<void(WallClock::time_point)> successor_;
};

// When the API server was asked for pods, by itself.
class Audit {
 public:
  Audit() : log_(std::getenv("AUDIT") == nullptr ? "" : std::getenv("AUDIT"), std::ios::ate) {
    if (!log_) die("AUDIT must name the log of the API server (tests/kubernetes/up --audit)");
  }

  void forget() { rest(); }

  // The first of those that came since.
  WallClock::time_point next() {
    const std::string first = rest();
    const auto when = kube::parse_time(parsed(first).string_at({"requestReceivedTimestamp"}));
    if (!when) die("no time in '" + first + "'");
    return *when;
  }

 private:
  // Reads to the end; the first line.
  std::string rest() {
    std::string first;
    log_.clear();
    for (std::string line; std::getline(log_, line);) {
      if (first.empty()) first = line;
    }
    return first;
  }

  std::ifstream log_;
};

// Which jobs the operator has told of as starting: then it is at rest, as the server is when it is
// asked for one pod after another.
class Jobs {
 public:
  Jobs(kube::Session& session, const std::string& space) : session_(session) {
    session.reactor().run_on_loop([&] {
      cache_ = std::make_unique<kube::Informer>(
          session.client(),
          kube::InformerOptions{.reflector = {.resource = dijob::dijobs(), .space = space}});
      cache_->add_handler({.on_added = [this](const auto&) { look(); },
                           .on_changed = [this](const auto&, const auto&) { look(); }});
      cache_->start();
    });
  }
  ~Jobs() {
    session_.reactor().run_on_loop([&] { cache_.reset(); });
  }

  // Until it starts, for the `restarts`th time.
  void wait_for(const std::string& space, const std::string& name, int restarts) {
    std::promise<void> starts;
    session_.reactor().run_on_loop([&] {
      wanted_ = [&] {
        const kube::ObjectPtr job = cache_->find(kube::object_key(space, name));
        if (!job || job->value().string_at({"status", "phase"}) != "Starting") return false;
        if (job->value().int_at({"status", "restarts"}) != restarts) return false;
        starts.set_value();
        return true;
      };
      look();
    });
    if (starts.get_future().wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
      die("job " + name + " does not start again");
    }
  }

 private:
  void look() {
    if (wanted_ && wanted_()) wanted_ = nullptr;
  }

  kube::Session& session_;
  std::unique_ptr<kube::Informer> cache_;
  std::function<bool()> wanted_;  // of the loop
};

long resident_kb(const std::string& pid) {
  std::ifstream statm("/proc/" + pid + "/statm");
  long pages = 0;
  statm >> pages >> pages;
  return pages * (::sysconf(_SC_PAGESIZE) / 1024);
}

// How long the server takes for one pod, in microseconds.
double time_create(kube::Session& session, const std::string& space, const json::Value& pod,
                   int number) {
  const double seconds = many(session, 1, 1, [&](int, const auto& done) {
    session.client().create(kube::resources::pods(), space, pod, {.answer = kube::Answer::kNone},
                            then(done));
  });
  delete_all(session, kube::resources::pods(), space, {alone_name(number)});
  return 1e6 * seconds;
}

std::string percentiles(std::string_view name, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return fmt::format(R"("{0}_p50_us":{1},"{0}_p99_us":{2})", name, times[times.size() / 2],
                     times[times.size() * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) die("usage: bench_dijob MODE NAMESPACE JOBS PODS [PID]");
  const std::string mode = argv[1];
  const std::string space = argv[2];
  const int jobs = std::atoi(argv[3]);
  const int pods = std::atoi(argv[4]);
  const std::string pid = argc > 5 ? argv[5] : "self";
  auto opened = kube::Session::open({});
  if (!opened) die(opened.error().message());
  kube::Session& session = **opened;
  const std::string ours = fmt::format("b{}-", ::getpid());
  const auto all = static_cast<std::size_t>(jobs) * static_cast<std::size_t>(pods);

  if (mode == "pods") {
    Pods watched(session, space, "alone");  // as in the other modes
    const int count = jobs * pods;
    std::vector<json::Value> objects;
    for (int number = 0; number < count; ++number) objects.push_back(pod_alone(number, pods));
    const double seconds = many(session, kAtOnce, count, [&](int number, const auto& done) {
      session.client().create(kube::resources::pods(), space,
                              objects[static_cast<std::size_t>(number)],
                              {.answer = kube::Answer::kNone}, then(done));
    });
    report(fmt::format(R"("per_s":{})", count / seconds));
    many(session, kAtOnce, count, [&](int number, const auto& done) {
      session.client().remove(kube::resources::pods(), space, alone_name(number),
                              {.grace_seconds = 0}, then(done));
    });
    return 0;
  }
  if (mode == "resident") {
    Pods watched(session, space, ours);
    if (jobs > 0) make_jobs(session, space, jobs, pods);
    watched.wait_for(all);
    report(fmt::format(R"("kb":{})", resident_kb(pid)));
    if (jobs > 0) delete_jobs(session, space, jobs);
    delete_owned(session, space, watched.names());
    watched.wait_for(0);
    return 0;
  }
  Pods watched(session, space, ours);
  if (mode == "submit") {
    const auto start = Clock::now();
    make_jobs(session, space, jobs, pods);
    watched.wait_for(all);
    report(fmt::format(R"("per_s":{})", static_cast<double>(all) / seconds_since(start)));
  } else if (mode == "replace") {
    make_jobs(session, space, jobs, pods);
    watched.wait_for(all);
    std::vector<double> times;
    std::vector<double> creates;
    const std::vector<std::string> names = watched.names();
    Jobs told(session, space);
    for (int number = 0; number < jobs; ++number) told.wait_for(space, job_name(number), 0);
    Audit audit;
    // Sorted by job: of each the first, then of each the second, ...
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t next = i % static_cast<std::size_t>(jobs) * static_cast<std::size_t>(pods) +
                               i / static_cast<std::size_t>(jobs);
      const auto number = static_cast<int>(i);
      creates.push_back(time_create(session, space, pod_alone(number, pods), number));
      audit.forget();
      const auto failed = watched.fail(space, names[next]);
      times.push_back(std::chrono::duration<double, std::micro>(audit.next() - failed).count());
      told.wait_for(space, job_of(names[next]), number / jobs + 1);
    }
    report(fmt::format("{},{}", percentiles("replace", times), percentiles("create", creates)));
  } else if (mode == "churn") {
    const auto start = Clock::now();
    long first = 0;
    for (int round = 0; seconds_since(start) < jobs; ++round) {
      constexpr int kJobs = 20;
      make_jobs(session, space, kJobs, pods, round * kJobs);
      watched.wait_for(static_cast<std::size_t>(kJobs) * static_cast<std::size_t>(pods));
      watched.fail(space, watched.names().front());
      delete_jobs(session, space, kJobs, round * kJobs);
      delete_owned(session, space, watched.names());
      watched.wait_for(0);
      // By then all connections are made and whatever is bounded has reached its bound.
      if (first == 0 && seconds_since(start) * 10 >= jobs) first = resident_kb(pid);
    }
    report(fmt::format(R"("kb":{},"first_kb":{})", resident_kb(pid), first));
    return 0;
  } else {
    die("no such mode: " + mode);
  }
  delete_jobs(session, space, jobs);
  delete_owned(session, space, watched.names());
  watched.wait_for(0);
  return 0;
}
