#include "mesh/testing/sim_world.h"

namespace divisi::mesh::testing {

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t Random::between(std::uint64_t low, std::uint64_t high) {
  return low + next() % (high - low + 1);
}

bool Random::chance(double probability) {
  return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
}

io::Duration Random::duration(io::Duration longest) {
  return io::Duration(
      static_cast<io::Duration::rep>(between(0, static_cast<std::uint64_t>(longest.count()))));
}

void SimWorld::at(io::TimePoint when, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  due_.emplace(std::pair(std::max(when, now_), next_++), std::move(work));
}

void SimWorld::run_for(io::Duration time) {
  const io::TimePoint end = now_ + time;
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (due_.empty() || due_.begin()->first.first > end) break;
      now_ = due_.begin()->first.first;
      work = std::move(due_.begin()->second);
      due_.erase(due_.begin());
    }
    work();
  }
  now_ = end;
}

std::vector<std::shared_ptr<SimWire>> SimWorld::wires() {
  std::erase_if(wires_, [](const auto& wire) { return wire.expired(); });
  std::vector<std::shared_ptr<SimWire>> open;
  for (const auto& wire : wires_) {
    if (auto held = wire.lock()) open.push_back(std::move(held));
  }
  return open;
}

}  // namespace divisi::mesh::testing
