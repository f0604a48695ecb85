// bench_dist MODE ...: one measurement of the first generation's workers, as one line of JSON.
//
//   trips WORKERS SECONDS   a Master and WORKERS Slaves, each a process of its own, over loopback:
//                           tasks "resource", each sent when the result of the one before is
//                           there; WORKERS at a time. A trip is POST /task/new and its answer,
//                           the task on the worker's thread, PUT /slave/task/complete and its
//                           answer. Trips a second of all workers; p50 of one trip.
#include "dist/master.h"
#include "dist/slave.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace divisi;
using namespace divisi::dist;
using Clock = std::chrono::steady_clock;
constexpr int kMostWorkers = 64;
constexpr int kCpus = 20;  // what every worker says it has

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_dist: %s\n", why.c_str());
  std::_Exit(1);
}

class ResourceHandler final : public TaskHandler {
 public:
  TaskOutcome run(const json::Value& data) override {
    if (data.string_at({"name"}) != "resource") return unknown_task();
    return {.completed = true, .result = json::Object{{"gpu", 1}, {"cpu", kCpus}}};
  }
};

// A process with one Slave. It says its port and lives until the parent closes its end.
[[noreturn]] void run_slave(int to_parent, int from_parent) {
  const auto reactor = io::make_reactor();
  Result<std::unique_ptr<Slave>> slave = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] {
    SlaveOptions options;
    options.bind.host = "127.0.0.1";
    options.bind.port = 0;
    slave = Slave::start(*reactor, options, std::make_shared<ResourceHandler>());
  });
  if (!slave) die(slave.error().message());
  const std::uint16_t port = (*slave)->address().port;
  if (::write(to_parent, &port, sizeof port) != sizeof port) die("the parent does not read");
  char nothing = 0;
  while (::read(from_parent, &nothing, 1) > 0) {
  }
  std::_Exit(0);
}

struct Child {
  pid_t pid = 0;
  int leash = -1;  // closed: the child ends
  std::uint16_t port = 0;
};

Child start_slave(const std::vector<Child>& before) {
  int up[2];
  int down[2];
  if (::pipe(up) != 0 || ::pipe(down) != 0) die("cannot make a pipe");
  const pid_t pid = ::fork();
  if (pid < 0) die("cannot fork");
  if (pid == 0) {
    for (const Child& each : before) ::close(each.leash);
    ::close(up[0]);
    ::close(down[1]);
    run_slave(up[1], down[0]);
  }
  ::close(up[1]);
  ::close(down[0]);
  Child child{.pid = pid, .leash = down[1]};
  if (::read(up[0], &child.port, sizeof child.port) != sizeof child.port) die("a slave ended");
  ::close(up[0]);
  return child;
}

// Keeps one task at every slave until the time is over. Of the loop.
class Trips {
 public:
  Trips(Master& master, Clock::duration length) : master_(master), length_(length) {}

  void start(const std::vector<std::string>& urls, std::function<void()> done) {
    done_ = std::move(done);
    running_ = urls.size();
    begin_ = Clock::now();
    for (const std::string& url : urls) next(url);
  }

  // Ends the program with the figures.
  void report() {
    std::sort(times_.begin(), times_.end());
    fmt::print(
        R"({{"per_s":{},"p50_us":{},"p99_us":{},"sent":{},"received":{},"disordered":{}}})"
        "\n",
        static_cast<double>(times_.size()) / std::chrono::duration<double>(end_ - begin_).count(),
        times_[times_.size() / 2], times_[times_.size() * 99 / 100], sent_, times_.size(), wrong_);
    std::fflush(stdout);
  }

 private:
  void next(const std::string& url) {
    const auto sent = Clock::now();
    if (sent - begin_ >= length_) {
      end_ = sent;
      if (--running_ == 0) done_();
      return;
    }
    ++sent_;
    master_.new_task(
        url, json::Object{{"name", "resource"}}, {}, [this, url, sent](const TaskReport& report) {
          if (report.state != TaskState::kCompleted) die("a task failed: " + report.why);
          if (report.result.int_at({"cpu"}) != kCpus) ++wrong_;
          times_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - sent).count());
          next(url);
        });
  }

  Master& master_;
  const Clock::duration length_;
  std::function<void()> done_;
  std::size_t running_ = 0;
  std::size_t sent_ = 0;
  std::size_t wrong_ = 0;
  Clock::time_point begin_;
  Clock::time_point end_;
  std::vector<double> times_;
};

std::vector<std::string> connect_all(io::Reactor& reactor, Master& master,
                                     const std::vector<Child>& children) {
  std::vector<std::string> urls;
  for (const Child& each : children) {
    std::promise<Status> connected;
    urls.push_back(fmt::format("127.0.0.1:{}", each.port));
    reactor.post([&] {
      master.connect(urls.back(), json::Object{},
                     [&](Status status) { connected.set_value(std::move(status)); });
    });
    if (const Status status = connected.get_future().get(); !status.ok()) die(status.message());
  }
  return urls;
}

int measure_trips(int workers, double seconds) {
  std::vector<Child> children;
  // Before any thread is started here.
  for (int i = 0; i < workers; ++i) children.push_back(start_slave(children));
  const auto reactor = io::make_reactor();
  Result<std::unique_ptr<Master>> master = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] {
    MasterOptions options;
    options.bind.host = "127.0.0.1";
    options.bind.port = 0;
    master = Master::start(*reactor, options);
  });
  if (!master) die(master.error().message());
  const std::vector<std::string> urls = connect_all(*reactor, **master, children);
  const auto length =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (const auto each : {length / 10, length}) {  // the first one warms up
    Trips trips(**master, each);
    std::promise<void> over;
    reactor->post([&] { trips.start(urls, [&] { over.set_value(); }); });
    over.get_future().wait();
    if (each == length) trips.report();
  }
  std::promise<void> down;
  reactor->post([&] { (*master)->shutdown([&] { down.set_value(); }); });
  down.get_future().wait();
  reactor->run_on_loop([&] { master->reset(); });
  for (const Child& each : children) {
    ::close(each.leash);
    ::waitpid(each.pid, nullptr, 0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "trips" && argc == 4) {
    const int workers = std::atoi(argv[2]);
    const double seconds = std::atof(argv[3]);
    if (workers < 1 || workers > kMostWorkers || seconds <= 0) {
      die("trips WORKERS SECONDS: 1 to 64 workers, more than 0 seconds");
    }
    return measure_trips(workers, seconds);
  }
  die("usage: bench_dist trips WORKERS SECONDS");
}
