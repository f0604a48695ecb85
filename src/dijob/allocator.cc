#include "dijob/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

using Free = std::vector<Amounts>;        // of each node
using Choice = std::vector<std::size_t>;  // a node for each replica, or kNowhere

class Allocation {
 public:
  Allocation(const std::vector<Demand>& demands, std::vector<Node> nodes)
      : demands_(demands),
        nodes_(std::move(nodes)),
        choices_(demands.size()),
        order_(demands.size()),
        ahead_(demands.size(), 0) {
    std::ranges::sort(nodes_, {}, &Node::name);
    for (const Node& node : nodes_) {
      free_.push_back(node.free);
      add(total_, node.free);
    }
    base_ = free_;
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_, {}, [&](std::size_t job) {
      const Demand& demand = demands_[job];
      return std::tuple<bool, std::string_view, std::string_view>(!demand.high, demand.created,
                                                                  demand.key);
    });
    for (std::size_t job = 0; job < demands.size(); ++job) find_current(job);
  }

  std::vector<Placement> run() {
    for (const std::size_t job : order_) keep_gang(job);
    for (auto at = order_.begin(); at != order_.end(); ++at) {
      if (!has_gang(*at)) start({at, order_.end()});
      if (has_gang(*at)) keep_extras(*at);
    }
    if (!somebody_waits_) {
      for (const std::size_t job : order_) grow(job);
    }
    std::vector<Placement> placements;
    for (std::size_t job = 0; job < demands_.size(); ++job) placements.push_back(publish(job));
    return placements;
  }

 private:
  using Later = std::span<const std::size_t>;  // a job, and those that come after it

  // Where each replica is now, as far as that place still exists.
  void find_current(std::size_t job) {
    const Demand& demand = demands_[job];
    Choice& now = current_.emplace_back(demand.replicas.size(), kNowhere);
    choices_[job] = now;  // nobody has a place yet
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto rank = static_cast<std::size_t>(demand.replicas[i].rank);
      if (rank >= demand.nodes.size() || demand.nodes[rank].empty()) continue;
      const auto found = std::ranges::lower_bound(nodes_, demand.nodes[rank], {}, &Node::name);
      if (found == nodes_.end() || found->name != demand.nodes[rank] || !found->alive) continue;
      now[i] = static_cast<std::size_t>(found - nodes_.begin());
    }
    admitted_.emplace_back();
    for (const Kind& kind : demand.kinds) {
      std::vector<bool>& by_node = admitted_.back().emplace_back();
      for (const Node& node : nodes_) by_node.push_back(node.open && admits(node, kind.pod_spec));
    }
  }

  const Amounts& needs(std::size_t job, std::size_t replica) const {
    return demands_[job].kinds[demands_[job].replicas[replica].kind].needs;
  }

  bool take(Free& free, std::size_t node, const Amounts& needs) const {
    if (!fits(needs, free[node])) return false;
    subtract(free[node], needs);
    return true;
  }

  std::optional<std::size_t> first_fit(std::size_t job, std::size_t replica, Free& free) const {
    const std::vector<bool>& admitted = admitted_[job][demands_[job].replicas[replica].kind];
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      if (admitted[node] && take(free, node, needs(job, replica))) return node;
    }
    return std::nullopt;
  }

  bool has_gang(std::size_t job) const {
    const std::vector<Replica>& replicas = demands_[job].replicas;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      if (replicas[i].required && choices_[job][i] == kNowhere) return false;
    }
    return true;
  }

  // Places for the smallest gang, the largest replicas first; those of `kept` as they are.
  std::optional<Choice> place_gang(std::size_t job, const Choice& kept, Free& free) const {
    const std::vector<Replica>& replicas = demands_[job].replicas;
    Choice choice(replicas.size(), kNowhere);
    std::vector<std::pair<double, std::size_t>> missing;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      if (!replicas[i].required) continue;
      if (kept[i] != kNowhere && take(free, kept[i], needs(job, i))) {
        choice[i] = kept[i];
      } else {
        missing.emplace_back(-dominant_share(needs(job, i), total_), i);
      }
    }
    std::ranges::sort(missing);
    for (const auto& [share, i] : missing) {
      const std::optional<std::size_t> node = first_fit(job, i, free);
      if (!node) return std::nullopt;
      choice[i] = *node;
    }
    return choice;
  }

  // On `free` as it is; untouched when there is no place.
  bool try_to_place(std::size_t job, const Choice& kept, Free free, Choice& choice) const {
    std::optional<Choice> found = place_gang(job, kept, free);
    if (!found) return false;
    choice = *std::move(found);
    return true;
  }

  void settle(std::size_t job, Choice choice) {
    for (std::size_t i = 0; i < choice.size(); ++i) {
      if (choice[i] != kNowhere) subtract(free_[choice[i]], needs(job, i));
    }
    choices_[job] = std::move(choice);
  }

  // A gang that runs is not broken up for another.
  void keep_gang(std::size_t job) {
    const Choice& now = current_[job];
    Free left = free_;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!demands_[job].replicas[i].required) continue;
      if (now[i] == kNowhere || !take(left, now[i], needs(job, i))) return;
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (demands_[job].replicas[i].required) choices_[job][i] = now[i];
    }
    free_ = std::move(left);
  }

  // What is free while those behind the first of `jobs` keep what they have beyond their gangs.
  Free without_extras(Later jobs) const {
    Free free = free_;
    for (const std::size_t later : jobs.subspan(1)) {
      if (!has_gang(later)) continue;
      for (std::size_t i = 0; i < current_[later].size(); ++i) {
        const std::size_t node = current_[later][i];
        const bool extra = !demands_[later].replicas[i].required && node != kNowhere;
        if (extra) (void)take(free, node, needs(later, i));
      }
    }
    return free;
  }

  // At the cost of nobody, else of extras behind it; with the places that it has, else with others.
  void start(Later jobs) {
    const std::size_t job = jobs.front();
    ahead_[job] = waiting_;
    if (!somebody_waits_) {
      const Choice nothing(demands_[job].replicas.size(), kNowhere);
      const Free gentle = without_extras(jobs);
      Choice choice;
      if (try_to_place(job, current_[job], gentle, choice) ||
          try_to_place(job, nothing, gentle, choice) ||
          try_to_place(job, current_[job], free_, choice) ||
          try_to_place(job, nothing, free_, choice)) {
        return settle(job, std::move(choice));
      }
      somebody_waits_ = try_to_place(job, nothing, base_, choice);
    }
    ++waiting_;
  }

  void keep_extras(std::size_t job) {
    for (std::size_t i = 0; i < choices_[job].size(); ++i) {
      const std::size_t node = current_[job][i];
      if (choices_[job][i] != kNowhere || node == kNowhere) continue;
      if (take(free_, node, needs(job, i))) choices_[job][i] = node;
    }
  }

  void grow(std::size_t job) {
    if (!has_gang(job)) return;
    std::vector<bool> full(demands_[job].kinds.size(), false);
    for (std::size_t i = 0; i < choices_[job].size(); ++i) {
      const std::size_t kind = demands_[job].replicas[i].kind;
      if (choices_[job][i] != kNowhere || full[kind]) continue;
      const std::optional<std::size_t> node = first_fit(job, i, free_);
      full[kind] = !node;
      choices_[job][i] = node.value_or(kNowhere);
    }
  }

  // Whether pods of other jobs, which are on their way out, still fill the places on that node.
  bool is_occupied(std::size_t job, std::size_t node) const {
    Amounts leaving;
    for (std::size_t other = 0; other < demands_.size(); ++other) {
      if (other == job) continue;
      for (const HeldPlace& held : demands_[other].held) {
        if (held.node == nodes_[node].name && !is_chosen(other, held)) add(leaving, held.takes);
      }
    }
    return !fits(leaving, free_[node]);
  }

  bool is_chosen(std::size_t job, const HeldPlace& held) const {
    const std::vector<Replica>& replicas = demands_[job].replicas;
    const auto found = std::ranges::find(replicas, held.rank, &Replica::rank);
    if (found == replicas.end()) return false;
    const std::size_t node = choices_[job][static_cast<std::size_t>(found - replicas.begin())];
    return node != kNowhere && nodes_[node].name == held.node;
  }

  Placement publish(std::size_t job) {
    const Demand& demand = demands_[job];
    Placement placement;
    bool occupied = false;
    if (!has_gang(job)) {
      placement.message = why_waiting(job);
      return placement;
    }
    for (std::size_t i = 0; i < demand.replicas.size(); ++i) {
      const std::size_t node = choices_[job][i];
      if (node == kNowhere) continue;
      if (node != current_[job][i] && is_occupied(job, node)) {
        occupied = true;
        if (!demand.replicas[i].required) continue;
        placement.nodes.clear();
        placement.placed = 0;
        break;
      }
      const auto rank =
          demand.gapless ? placement.placed : static_cast<std::size_t>(demand.replicas[i].rank);
      if (placement.nodes.size() <= rank) placement.nodes.resize(rank + 1);
      placement.nodes[rank] = nodes_[node].name;
      ++placement.placed;
    }
    if (placement.placed == 0 && !occupied) {
      placement.message = why_waiting(job);
      return placement;
    }
    placement.message =
        fmt::format("{} of {} replicas have a node{}", placement.placed, demand.replicas.size(),
                    occupied ? "; others wait until pods of other jobs have ended" : "");
    return placement;
  }

  std::string why_waiting(std::size_t job) const {
    const Demand& demand = demands_[job];
    Amounts asked;
    std::size_t replicas = 0;
    for (std::size_t i = 0; i < demand.replicas.size(); ++i) {
      if (!demand.replicas[i].required) continue;
      add(asked, needs(job, i));
      ++replicas;
    }
    if (replicas == 0 && !demand.replicas.empty()) {  // any number would do, but one
      asked = needs(job, 0);
      replicas = 1;
    }
    Amounts free;
    std::size_t usable = 0;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      const auto admitted = [node](const std::vector<bool>& by_node) { return by_node[node]; };
      if (!std::ranges::any_of(admitted_[job], admitted)) continue;
      add(free, free_[node]);
      ++usable;
    }
    return fmt::format(
        "asked: {} replicas with {}; free: {} on {} of {} nodes; ahead of it: {} jobs", replicas,
        text_of(asked, asked), text_of(free, asked), usable, nodes_.size(), ahead_[job]);
  }

  const std::vector<Demand>& demands_;
  std::vector<Node> nodes_;  // by name
  Free base_{};              // without any of these jobs
  Free free_{};              // what is left
  Amounts total_{};
  std::vector<Choice> current_{};
  std::vector<Choice> choices_;
  std::vector<std::vector<std::vector<bool>>> admitted_{};  // by job, kind and node
  std::vector<std::size_t> order_;
  std::vector<std::size_t> ahead_;  // of a job that waits: how many wait before it
  std::size_t waiting_ = 0;
  bool somebody_waits_ = false;  // for whom the cluster would be large enough
};

}  // namespace

std::vector<Placement> allocate(const std::vector<Demand>& demands, std::vector<Node> nodes) {
  return Allocation(demands, std::move(nodes)).run();
}

}  // namespace divisi::dijob
