// bench_dijob MODE NAMESPACE JOBS PODS [PID]: one measurement of the operator that runs beside it
// against a real API server without nodes, as one line of JSON.
//
//   pods     JOBS x PODS pods as the operator makes them, by this program alone: what the server
//            sustains with the same client
//   submit   JOBS DIJobs of PODS pods each at once, until the last pod is there
//   create   pods one after another: how long the server takes for one
//   replace  pods of running jobs fail one after another: from the event to the new pod's request
//   resident PID's memory, after JOBS jobs of PODS pods were made when there are any
//   churn    JOBS jobs of PODS pods made, failed and deleted again and again for JOBS seconds
//
// Every run makes objects of its own name and deletes them.

#include "dijob/names.h"
#include "kube/informer.h"
#include "kube/session.h"

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

json::Value dijob(int number, int pods) {
  return parsed(fmt::format(
      R"({{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{{"name":"{}"}},"spec":{{
"backoffLimit":null,"cleanPodPolicy":"All","tasks":[{{"type":"learner","name":"learner","replicas":1,"template":{{"spec":{{
"containers":[{{"name":"di-container","image":"docker.io/local/worker:1","command":["ditask","--package","/app"]}}]}}}}}},
{{"type":"collector","name":"collector","replicas":{},"template":{{"spec":{{"containers":[{{"name":"di-container",
"image":"docker.io/local/worker:1","command":["ditask","--package","/app"]}}]}}}}}}]}}}})",
      job_name(number), pods - 1));
}

// The same size as the operator's: variables with the hosts of all peers.
json::Value pod_alone(int number, int pods) {
  std::string hosts;
  for (int i = 0; i < pods; ++i) {
    hosts += fmt::format("b-collector-{}.di-b.bench.svc.cluster.local,", i);
  }
  json::Value pod = parsed(fmt::format(
      R"({{"metadata":{{"name":"alone{}-{}","labels":{{"bench":"alone"}},"annotations":{{"diengine/rank":"1"}}}},"spec":{{
"restartPolicy":"Never","containers":[{{"name":"di-container","image":"docker.io/local/worker:1",
"command":["ditask","--package","/app"],"env":[]}}],"volumes":[{{"name":"s","secret":{{"secretName":"s"}}}}]}}}})",
      ::getpid(), number));
  json::Array variables;
  for (const char* const name : {"DI_NODES", "DI_LEARNER_NODES", "DI_COLLECTOR_NODES", "DI_RANK",
                                 "DI_JOB_ID", "DI_SERVER_URL", "MASTER_ADDR", "WORLD_SIZE"}) {
    json::Value variable;
    variable["name"] = name;
    variable["value"] = std::string_view(name).ends_with("NODES") ? hosts : "b";
    variables.push_back(std::move(variable));
  }
  (*pod["spec"]["containers"].as_array())[0]["env"] = std::move(variables);
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

void make_jobs(kube::Session& session, const std::string& space, int jobs, int pods) {
  many(session, kAtOnce, jobs, [&](int number, const auto& done) {
    session.client().create(dijob::dijobs(), space, dijob(number, pods), {}, then(done));
  });
}

void delete_jobs(kube::Session& session, const std::string& space, int jobs) {
  many(session, kAtOnce, jobs, [&](int number, const auto& done) {
    session.client().remove(dijob::dijobs(), space, job_name(number), {}, then(done));
  });
}

// There is no collector of garbage: what the jobs owned goes by hand.
void delete_pods(kube::Session& session, const std::string& space,
                 const std::vector<std::string>& names) {
  if (names.empty()) return;
  many(session, kAtOnce, static_cast<int>(names.size()), [&](int number, const auto& done) {
    session.client().remove(kube::resources::pods(), space, names[static_cast<std::size_t>(number)],
                            {.grace_seconds = 0}, [done](const Result<json::Value>&) { done(); });
  });
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

  // Fails that pod; microseconds from the event of it to that of its successor.
  double fail(const std::string& space, const std::string& name) {
    std::promise<double> replaced;
    session_.reactor().post([&] {
      failing_ = name;
      successor_ = [&](double us) { replaced.set_value(us); };
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
          failed_at_ == Clock::time_point()) {
        failed_at_ = Clock::now();
      }
      if (change > 0 && failed_at_ != Clock::time_point()) {
        failing_.clear();
        const double us = 1e6 * seconds_since(std::exchange(failed_at_, {}));
        std::exchange(successor_, nullptr)(us);
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
  Clock::time_point failed_at_{};
  std::function<void(double)> successor_;
};

long resident_kb(const std::string& pid) {
  std::ifstream statm("/proc/" + pid + "/statm");
  long pages = 0;
  statm >> pages >> pages;
  return pages * (::sysconf(_SC_PAGESIZE) / 1024);
}

void report_times(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  report(fmt::format(R"("p50_us":{},"p99_us":{})", times[times.size() / 2],
                     times[times.size() * 99 / 100]));
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

  if (mode == "pods" || mode == "create") {
    Pods watched(session, space, "alone");  // as in the other modes
    std::vector<double> times;
    const int count = jobs * pods;
    const double seconds =
        many(session, mode == "pods" ? kAtOnce : 1, count, [&](int number, const auto& done) {
          const auto start = Clock::now();
          session.client().create(kube::resources::pods(), space, pod_alone(number, pods), {},
                                  [&times, start, done](const Result<json::Value>& answer) {
                                    must(answer);
                                    times.push_back(1e6 * seconds_since(start));
                                    done();
                                  });
        });
    many(session, kAtOnce, count, [&](int number, const auto& done) {
      session.client().remove(kube::resources::pods(), space,
                              fmt::format("alone{}-{}", ::getpid(), number), {.grace_seconds = 0},
                              then(done));
    });
    if (mode == "pods") {
      report(fmt::format(R"("per_s":{})", count / seconds));
    } else {
      report_times(std::move(times));
    }
    return 0;
  }
  if (mode == "resident") {
    Pods watched(session, space, ours);
    if (jobs > 0) make_jobs(session, space, jobs, pods);
    watched.wait_for(all);
    report(fmt::format(R"("kb":{})", resident_kb(pid)));
    if (jobs > 0) delete_jobs(session, space, jobs);
    delete_pods(session, space, watched.names());
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
    const std::vector<std::string> names = watched.names();
    // Sorted by job: of each the first, then of each the second, ...
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t next = i % static_cast<std::size_t>(jobs) * static_cast<std::size_t>(pods) +
                               i / static_cast<std::size_t>(jobs);
      times.push_back(watched.fail(space, names[next]));
    }
    report_times(std::move(times));
  } else if (mode == "churn") {
    const auto start = Clock::now();
    long first = 0;
    for (int round = 0; seconds_since(start) < jobs; ++round) {
      constexpr int kJobs = 20;
      make_jobs(session, space, kJobs, pods);
      watched.wait_for(static_cast<std::size_t>(kJobs) * static_cast<std::size_t>(pods));
      watched.fail(space, watched.names().front());
      delete_jobs(session, space, kJobs);
      delete_pods(session, space, watched.names());
      watched.wait_for(0);
      if (round == 2) first = resident_kb(pid);
    }
    report(fmt::format(R"("kb":{},"first_kb":{})", resident_kb(pid), first));
    return 0;
  } else {
    die("no such mode: " + mode);
  }
  delete_jobs(session, space, jobs);
  delete_pods(session, space, watched.names());
  watched.wait_for(0);
  return 0;
}
