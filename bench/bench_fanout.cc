// bench_fanout ours|zmq RECEIVERS INTERESTED [SECONDS]
//
// One process emits 64-byte events for SECONDS to RECEIVERS processes on the host, of which the
// first INTERESTED listen. The rate is emits a second until the slowest of those has everything.
// Prints one JSON line.
#include "fanout.h"
#include "ours_node.h"
#include "pair.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <vector>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;  // one clock for all processes of a host

constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint64_t kClockEvery = 256;

struct Options {
  bool ours = true;
  int receivers = 1;
  int interested = 1;
  double seconds = 1;
  std::string address;
};

struct Received {
  std::uint64_t messages = 0;
  std::uint64_t disordered = 0;
  Clock::time_point last;
};

void run_leaf(const Options& options, int index, const Control& control) {
  const auto leaf =
      options.ours ? make_ours_leaf(index, options.address) : make_zmq_leaf(options.address);
  if (index >= options.interested) {
    leaf->decline();
    control.put('.');
    control.get<char>();
    return;
  }
  Received result;
  std::uint64_t expected = 0;
  leaf->listen([&](std::uint64_t number, Bytes body) {
    touch(body);
    if (number == kStop) {
      result.last = Clock::now();
      return false;
    }
    if (number < expected) ++result.disordered;
    expected = number + 1;
    ++result.messages;
    return true;
  });
  control.put('.');
  leaf->run();
  control.put(result);
  control.get<char>();  // everybody has everything: now it is safe to close
}

void run_hub(const Options& options, const std::vector<Control>& leaves) {
  const auto hub = options.ours ? make_ours_hub(options.address) : make_zmq_hub(options.address);
  for (const auto& leaf : leaves) leaf.get<char>();
  hub->wait_for_leaves(options.receivers);

  const auto start = Clock::now();
  const auto deadline = start + std::chrono::duration<double>(options.seconds);
  std::uint64_t sent = 0;
  for (; sent % kClockEvery != 0 || Clock::now() < deadline; ++sent) hub->send(sent);
  hub->send(kStop);
  hub->flush();

  Received all;
  all.last = Clock::now();
  for (int i = 0; i < options.interested; ++i) {
    const auto one = leaves[static_cast<std::size_t>(i)].get<Received>();
    all.messages += one.messages;
    all.disordered += one.disordered;
    all.last = std::max(all.last, one.last);
  }
  for (const auto& leaf : leaves) leaf.put('.');
  const double seconds = std::chrono::duration<double>(all.last - start).count();
  std::printf(
      "{\"transport\":\"%s\",\"receivers\":%d,\"interested\":%d,\"emits_per_s\":%.0f,\"sent\":%llu,"
      "\"received\":%llu,\"disordered\":%llu}\n",
      options.ours ? "ours" : "zmq", options.receivers, options.interested,
      static_cast<double>(sent) / seconds,
      static_cast<unsigned long long>(sent * static_cast<std::uint64_t>(options.interested)),
      static_cast<unsigned long long>(all.messages),
      static_cast<unsigned long long>(all.disordered));
}

int run(const Options& options) {
  std::vector<Control> controls;
  std::vector<pid_t> children;
  for (int i = 0; i < options.receivers; ++i) {
    const auto [pid, control] =
        fork_role([&, i](const Control& parent) { run_leaf(options, i, parent); });
    children.push_back(pid);
    controls.push_back(control);
  }
  const int code = guarded("hub", [&] { run_hub(options, controls); });
  const int children_code = reap(children, code != 0);
  std::error_code ignored;
  std::filesystem::remove(ipc_path(options.address, "fan"), ignored);
  for (int id = 0; id <= options.receivers; ++id) remove_traces(options.address, id);
  return code != 0 ? code : children_code;
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  using namespace divisi::bench;
  Options options;
  if (argc > 3) {
    options.ours = std::string_view(argv[1]) == "ours";
    options.receivers = std::atoi(argv[2]);
    options.interested = std::atoi(argv[3]);
  }
  if (argc > 4) options.seconds = std::atof(argv[4]);
  options.address = std::to_string(::getpid());
  if (argc < 4 || (!options.ours && std::string_view(argv[1]) != "zmq") || options.receivers < 1 ||
      options.interested < 1 || options.interested > options.receivers) {
    std::fprintf(stderr, "usage: bench_fanout ours|zmq RECEIVERS INTERESTED [SECONDS]\n");
    return 2;
  }
  return run(options);
}
