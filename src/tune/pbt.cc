#include "divisi/pbt.h"

#include "base/status.h"
#include "tune/random_words.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

namespace divisi::tune {
namespace {

constexpr std::uint64_t kNextSequence = 0x9E3779B97F4A7C15;  // odd: seeds do not meet
constexpr std::int64_t kMaxMembers = 100'000;                // they are made at once
constexpr double kMove = 0.2;  // how far a copied setting moves at most, as a share of its space

double draw_from(const Space& space, const RandomWords& words) {
  if (const std::optional<std::int64_t> count = space.count()) {
    return space.at(draw_below(words, *count));
  }
  return space.lower() + draw_unit(words) * space.length();
}

// A neighbour of a copied setting. Alternatives have none.
double moved(const Space& space, double value, const RandomWords& words) {
  const double part = kMove * (2 * draw_unit(words) - 1);
  if (space.kind() == Space::Kind::kFixed) return value;
  if (const std::optional<std::int64_t> count = space.count()) {
    // At least one step.
    const double steps = std::max(1.0, std::abs(part) * static_cast<double>(*count));
    const double from = (value - space.lower()) / space.step();
    const double to = std::round(from + std::copysign(std::floor(steps), part));
    return space.at(
        static_cast<std::int64_t>(std::clamp(to, 0.0, static_cast<double>(*count - 1))));
  }
  return std::clamp(value + part * space.length(), space.lower(), space.upper());
}

// One training.
struct Member {
  std::vector<double> values;   // of its next segment
  std::uint64_t parent = 0;     // of its next segment
  std::int64_t generation = 0;  // of its next segment
  std::uint64_t running = 0;    // the segment that runs; 0: none
  // Of its last segment that ended well:
  std::uint64_t last = 0;  // 0: there is none
  double score = 0;        // smaller is better
  std::vector<double> trained = {};
  // Of an earlier run:
  bool begun = false;
  bool ended_well = false;  // its last segment
};

}  // namespace

struct Pbt::State {
  State(std::vector<Space> all_spaces, const PbtOptions& given)
      : spaces(std::move(all_spaces)), options(given), words(python_random(given.seed)) {
    for (std::int64_t i = 0; i < options.population; ++i) {
      members.push_back({.values = anywhere()});
    }
  }

  std::vector<double> anywhere() const {
    std::vector<double> values;
    values.reserve(spaces.size());
    for (const Space& space : spaces) values.push_back(draw_from(space, words));
    return values;
  }

  // Members that have a score, the best one first.
  std::vector<const Member*> ranked() const {
    std::vector<const Member*> found;
    for (const Member& member : members) {
      if (member.last != 0) found.push_back(&member);
    }
    std::ranges::sort(found, [](const Member* a, const Member* b) {
      return std::pair(a->score, a->last) < std::pair(b->score, b->last);
    });
    return found;
  }

  // Goes on from one of the best members, with settings near to those that it was trained with.
  void copy_from(const Member& best, Member& member) const {
    member.parent = best.last;
    member.values = best.trained;
    for (std::size_t i = 0; i < spaces.size(); ++i) {
      member.values[i] = draw_unit(words) < options.resample
                             ? draw_from(spaces[i], words)
                             : moved(spaces[i], member.values[i], words);
    }
  }

  // What the next segment of a member is whose last one has ended, well or not.
  void plan_next(Member& member, bool ended_well) const {
    const std::vector<const Member*> order = ranked();
    const auto count =
        static_cast<std::size_t>(options.quantile * static_cast<double>(order.size()));
    const auto worst = order.end() - static_cast<std::ptrdiff_t>(count);
    const bool bad = !ended_well || std::find(worst, order.end(), &member) != order.end();
    if (!bad) {
      member.parent = member.last;
      return;
    }
    if (order.empty()) {
      member.parent = 0;
      member.values = anywhere();
      return;
    }
    const auto best = static_cast<std::int64_t>(std::max<std::size_t>(1, count));
    copy_from(*order[static_cast<std::size_t>(draw_below(words, best))], member);
  }

  const std::vector<Space> spaces;
  const PbtOptions options;

