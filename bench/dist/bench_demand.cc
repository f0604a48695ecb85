// bench_demand MODE NAMESPACE COUNT ROUNDS [URL]: demands of first-generation coordinators, against
// a real API server without nodes, as one line of JSON.
//
//   alone      COUNT collectors as di-server makes them, by this program: what the API server
//              sustains with the same client and as many requests at once
//   server     a coordinator's demand of COUNT collectors at the di-server of URL, until the answer
//              names them all; this program makes the coordinator's pod
//   operator   the same, of a job that di-operator looks after: it makes the coordinator's pod,
//              and a service for each pod
//
// Every round has a job of its own, deleted afterwards with all that it has; the clock runs only
// during the creates. Pods a second of all rounds.
#include "dijob/first/job.h"
#include "dijob/first/pod.h"
#include "dist/di_server_client.h"
#include "kube/session.h"
#include "server/first/batch.h"
#include "server/first/pod_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using namespace divisi;
namespace first = dijob::first;
using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_demand: %s\n", why.c_str());
  std::_Exit(1);
}

json::Value must(Result<json::Value> answer) {
  if (!answer) die(answer.error().message());
  return *std::move(answer);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Bench {
 public:
  Bench(kube::Session& session, std::string space, int count)
      : session_(session), space_(std::move(space)), count_(count) {
    auto found = session.find_kind(std::string(first::kApiVersion), "DIJob");
    if (!found) die(found.error().message());
    dijobs_ = *std::move(found);
  }

  void make_job(int round);
  void make_coordinator();
  void wait_for_coordinator();
  double create_alone();
  double demand(const std::string& url);
  std::size_t collectors();
  void clean();

 private:
  void many(int count, const std::function<void(int number, kube::Done done)>& one);
  std::vector<std::string> names_of(const kube::Resource& resource);
  void delete_all(const kube::Resource& resource);

  kube::Session& session_;
  const std::string space_;
  const int count_;
  kube::Resource dijobs_;
  first::Job job_;
};

void Bench::make_job(int round) {
  const auto pods = [](std::string_view role) {
    return fmt::format(
        R"({{"template":{{"spec":{{"containers":[{{"name":"di-container",
"image":"docker.io/local/worker:1","command":["/bin/bash","-c"],"args":["ding -m dist --module {0}"],
"ports":[{{"name":"di-port","containerPort":80}}]}}]}}}}}})",
        role);
  };
  auto object = json::parse(fmt::format(
      R"({{"apiVersion":"{}","kind":"DIJob","metadata":{{"name":"f{}-{}"}},
"spec":{{"cleanPodPolicy":"All","coordinator":{},"collector":{},"learner":{}}}}})",
      first::kApiVersion, ::getpid(), round, pods("coordinator"), pods("collector"),
      pods("learner")));
  if (!object) die(object.error().message());
  const json::Value made = must(session_.call([&](kube::Done done) {
    session_.client().create(dijobs_, space_, *object, {}, std::move(done));
  }));
  auto job = first::read_job(made);
  if (!job) die(job.error().message());
  job_ = *std::move(job);
}

void Bench::make_coordinator() {
  first::PodWish wish;
  wish.role = first::Role::kCoordinator;
  wish.name = first::fixed_pod_name(job_.name, wish.role);
  wish.pod_template = &job_.coordinator;
  const json::Value pod = first::make_pod(job_, wish, "di-server.di-system:8080");
  must(session_.call([&](kube::Done done) {
    session_.client().create(kube::resources::pods(), space_, pod, {}, std::move(done));
  }));
}

