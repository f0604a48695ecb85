// bench_burst TRANSPORT SIZE [SECONDS]
//
// One way: the server sends numbered messages for SECONDS as fast as it is let; the client counts
// them, in order or not, from the first to a final stop message. The clock runs at the receiver.
// Prints one JSON line; loss and disorder are counted, not assumed away.
#include "pair.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStop = ~std::uint64_t{0};

struct Received {
  std::uint64_t messages = 0;
  std::uint64_t disordered = 0;
  double seconds = 0;
  long peak_kb = 0;
};

long peak_kb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void receive(Endpoint& endpoint, const Control& control) {
  Received result;
  Clock::time_point first;
  std::uint64_t expected = 0;
  endpoint.listen([&](std::uint64_t number, Bytes body) {
    touch(body);
    // A clock read costs as much as a small message: at the two ends only.
    if (result.messages == 0) first = Clock::now();
    if (number == kStop) {
      result.seconds = std::chrono::duration<double>(Clock::now() - first).count();
      return false;
    }
    if (number < expected) ++result.disordered;
    expected = number + 1;
    ++result.messages;
    return true;
  });
  control.put('.');
  endpoint.run();
  result.peak_kb = peak_kb();
  control.put(result);
}

void send(Endpoint& endpoint, const Control& control, const std::string& transport,
          std::size_t size, double seconds) {
  control.get<char>();
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  const std::uint64_t clock_every = std::max<std::uint64_t>(1, 65536 / size);
  std::uint64_t sent = 0;
  for (; sent % clock_every != 0 || Clock::now() < deadline; ++sent) endpoint.send(sent);
  endpoint.send(kStop);
  endpoint.flush();
  const auto received = control.get<Received>();
  const double rate = static_cast<double>(received.messages) / received.seconds;
  std::printf(
      "{\"transport\":\"%s\",\"size\":%zu,\"msgs_per_s\":%.0f,\"mb_per_s\":%.1f,\"sent\":%llu,"
      "\"received\":%llu,\"disordered\":%llu,\"sender_peak_kb\":%ld,\"receiver_peak_kb\":%ld}\n",
      transport.c_str(), size, rate, rate * static_cast<double>(size) / 1e6,
      static_cast<unsigned long long>(sent), static_cast<unsigned long long>(received.messages),
      static_cast<unsigned long long>(received.disordered), peak_kb(), received.peak_kb);
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  using namespace divisi::bench;
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_burst TRANSPORT SIZE [SECONDS]\ntransports:");
    for (const auto& name : transports()) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::string transport = argv[1];
  const std::size_t size = std::max<std::size_t>(8, std::strtoull(argv[2], nullptr, 10));
  const double seconds = argc > 3 ? std::atof(argv[3]) : 1.0;
  return run_pair(
      transport, size,
      [&](Endpoint& endpoint, const Control& control) {
        send(endpoint, control, transport, size, seconds);
      },
      receive);
}
