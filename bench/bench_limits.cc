// What this machine could do at best: copy bandwidth, the cost of moving one
// cache line between cores, of a system call, and of waking a sleeping thread.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The two threads of a round trip sit on different cores, so that the scheduler
// cannot put both on one and time its own slices.
void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// `skew` is how far, modulo a page, the target lies ahead of the source. A small
// skew is the slow case of `rep movsb` on some processors (page aliasing), and
// glibc's memcpy uses that instruction for sizes from about 2 KB.
void copy_bandwidth(std::size_t size, std::size_t skew) {
  constexpr std::size_t kPage = 4096;
  if (size > (std::size_t{1} << 30)) return;
  const auto page_aligned = [](std::vector<char>& block) {
    const auto at = reinterpret_cast<std::uintptr_t>(block.data());
    return block.data() + (kPage - at % kPage) % kPage;
  };
  std::vector<char> a(size + 2 * kPage, 1), b(size + 2 * kPage, 2);
  const char* from = page_aligned(a);
  char* to = page_aligned(b) + skew;
  std::memcpy(to, from, size);  // touch every page first
  const std::size_t rounds = (std::size_t{4} << 30) / size;
  const auto start = Clock::now();
  for (std::size_t i = 0; i < rounds; ++i) {
    std::memcpy(to, from, size);
    asm volatile("" : : "r"(to) : "memory");
  }
  std::printf("memcpy %9zu B, skew %4zu: %6.1f GB/s\n", size, skew,
              static_cast<double>(size * rounds) / seconds_since(start) / 1e9);
}

void cache_line_round_trip() {
  constexpr std::uint32_t kTrips = 2'000'000;
  alignas(64) std::atomic<std::uint32_t> ping{0};
  alignas(64) std::atomic<std::uint32_t> pong{0};
  std::thread other([&] {
    pin(1);
    for (std::uint32_t i = 1; i <= kTrips; ++i) {
      while (ping.load(std::memory_order_acquire) != i) __builtin_ia32_pause();
      pong.store(i, std::memory_order_release);
    }
  });
  const auto start = Clock::now();
  for (std::uint32_t i = 1; i <= kTrips; ++i) {
    ping.store(i, std::memory_order_release);
    while (pong.load(std::memory_order_acquire) != i) __builtin_ia32_pause();
  }
  const double s = seconds_since(start);
  other.join();
  std::printf("cache line round trip: %.0f ns\n", s / kTrips * 1e9);
}

void eventfd_round_trip() {
  constexpr int kTrips = 100'000;
  const int ping = ::eventfd(0, 0), pong = ::eventfd(0, 0);
  std::uint64_t one = 1, got = 0;
  std::thread other([&] {
    pin(1);
    std::uint64_t n;
    for (int i = 0; i < kTrips; ++i) {
      if (::read(ping, &n, 8) != 8 || ::write(pong, &one, 8) != 8) return;
    }
  });
  const auto start = Clock::now();
  for (int i = 0; i < kTrips; ++i) {
    if (::write(ping, &one, 8) != 8 || ::read(pong, &got, 8) != 8) return;
  }
  const double s = seconds_since(start);
  other.join();
  std::printf("eventfd wake round trip: %.2f us\n", s / kTrips * 1e6);
}

void system_call() {
  constexpr int kCalls = 2'000'000;
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) ::syscall(SYS_getppid);
  std::printf("getppid: %.0f ns\n", seconds_since(start) / kCalls * 1e9);
}

}  // namespace

int main() {
  pin(0);
  for (std::size_t size :
       {std::size_t{1} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
    for (std::size_t skew : {0, 16, 64, 2048}) copy_bandwidth(size, skew);
  }
  system_call();
  cache_line_round_trip();
  eventfd_round_trip();
}
