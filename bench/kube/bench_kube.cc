// bench_kube MODE NAMESPACE CONNECTIONS COUNT: one measurement of the Kubernetes client library, as
// one line of JSON. peer/main.go is the same over client-go.
//
//   seed      COUNT pods of a typical size, for list and informer
//   create    COUNT config maps, CONNECTIONS at once
//   get       one of them COUNT times, CONNECTIONS at once
//   list      all pods COUNT times, CONNECTIONS at once
//   informer  a cache of all pods: how long until it is in step, with which memory and CPU
//   latency   COUNT config maps one after another: from the request to the handler of an informer

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
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace divisi;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_kube: %s\n", why.c_str());
  std::_Exit(1);
}

json::Value parsed(const std::string& text) {
  auto value = json::parse(text);
  if (!value) die(value.error().message());
  return *std::move(value);
}

json::Value config_map(int number) {
  return parsed(fmt::format(R"({{"metadata":{{"name":"b{}-{}"}},"data":{{"k":"{}"}}}})", ::getpid(),
                            number, std::string(200, 'x')));
}

// What a Deployment makes of a small service: requests, probes, environment, a volume.
json::Value typical_pod(int number) {
  return parsed(fmt::format(
      R"({{"metadata":{{"name":"pod-{0}","labels":{{"app":"bench","pod-template-hash":"5d59d67564","role":"collector"}},
"annotations":{{"prometheus.io/scrape":"true","prometheus.io/port":"8080"}}}},
"spec":{{"containers":[{{"name":"main","image":"docker.io/local/worker:1","command":["ditask","--package","/app"],
"ports":[{{"containerPort":8080,"name":"http"}}],"env":[{{"name":"RANK","value":"{0}"}},{{"name":"NODES","value":"a.b,c.d"}},
{{"name":"IP","valueFrom":{{"fieldRef":{{"fieldPath":"status.podIP"}}}}}}],
"resources":{{"limits":{{"cpu":"2","memory":"4Gi"}},"requests":{{"cpu":"500m","memory":"1Gi"}}}},
"livenessProbe":{{"httpGet":{{"path":"/healthz","port":8080}},"periodSeconds":10}},
"volumeMounts":[{{"name":"shm","mountPath":"/dev/shm"}}]}}],
"volumes":[{{"name":"shm","emptyDir":{{"medium":"Memory"}}}}],"restartPolicy":"Never","terminationGracePeriodSeconds":30}}}})",
      number));
}

// Runs `one` COUNT times, so many at once, and returns the seconds it took. Each calls its `done`.
double many(kube::Session& session, int connections, int count,
            const std::function<void(int number, std::function<void()> done)>& one) {
  std::promise<void> all;
  int started = 0;
  int ended = 0;
  std::function<void()> next = [&] {
    if (started < count) {
      one(started++, [&] {
        if (++ended == count) {
          all.set_value();
        } else {
          next();
        }
      });
    }
  };
  const auto start = Clock::now();
  session.reactor().post([&] {
    for (int i = 0; i < connections; ++i) next();
  });
  all.get_future().wait();
  return seconds_since(start);
}

void must(const Result<json::Value>& answer) {
  if (!answer) die(answer.error().message());
}

long resident_kb() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0;
  statm >> pages >> pages;
  return pages * (::sysconf(_SC_PAGESIZE) / 1024);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void report(const std::string& figures, int count) {
  fmt::print(R"({{{},"sent":{},"received":{},"disordered":0}})"
             "\n",
             figures, count, count);
}

void informer(kube::Session& session, const std::string& space, int count) {
  std::unique_ptr<kube::Informer> cache;
  std::promise<void> synced;
  const auto start = Clock::now();
  session.reactor().run_on_loop([&] {
    cache = std::make_unique<kube::Informer>(
        session.client(),
        kube::InformerOptions{.reflector = {.resource = kube::resources::pods(), .space = space}});
    cache->add_handler({.on_synced = [&] { synced.set_value(); }});
    cache->start();
  });
  synced.get_future().wait();
  const double seconds = seconds_since(start);
  std::size_t size = 0;
  std::size_t bytes = 0;
  session.reactor().run_on_loop([&] {
    size = cache->size();
    for (const auto& object : cache->all()) bytes += object->text().capacity();
  });
  if (size != static_cast<std::size_t>(count))
    die(fmt::format("{} of {} pods cached", size, count));
  report(fmt::format(R"("ms":{},"rss_kb":{},"cpu_ms":{},"text_bytes":{})", 1000 * seconds,
                     resident_kb(), 1000 * cpu_seconds(), bytes / std::max<std::size_t>(size, 1)),
         count);
  std::fflush(stdout);
  session.reactor().run_on_loop([&] { cache.reset(); });
}

