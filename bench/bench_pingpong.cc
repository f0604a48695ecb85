// bench_pingpong TRANSPORT SIZE [TRIPS]
//
// Round trips, one message at a time: each side answers from the place where the message reached
// it (ours: the listener's callback). Both sides sleep while they wait. Prints one JSON line.
#include "pair.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStop = ~std::uint64_t{0};

void answer(Endpoint& endpoint, const Control& control) {
  endpoint.listen([&](std::uint64_t number, Bytes body) {
    touch(body);
    if (number == kStop) return false;
    endpoint.send(number);
    endpoint.flush();
    return true;
  });
  control.put('.');
  endpoint.run();
}

void ask(Endpoint& endpoint, const Control& control, const std::string& transport, std::size_t size,
         std::uint64_t trips) {
  const std::uint64_t warm = trips / 10;
  std::vector<double> micros;
  micros.reserve(trips);
  std::uint64_t next = 0;
  std::uint64_t disordered = 0;
  Clock::time_point start;
  const auto send_next = [&] {
    start = Clock::now();
    endpoint.send(next);
    endpoint.flush();
  };
  endpoint.listen([&](std::uint64_t number, Bytes body) {
    touch(body);
    const auto end = Clock::now();
    if (number != next) ++disordered;
    if (++next > warm) {
      micros.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    }
    if (next == trips + warm) return false;
    send_next();
    return true;
  });
  control.get<char>();
  send_next();
  endpoint.run();
  endpoint.send(kStop);
  endpoint.flush();

  std::sort(micros.begin(), micros.end());
  const auto quantile = [&](double q) {
    return micros[static_cast<std::size_t>(q * static_cast<double>(micros.size() - 1))];
  };
  std::printf(
      "{\"transport\":\"%s\",\"size\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
      "\"sent\":%llu,\"received\":%llu,\"disordered\":%llu}\n",
      transport.c_str(), size, quantile(0.5), quantile(0.99), micros.back(),
      static_cast<unsigned long long>(trips + warm), static_cast<unsigned long long>(next),
      static_cast<unsigned long long>(disordered));
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  using namespace divisi::bench;
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_pingpong TRANSPORT SIZE [TRIPS]\ntransports:");
    for (const auto& name : transports()) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::string transport = argv[1];
  const std::size_t size = std::max<std::size_t>(8, std::strtoull(argv[2], nullptr, 10));
  const std::uint64_t trips =
      std::max<std::uint64_t>(10, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 10000);
  return run_pair(
      transport, size,
      [&](Endpoint& endpoint, const Control& control) {
        ask(endpoint, control, transport, size, trips);
      },
      answer);
}
