// bench_local_event WAY [LISTENERS]
//
// What one in-process event costs, by the way it reaches its callback. Every way has 100 event
// names of which one is used, a payload of 64 bytes, and listeners that check the order.
//   table         peer: a direct call through a hash table of names
//   inline        ours: EventLoop, inline listeners
//   mailbox       peer: handed to another thread (mailbox.h)
//   queued        ours: EventLoop, queued listeners
//   mailbox-wake, queued-wake   the same, each event awaited, so that the reader sleeps between
// Prints one JSON line.
#include "divisi/event.h"
#include "mailbox.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Callback = std::function<void(std::string_view)>;

constexpr int kNames = 100;
constexpr std::size_t kPayloadBytes = 64;
const std::string kName = "event.42";

std::string payload_of(std::uint64_t number) {
  std::string payload(kPayloadBytes, 'x');
  std::memcpy(payload.data(), &number, sizeof number);
  return payload;
}

// What every listener does, ours and the peer's.
class Listener {
 public:
  void operator()(std::string_view payload) {
    std::uint64_t number = 0;
    std::memcpy(&number, payload.data(), sizeof number);
    if (number < expected_) ++disordered_;
    expected_ = number + 1;
    received_.fetch_add(1, std::memory_order_release);  // pairs with wait_for
  }
  void wait_for(std::uint64_t count) const {
    while (received_.load(std::memory_order_acquire) < count) std::this_thread::yield();
  }
  std::uint64_t received() const { return received_.load(std::memory_order_acquire); }
  std::uint64_t disordered() const { return disordered_; }

 private:
  std::atomic<std::uint64_t> received_{0};
  std::uint64_t expected_ = 0;
  std::uint64_t disordered_ = 0;
};

using Listeners = std::vector<std::unique_ptr<Listener>>;

struct Timing {
  double mean_ns = 0;
  double p50_ns = 0;
  double p99_ns = 0;
};

template <class EmitOne>
Timing run(const Listeners& listeners, std::uint64_t count, bool one_by_one, EmitOne&& emit) {
  std::string payload = payload_of(0);
  std::vector<double> each;
  if (one_by_one) each.reserve(count);
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(payload.data(), &i, sizeof i);
    if (!one_by_one) {
      emit(payload);
      continue;
    }
    const auto before = Clock::now();
    emit(payload);
    for (const auto& listener : listeners) listener->wait_for(i + 1);
    each.push_back(std::chrono::duration<double, std::nano>(Clock::now() - before).count());
  }
  for (const auto& listener : listeners) listener->wait_for(count);
  Timing timing;
  timing.mean_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
                   static_cast<double>(count);
  std::sort(each.begin(), each.end());
  if (!each.empty()) {
    timing.p50_ns = each[each.size() / 2];
    timing.p99_ns = each[each.size() * 99 / 100];
  }
  return timing;
}

using Table = std::unordered_map<std::string, std::vector<Callback>>;

Table make_table(const Listeners& listeners) {
  Table table;
  for (int i = 0; i < kNames; ++i) {
    for (const auto& listener : listeners) {
      table["event." + std::to_string(i)].push_back(std::ref(*listener));
    }
  }
  return table;
}

Timing run_table(const Listeners& listeners, std::uint64_t count) {
  const Table table = make_table(listeners);
  return run(listeners, count, false, [&](const std::string& payload) {
    for (const auto& callback : table.find(kName)->second) callback(payload);
  });
}

Timing run_mailbox(const Listeners& listeners, std::uint64_t count, bool one_by_one) {
  const Table table = make_table(listeners);
  Mailbox mailbox;
  return run(listeners, count, one_by_one, [&](const std::string& payload) {
    mailbox.post([&table, copy = payload] {
      for (const auto& callback : table.find(kName)->second) callback(copy);
    });
  });
}

Timing run_ours(const Listeners& listeners, std::uint64_t count, bool inline_listeners,
                bool one_by_one) {
  EventLoop loop("bench");
  for (int i = 0; i < kNames; ++i) {
    for (const auto& listener : listeners) {
      loop.on("event." + std::to_string(i),
              [&target = *listener](std::string_view payload) { target(payload); },
              {.inline_ = inline_listeners});
    }
  }
  return run(listeners, count, one_by_one,
             [&](const std::string& payload) { loop.emit(kName, payload); });
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  using namespace divisi::bench;
  const std::string_view way = argc > 1 ? argv[1] : "";
  const int count_of_listeners = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  Listeners listeners;
  for (int i = 0; i < count_of_listeners; ++i) listeners.push_back(std::make_unique<Listener>());

  constexpr std::uint64_t kDirect = 5'000'000;
  constexpr std::uint64_t kQueued = 1'000'000;
  constexpr std::uint64_t kAwaited = 20'000;
  Timing timing;
  std::uint64_t count = 0;
  if (way == "table") {
    timing = run_table(listeners, count = kDirect);
  } else if (way == "inline") {
    timing = run_ours(listeners, count = kDirect, true, false);
  } else if (way == "mailbox" || way == "mailbox-wake") {
    timing = run_mailbox(listeners, count = way == "mailbox" ? kQueued : kAwaited,
                         way == "mailbox-wake");
  } else if (way == "queued" || way == "queued-wake") {
    timing = run_ours(listeners, count = way == "queued" ? kQueued : kAwaited, false,
                      way == "queued-wake");
  } else {
    std::fprintf(stderr,
                 "usage: bench_local_event WAY [LISTENERS]\n"
                 "ways: table inline mailbox queued mailbox-wake queued-wake\n");
    return 2;
  }
  std::uint64_t received = 0;
  std::uint64_t disordered = 0;
  for (const auto& listener : listeners) {
    received += listener->received();
    disordered += listener->disordered();
  }
  std::printf(
      "{\"way\":\"%s\",\"listeners\":%d,\"ns\":%.1f,\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"sent\":%llu,"
      "\"received\":%llu,\"disordered\":%llu}\n",
      argv[1], count_of_listeners, timing.mean_ns, timing.p50_ns, timing.p99_ns,
      static_cast<unsigned long long>(count * static_cast<std::uint64_t>(count_of_listeners)),
      static_cast<unsigned long long>(received), static_cast<unsigned long long>(disordered));
  return 0;
}