void Bench::wait_for_coordinator() {
  const std::string name = first::fixed_pod_name(job_.name, first::Role::kCoordinator);
  for (const auto start = Clock::now(); seconds_since(start) < 60;) {
    const auto found = session_.call([&](kube::Done done) {
      session_.client().get(kube::resources::pods(), space_, name, {}, std::move(done));
    });
    if (found) return;
    if (found.error().code() != Code::kNotFound) die(found.error().message());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  die("no pod " + name + " after 60 s: is di-operator running?");
}

// Runs `one` so many times, as many at once as di-server does.
void Bench::many(int count, const std::function<void(int number, kube::Done done)>& one) {
  if (count == 0) return;
  std::promise<Status> all;
  session_.reactor().post([&] {
    server::first::run_batch(
        static_cast<std::size_t>(count), server::first::kWidth,
        [&](std::size_t number, std::function<void(Status)> ended) {
          one(static_cast<int>(number),
              [ended = std::move(ended)](const Result<json::Value>& answer) {
                ended(answer ? Status() : answer.error());
              });
        },
        [&](Status status) { all.set_value(std::move(status)); });
  });
  if (const Status status = all.get_future().get(); !status.ok()) die(status.message());
}

double Bench::create_alone() {
  std::vector<json::Value> pods;
  for (int number = 0; number < count_; ++number) {
    first::PodWish wish;
    wish.name = fmt::format("{}-collector-{:05}", job_.name, number);
    wish.pod_template = job_.find_template(wish.role);
    wish.coordinator_uid = job_.uid;
    json::Value pod = first::make_pod(job_, wish, "di-server.di-system:8080");
    // Nobody's: neither di-operator nor di-server looks at it.
    pod["metadata"]["labels"][first::labels::kController] = "nobody";
    pod["metadata"]["annotations"][server::first::kMadeFor] =
        fmt::format("{}/collector/{}", job_.uid, number);
    pods.push_back(std::move(pod));
  }
  const auto start = Clock::now();
  many(count_, [&](int number, kube::Done done) {
    session_.client().create(kube::resources::pods(), space_,
                             pods[static_cast<std::size_t>(number)], {}, std::move(done));
  });
  return seconds_since(start);
}

double Bench::demand(const std::string& url) {
  dist::DiServerOptions options;
  options.url = url;
  options.space = space_;
  options.pod = first::fixed_pod_name(job_.name, first::Role::kCoordinator);
  std::unique_ptr<dist::DiServerClient> client;
  session_.reactor().run_on_loop([&] {
    auto made = dist::DiServerClient::make(session_.reactor(), options);
    if (!made) die(made.error().message());
    client = *std::move(made);
  });
  dist::Demand demand;
  demand.collectors.replicas = count_;
  std::promise<Result<dist::Replicas>> answered;
  const auto start = Clock::now();
  session_.reactor().post([&] {
    client->post_demand(
        demand, [&](Result<dist::Replicas> answer) { answered.set_value(std::move(answer)); });
  });
  const auto answer = answered.get_future().get();
  const double seconds = seconds_since(start);
  session_.reactor().run_on_loop([&] { client.reset(); });
  if (!answer) die(answer.error().message());
  const std::set<std::string> urls(answer->collectors.begin(), answer->collectors.end());
  if (urls.size() != static_cast<std::size_t>(count_)) {
    die(fmt::format("di-server names {} collectors of {}", urls.size(), count_));
  }
  return seconds;
}

std::vector<std::string> Bench::names_of(const kube::Resource& resource) {
  const json::Value list = must(session_.call(
      [&](kube::Done done) { session_.client().list(resource, space_, {}, std::move(done)); }));
  std::vector<std::string> names;
  const json::Value* items = list.find("items");
  if (items == nullptr || items->as_array() == nullptr) die("a list without items");
  for (const json::Value& item : *items->as_array()) {
    const std::string_view name = item.string_at({"metadata", "name"});
    if (name.starts_with(job_.name + "-")) names.emplace_back(name);
  }
  return names;
}

// As the API server has them, whatever the answer was.
std::size_t Bench::collectors() {
  std::size_t count = 0;
  for (const std::string& name : names_of(kube::resources::pods())) {
    if (name.starts_with(job_.name + "-collector-")) ++count;
  }
  return count;
}

void Bench::delete_all(const kube::Resource& resource) {
  const std::vector<std::string> names = names_of(resource);
  many(static_cast<int>(names.size()), [&](int number, kube::Done done) {
    session_.client().remove(
        resource, space_, names[static_cast<std::size_t>(number)], {.grace_seconds = 0},
        [done = std::move(done)](Result<json::Value> answer) {
          const bool gone = !answer && answer.error().code() == Code::kNotFound;
          done(gone ? Result<json::Value>(json::Object{}) : std::move(answer));
        });
  });
}

// There is no collector of garbage: what the job owned goes by hand.
void Bench::clean() {
  must(session_.call([&](kube::Done done) {
    session_.client().remove(dijobs_, space_, job_.name, {}, std::move(done));
  }));
  // The operator may be making a service for a pod that goes.
  for (const auto start = Clock::now(); seconds_since(start) < 60;) {
    delete_all(kube::resources::pods());
    delete_all(kube::resources::services());
    if (names_of(kube::resources::pods()).empty() &&
        names_of(kube::resources::services()).empty()) {
      return;
    }
  }
  die("pods or services of " + job_.name + " do not go");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool alone = mode == "alone";
  const bool with_operator = mode == "operator";
  if ((!alone && !with_operator && mode != "server") || argc < (alone ? 5 : 6)) {
    die("usage: bench_demand alone|server|operator NAMESPACE COUNT ROUNDS [URL]");
  }
  const int count = std::atoi(argv[3]);
  const int rounds = std::atoi(argv[4]);
  if (count < 1 || rounds < 1) die("COUNT and ROUNDS are 1 or more");
  auto session = kube::Session::open({});
  if (!session) die(session.error().message());
  Bench bench(**session, argv[2], count);
  double seconds = 0;
  std::size_t made = 0;
  for (int round = 0; round < rounds; ++round) {
    bench.make_job(round);
    if (with_operator) {
      bench.wait_for_coordinator();
    } else {
      bench.make_coordinator();
    }
    seconds += alone ? bench.create_alone() : bench.demand(argv[5]);
    made += bench.collectors();
    bench.clean();
  }
  const int wanted = count * rounds;
  fmt::print(R"({{"per_s":{},"sent":{},"received":{},"disordered":0}})"
             "\n",
             wanted / seconds, wanted, made);
  return 0;
}
