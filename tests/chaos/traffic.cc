#include "chaos/traffic.h"

#include <algorithm>
#include <cstdlib>

namespace chaos {

using divisi::Buffer;
using divisi::Parallel;

namespace {

std::size_t size_of(int n) {
  if (n % 97 == 96) return 700'000;
  if (n % 10 == 9) return 20'000;
  return 40;
}

}  // namespace

bool soak() {
  const char* const text = std::getenv("DIVISI_SOAK");
  return text != nullptr && std::string(text) == "1";
}

Receiver::Receiver(bool gaps) : seen_(std::make_shared<Seen>(gaps)) {
  numbers_ = Parallel::instance().on(
      "number", [seen = seen_](int sender, int life, int n, const Buffer& bytes) {
        const auto* const end = bytes.data() + bytes.size();
        const bool whole = std::all_of(
            bytes.data(), end, [&](std::byte each) { return each == static_cast<std::byte>(n); });
        seen->take(sender, life, whole ? n : -1, bytes.size());
      });
}

void Receiver::Seen::take(int sender, int life, int n, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const std::pair key(sender, life);
  const int before = last.contains(key) ? last[key] : -1;
  if (wrong.empty() && (gaps ? n <= before : n != before + 1)) {
    wrong = "node " + std::to_string(sender) + " life " + std::to_string(life) + ": " +
            std::to_string(n) + " (" + std::to_string(bytes) + " bytes) after " +
            std::to_string(before);
  }
  last[key] = n;
  ++counts[key];
  changed.notify_all();
}

void Receiver::wait_for(int sender, int count, int life, std::chrono::milliseconds deadline) {
  std::unique_lock lock(seen_->mutex);
  int& arrived = seen_->counts[{sender, life}];
  const bool came = seen_->changed.wait_for(
      lock, deadline, [&] { return !seen_->wrong.empty() || arrived >= count; });
  demand(seen_->wrong.empty(), seen_->wrong);
  demand(came, "all " + std::to_string(count) + " events of node " + std::to_string(sender) +
                   " arrive, not only " + std::to_string(arrived));
}

int Receiver::count(int sender, int life) const {
  const std::lock_guard lock(seen_->mutex);
  const auto found = seen_->counts.find({sender, life});
  return found == seen_->counts.end() ? 0 : found->second;
}

void Receiver::check() const {
  const std::lock_guard lock(seen_->mutex);
  demand(seen_->wrong.empty(), seen_->wrong);
}

void send_number(int n, int life) {
  send_number(n, life, size_of(n));
}

void send_number(int n, int life, std::size_t bytes) {
  Buffer block(bytes);
  std::fill_n(block.mutable_data(), bytes, static_cast<std::byte>(n));
  Parallel& router = Parallel::instance();
  router.emit("number", router.node_id(), life, n, block);
}

void wait_until_ready(std::size_t count) {
  Parallel& router = Parallel::instance();
  demand(router.wait_for_peers(count, kSoon), std::to_string(count) + " peers come");
  const bool are_ready = jobs::eventually([&] {
    const auto peers = router.peers();
    return std::ranges::all_of(peers, [](const auto& peer) { return peer.ready; });
  });
  demand(are_ready, "all have made their listeners");
}

void Progress::note(int sent) const {
  jobs::note(folder_, name_, std::to_string(sent));
}

int Progress::sent() const {
  return std::stoi(jobs::read_note(folder_, name_).value_or("0"));
}

void Progress::wait_beyond(int sent) const {
  demand(jobs::eventually([&] { return this->sent() > sent; }),
         name_ + " gets beyond " + std::to_string(sent));
}

void Progress::wait_until_still() const {
  // Many times what lies between two notes of a sender that is not held up.
  constexpr auto kStill = 200ms;
  using Clock = std::chrono::steady_clock;
  int last = -1;
  Clock::time_point since;
  const bool stands = jobs::eventually([&] {
    const int now = sent();
    if (now != last) since = Clock::now();
    last = now;
    return Clock::now() - since > kStill;
  });
  demand(stands, name_ + " is held up, not at " + std::to_string(last) + " and further");
}

PeerChanges::PeerChanges() {
  for (const char* const change : {"peer_lost", "peer_back", "peer_left"}) {
    reports_.push_back(Parallel::instance().on(
        change, [this, change](int node) { changes_.add(change + (" " + std::to_string(node))); }));
  }
}

void PeerChanges::wait_for(const std::string& change, std::chrono::milliseconds deadline) {
  const bool came = jobs::eventually(
      [&] {
        const auto so_far = all();
        return std::ranges::find(so_far, change) != so_far.end();
      },
      deadline);
  demand(came, "the router reports '" + change + "'");
}

divisi::PeerCounters counters_of(int node) {
  for (const auto& peer : Parallel::instance().stats().peers) {
    if (peer.node_id == node) return peer;
  }
  return {};
}

}  // namespace chaos