  std::mutex mutex;  // guards all below
  RandomWords words;
  std::vector<Member> members;
  std::uint64_t last_id = 0;
};

Pbt::Pbt(std::vector<Space> spaces, const PbtOptions& options) {
  if (options.population < 2 || options.population > kMaxMembers) {
    throw UsageError(
        fmt::format("pbt: population must be 2 to {}, not {}", kMaxMembers, options.population));
  }
  if (options.generations < 1) {
    throw UsageError(
        fmt::format("pbt: generations must be 1 or more, not {}", options.generations));
  }
  if (!(options.quantile > 0 && options.quantile <= 0.5)) {
    throw UsageError(
        fmt::format("pbt: quantile is above 0 and at most 0.5, not {}", options.quantile));
  }
  if (!(options.resample >= 0 && options.resample <= 1)) {
    throw UsageError(fmt::format("pbt: resample is from 0 to 1, not {}", options.resample));
  }
  state_ = std::make_unique<State>(std::move(spaces), options);
}

Pbt::Pbt(Pbt&&) noexcept = default;
Pbt& Pbt::operator=(Pbt&&) noexcept = default;
Pbt::~Pbt() = default;

std::optional<PbtSegment> Pbt::ask() {
  const std::lock_guard lock(state_->mutex);
  // Whoever is behind comes first, so that members stay together.
  Member* next = nullptr;
  for (Member& member : state_->members) {
    const bool ready = member.running == 0 && member.generation < state_->options.generations;
    if (ready && (next == nullptr || member.generation < next->generation)) next = &member;
  }
  if (next == nullptr) return std::nullopt;
  next->running = ++state_->last_id;
  return PbtSegment{.id = next->running,
                    .member = next - state_->members.data(),
                    .generation = next->generation,
                    .values = next->values,
                    .parent = next->parent};
}

void Pbt::tell(std::uint64_t id, double value) {
  const std::lock_guard lock(state_->mutex);
  const auto found = std::find_if(state_->members.begin(), state_->members.end(),
                                  [&](const Member& member) { return member.running == id; });
  if (id == 0 || found == state_->members.end()) {
    throw UsageError(fmt::format("pbt: segment {} does not run", id));
  }
  Member& member = *found;
  member.running = 0;
  ++member.generation;
  const bool ended_well = std::isfinite(value);
  if (ended_well) {
    member.last = id;
    member.score = state_->options.maximize ? -value : value;
    member.trained = member.values;
  }
  state_->plan_next(member, ended_well);
}

void Pbt::adopt(const std::vector<PbtPast>& past) {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  for (const PbtPast& one : past) {
    const PbtSegment& segment = one.segment;
    const bool fits = segment.member >= 0 && segment.member < state.options.population &&
                      segment.generation >= 0 && segment.generation < state.options.generations &&
                      segment.id > state.last_id && segment.values.size() == state.spaces.size();
    if (!fits) {
      throw UsageError(fmt::format(
          "pbt: segment {} (member {}, generation {}) is not of a population of {} with {} "
          "generations",
          segment.id, segment.member, segment.generation, state.options.population,
          state.options.generations));
    }
    state.last_id = segment.id;
    Member& member = state.members[static_cast<std::size_t>(segment.member)];
    member.values = segment.values;
    member.parent = segment.parent;
    member.generation = segment.generation + (one.ended ? 1 : 0);
    member.running = one.ended ? 0 : segment.id;
    member.begun = true;
    member.ended_well = one.ended && one.value && std::isfinite(*one.value);
    if (!member.ended_well) continue;
    member.last = segment.id;
    member.score = state.options.maximize ? -*one.value : *one.value;
    member.trained = segment.values;
  }
  // The numbers that were drawn are known to be used up; further ones are of another sequence.
  if (!past.empty())
    state.words = python_random(state.options.seed + kNextSequence * state.last_id);
  for (Member& member : state.members) {
    if (member.begun && member.running == 0) state.plan_next(member, member.ended_well);
  }
}

bool Pbt::done() const {
  const std::lock_guard lock(state_->mutex);
  return std::all_of(state_->members.begin(), state_->members.end(), [&](const Member& member) {
    return member.running == 0 && member.generation >= state_->options.generations;
  });
}

std::vector<std::uint64_t> Pbt::needed() const {
  const std::lock_guard lock(state_->mutex);
  std::set<std::uint64_t> ids;
  for (const Member& member : state_->members) {
    ids.insert({member.last, member.parent});
  }
  ids.erase(0);
  return {ids.begin(), ids.end()};
}

}  // namespace divisi::tune