void latency(kube::Session& session, const std::string& space, int count) {
  std::unique_ptr<kube::Informer> cache;
  std::promise<void> synced;
  std::string expected;
  std::function<void()> heard;
  session.reactor().run_on_loop([&] {
    cache = std::make_unique<kube::Informer>(
        session.client(),
        kube::InformerOptions{
            .reflector = {.resource = kube::resources::config_maps(), .space = space}});
    cache->add_handler({.on_added =
                            [&](const kube::ObjectPtr& object) {
                              if (heard && object->key() == expected) heard();
                            },
                        .on_synced = [&] { synced.set_value(); }});
    cache->start();
  });
  synced.get_future().wait();
  std::vector<double> times;
  many(session, 1, count, [&](int number, std::function<void()> done) {
    const json::Value object = config_map(number);
    expected = kube::object_key(space, object.string_at({"metadata", "name"}));
    const auto start = Clock::now();
    heard = [&, start, done = std::move(done)] {
      times.push_back(1e6 * seconds_since(start));
      // Not inside the handler.
      session.reactor().post(done);
    };
    session.client().create(kube::resources::config_maps(), space, object, {}, must);
  });
  std::sort(times.begin(), times.end());
  report(fmt::format(R"("p50_us":{},"p99_us":{})", times[times.size() / 2],
                     times[times.size() * 99 / 100]),
         count);
  std::fflush(stdout);
  session.reactor().run_on_loop([&] { cache.reset(); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) die("usage: bench_kube MODE NAMESPACE CONNECTIONS COUNT");
  const std::string mode = argv[1];
  const std::string space = argv[2];
  const int connections = std::atoi(argv[3]);
  const int count = std::atoi(argv[4]);
  auto opened = kube::Session::open({});
  if (!opened) die(opened.error().message());
  kube::Session& session = **opened;
  kube::Client& client = session.client();
  if (mode == "seed") {
    const double seconds = many(session, connections, count, [&](int number, auto done) {
      client.create(kube::resources::pods(), space, typical_pod(number), {},
                    [done](const Result<json::Value>& answer) {
                      must(answer);
                      done();
                    });
    });
    report(fmt::format(R"("per_s":{})", count / seconds), count);
  } else if (mode == "create") {
    const double seconds = many(session, connections, count, [&](int number, auto done) {
      client.create(kube::resources::config_maps(), space, config_map(number), {},
                    [done](const Result<json::Value>& answer) {
                      must(answer);
                      done();
                    });
    });
    report(fmt::format(R"("per_s":{})", count / seconds), count);
  } else if (mode == "get") {
    const double seconds = many(session, connections, count, [&](int, auto done) {
      client.get(kube::resources::pods(), space, "pod-0", {},
                 [done](const Result<json::Value>& answer) {
                   must(answer);
                   done();
                 });
    });
    report(fmt::format(R"("per_s":{})", count / seconds), count);
  } else if (mode == "list") {
    const auto whole = session.call(
        [&](kube::Done done) { client.list(kube::resources::pods(), space, {}, std::move(done)); });
    must(whole);
    const std::size_t bytes = json::print(*whole).size();
    const double seconds = many(session, connections, count, [&](int, auto done) {
      client.list(kube::resources::pods(), space, {}, [done](const Result<json::Value>& answer) {
        must(answer);
        done();
      });
    });
    report(fmt::format(R"("mb_per_s":{})", 1e-6 * static_cast<double>(bytes) * count / seconds),
           count);
  } else if (mode == "informer") {
    informer(session, space, count);
  } else if (mode == "latency") {
    latency(session, space, count);
  } else {
    die("no such mode: " + mode);
  }
  return 0;
}
