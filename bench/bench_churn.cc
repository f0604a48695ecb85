// bench_churn SECONDS kill|quiet
//
// Three nodes in a mesh: one emits numbered events as fast as it is let, two count them. A fourth
// node, which listens to the same events, is killed (SIGKILL) and started again every second, or
// left alone (quiet). Nothing may be lost, repeated or out of order between the survivors. Prints
// one JSON line.
#include "ours_node.h"
#include "pair.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <vector>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint64_t kClockEvery = 64;
constexpr std::size_t kBytes = 64;
constexpr std::chrono::seconds kKillEvery{1};
constexpr std::chrono::seconds kDeadline{30};
constexpr int kSender = 0;
constexpr int kLeaf = 3;  // 1 and 2 are the receivers

struct Sent {
  std::uint64_t messages = 0;
  double seconds = 0;
  double longest_stall_ms = 0;
};

struct Received {
  std::uint64_t messages = 0;
  std::uint64_t disordered = 0;  // repeated ones too
};

// Node `id` of the mesh: dials every survivor with a smaller number.
OursNodeOptions member(int id, const std::string& address) {
  OursNodeOptions options{.id = id, .run = address};
  for (int smaller = 0; smaller < id; ++smaller) options.dial.push_back(smaller);
  return options;
}

std::uint64_t number_of(std::span<const std::byte> body) {
  std::uint64_t number = 0;
  std::memcpy(&number, body.data(), sizeof number);
  return number;
}

void run_sender(const std::string& address, double seconds, const Control& control) {
  OursNode node(member(kSender, address));
  node.router().ready();
  control.put('.');
  control.get<char>();
  if (!node.router().wait_for_peers(kLeaf, kDeadline)) fail("a node is missing");
  Sent result;
  std::array<std::byte, kBytes> message{};
  const auto emit = [&](std::uint64_t number) {
    std::memcpy(message.data(), &number, sizeof number);
    node.router().emit("m", std::span<const std::byte>(message));
  };
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::duration<double>(seconds);
  for (auto before = start; before < deadline;) {
    for (std::uint64_t i = 0; i < kClockEvery; ++i) emit(result.messages++);
    const auto now = Clock::now();
    result.longest_stall_ms = std::max(
        result.longest_stall_ms, std::chrono::duration<double, std::milli>(now - before).count());
    before = now;
  }
  emit(kStop);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  control.put(result);
  control.get<char>();
}

void run_receiver(int id, const std::string& address, const Control& control) {
  OursNode node(member(id, address));
  Received result;
  std::uint64_t expected = 0;
  std::promise<void> ended;
  const auto on_m = node.router().on("m", [&](std::span<const std::byte> body) {
    const std::uint64_t number = number_of(body);
    if (number == kStop) {
      ended.set_value();
      return;
    }
    if (number < expected) ++result.disordered;
    expected = number + 1;
    ++result.messages;
  });
  node.router().ready();
  control.put('.');
  ended.get_future().wait();
  control.put(result);
  control.get<char>();
}

// Listens until it is killed, or until the end in a quiet run.
void run_leaf(const std::string& address, const Control& control) {
  OursNode node(member(kLeaf, address));
  const auto on_m = node.router().on("m", [](std::span<const std::byte>) {});
  node.router().ready();
  control.put('.');
  control.get<char>();
}

struct Churn {
  Child leaf;
  int kills = 0;
};

// Kills and restarts the leaf until the sender reports.
Churn churn(Child leaf, bool kill, const std::string& address, const Control& sender) {
  Churn result{leaf, 0};
  while (!sender.waits_for(kKillEvery)) {
    if (!kill) continue;
    ::kill(result.leaf.pid, SIGKILL);
    ::waitpid(result.leaf.pid, nullptr, 0);
    result.leaf.control.close();
    remove_traces(address, kLeaf);
    ++result.kills;
    result.leaf = fork_role([&](const Control& parent) { run_leaf(address, parent); });
    result.leaf.control.get<char>();
  }
  return result;
}

void run(double seconds, bool kill) {
  const std::string address = std::to_string(::getpid());
  const Child sender =
      fork_role([&](const Control& parent) { run_sender(address, seconds, parent); });
  sender.control.get<char>();
  std::vector<Child> receivers;
  for (int id = kSender + 1; id < kLeaf; ++id) {
    receivers.push_back(
        fork_role([&, id](const Control& parent) { run_receiver(id, address, parent); }));
    receivers.back().control.get<char>();
  }
  const Child leaf = fork_role([&](const Control& parent) { run_leaf(address, parent); });
  leaf.control.get<char>();

  sender.control.put('.');
  const Churn result = churn(leaf, kill, address, sender.control);
  const auto sent = sender.control.get<Sent>();
  Received all;
  for (const auto& receiver : receivers) {
    const auto one = receiver.control.get<Received>();
    all.messages += one.messages;
    all.disordered += one.disordered;
  }
  std::vector<pid_t> pids = {sender.pid, result.leaf.pid};
  for (const auto& receiver : receivers) {
    receiver.control.put('.');
    pids.push_back(receiver.pid);
  }
  sender.control.put('.');
  result.leaf.control.put('.');
  const int code = reap(pids, false);
  for (int id = kSender; id <= kLeaf; ++id) remove_traces(address, id);
  if (code != 0) fail("a node ended badly");
  std::printf(
      "{\"mode\":\"%s\",\"msgs_per_s\":%.0f,\"kills\":%d,\"longest_stall_ms\":%.2f,\"sent\":%llu,"
      "\"received\":%llu,\"disordered\":%llu}\n",
      kill ? "kill" : "quiet", static_cast<double>(sent.messages) / sent.seconds, result.kills,
      sent.longest_stall_ms, static_cast<unsigned long long>(sent.messages * receivers.size()),
      static_cast<unsigned long long>(all.messages),
      static_cast<unsigned long long>(all.disordered));
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[2] : "";
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  if (seconds <= 0 || (mode != "kill" && mode != "quiet")) {
    std::fprintf(stderr, "usage: bench_churn SECONDS kill|quiet\n");
    return 2;
  }
  return divisi::bench::guarded("bench_churn",
                                [&] { divisi::bench::run(seconds, mode == "kill"); });
}
