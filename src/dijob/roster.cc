#include "dijob/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr int kFree = -1;
constexpr int kMostRanks = 100'000;

struct Line {
  std::string task;
  std::string type;
  std::vector<int> ranks;  // by index; kFree where another replica has taken it over
};

std::vector<Line> read(const json::Value* record) {
  std::vector<Line> lines;
  const json::Array* const array = record == nullptr ? nullptr : record->as_array();
  if (array == nullptr) return lines;
  std::set<std::int64_t> seen;
  for (const json::Value& entry : *array) {
    Line line{std::string(entry.string_at({"task"})), std::string(entry.string_at({"type"})), {}};
    const json::Value* const ranks = entry.find("ranks");
    if (ranks != nullptr && ranks->as_array() != nullptr) {
      for (const json::Value& rank : *ranks->as_array()) {
        const std::int64_t number = rank.as_int() == nullptr ? kFree : *rank.as_int();
        const bool usable = number >= 0 && number < kMostRanks && seen.insert(number).second;
        line.ranks.push_back(usable ? static_cast<int>(number) : kFree);
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

json::Value write(const std::vector<Line>& lines) {
  json::Array array;
  for (const Line& line : lines) {
    json::Value entry;
    entry["task"] = line.task;
    entry["type"] = line.type;
    json::Array ranks;
    for (const int rank : line.ranks) ranks.emplace_back(rank);
    entry["ranks"] = std::move(ranks);
    array.push_back(std::move(entry));
  }
  return array;
}

Line* find(std::vector<Line>& lines, std::string_view task) {
  const auto found = std::ranges::find(lines, task, &Line::task);
  return found == lines.end() ? nullptr : &*found;
}

// Lines of the job's tasks first, in their order, long enough for their replicas; then those of
// tasks that are no more.
std::vector<Line> arrange(const Job& job, std::vector<Line> before) {
  std::vector<Line> lines;
  for (const Task& task : job.tasks) {
    Line line{task.name, task.type, {}};
    if (Line* const known = find(before, task.name)) line.ranks = std::exchange(known->ranks, {});
    const auto replicas = static_cast<std::size_t>(task.replicas);
    if (line.ranks.size() < replicas) line.ranks.resize(replicas, kFree);
    lines.push_back(std::move(line));
  }
  for (Line& line : before) {
    if (!line.ranks.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

class Ranks {
 public:
  Ranks(const Job& job, const json::Value* record, const std::vector<Pod>& pods)
      : job_(job), known_(record != nullptr), lines_(arrange(job, read(record))) {
    for (const Pod& pod : pods) {
      if (!pod.has_slot) continue;
      present_[{pod.slot.task, pod.slot.index}] = {pod.slot.rank, !pod.made_of.empty()};
    }
  }

  Roster roster() {
    if (!known_) adopt();
    assign();
    trim();
    if (!known_) fill_holes();
    Roster made;
    for (const Line& line : lines_) {
      for (std::size_t i = 0; i < line.ranks.size(); ++i) {
        if (line.ranks[i] == kFree) continue;
        const Slot slot{line.task, static_cast<int>(i), line.ranks[i]};
        made.all.push_back(slot);
        if (wanted(line, i)) made.slots.push_back(slot);
      }
    }
    std::ranges::sort(made.all, {}, &Slot::rank);
    made.record = write(lines_);
    return made;
  }

 private:
  bool wanted(const Line& line, std::size_t index) const {
    const Task* const task = job_.find_task(line.task);
    return task != nullptr && index < static_cast<std::size_t>(task->replicas);
  }

  // The ranks that pods have: of those we made for a job without a record as they are, though the
  // job was edited since; of another operator's as far as they can be right.
  void adopt() {
    std::set<int> taken;
    for (const auto& [slot, has] : present_) {
      const auto index = static_cast<std::size_t>(slot.second);
      if (slot.second < 0 || slot.second >= kMostRanks || has.rank < 0) continue;
      Line* line = find(lines_, slot.first);
      if (has.ours) {
        if (has.rank >= kMostRanks) continue;
        if (line == nullptr) line = &lines_.emplace_back(Line{slot.first, "", {}});
        if (line->ranks.size() <= index) line->ranks.resize(index + 1, kFree);
      } else if (line == nullptr || index >= line->ranks.size() || has.rank >= job_.want()) {
        continue;
      }
      if (taken.insert(has.rank).second) line->ranks[index] = has.rank;
    }
  }

  // Ranks of replicas that were given up before anything was written of them: nobody is there, but
  // the list of hosts counts them. Any replica beyond the wanted ones stands for them.
  void fill_holes() {
    std::set<int> named;
    for (const Line& line : lines_) named.insert(line.ranks.begin(), line.ranks.end());
    if (named.empty() || lines_.empty()) return;
    Line& line = lines_.front();
    const auto replicas = static_cast<std::size_t>(job_.tasks.front().replicas);
    for (int rank = 0; rank < *named.rbegin(); ++rank) {
      if (named.contains(rank)) continue;
      if (line.ranks.size() < replicas) line.ranks.resize(replicas, kFree);
      line.ranks.push_back(rank);
    }
  }

  // The smallest rank that no wanted replica has and no pod still uses.
  void assign() {
    std::set<int> used;
    for (const Line& line : lines_) {
      for (std::size_t i = 0; i < line.ranks.size(); ++i) {
        if (wanted(line, i) || present_.contains({line.task, static_cast<int>(i)})) {
          used.insert(line.ranks[i]);
        }
      }
    }
    int next = 0;
    for (Line& line : lines_) {
      for (std::size_t i = 0; i < line.ranks.size(); ++i) {
        if (line.ranks[i] != kFree || !wanted(line, i)) continue;
        while (used.contains(next)) ++next;
        release(next);
        line.ranks[i] = next;
        used.insert(next);
      }
    }
  }

  void release(int rank) {
    for (Line& line : lines_) std::ranges::replace(line.ranks, rank, kFree);
  }

  // Forgets what is no longer wanted, has no pod, and is above every rank in use.
  void trim() {
    int highest = kFree;
    for (const Line& line : lines_) {
      for (std::size_t i = 0; i < line.ranks.size(); ++i) {
        if (wanted(line, i) || present_.contains({line.task, static_cast<int>(i)})) {
          highest = std::max(highest, line.ranks[i]);
        }
      }
    }
    for (Line& line : lines_) {
      for (int& rank : line.ranks) {
        if (rank > highest) rank = kFree;
      }
      while (!line.ranks.empty() && line.ranks.back() == kFree) line.ranks.pop_back();
    }
    std::erase_if(lines_, [&](const Line& line) {
      return line.ranks.empty() && job_.find_task(line.task) == nullptr;
    });
  }

  const Job& job_;
  const bool known_;
  std::vector<Line> lines_;
  struct Has {
    int rank = kFree;
    bool ours = false;
  };
  std::map<std::pair<std::string, int>, Has> present_;  // what pods say of themselves
};

}  // namespace

Roster make_roster(const Job& job, const json::Value* record, const std::vector<Pod>& pods) {
  return Ranks(job, record, pods).roster();
}

std::vector<std::string> refuse_edits(Job& job, const json::Value* record) {
  std::vector<std::string> refused;
  const std::vector<Line> lines = read(record);
  for (std::size_t i = 0; i < lines.size() && i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const bool is_new = std::ranges::find(lines, task.name, &Line::task) == lines.end();
    if (!is_new || job.find_task(lines[i].task) != nullptr || lines[i].task.empty()) continue;
    refused.push_back(
        fmt::format("task {} keeps its name, {} is not applied", lines[i].task, task.name));
    task.name = lines[i].task;
  }
  for (Task& task : job.tasks) {
    const auto line = std::ranges::find(lines, task.name, &Line::task);
    if (line == lines.end() || line->type.empty() || line->type == task.type) continue;
    refused.push_back(fmt::format("task {} keeps its type {}, {} is not applied", task.name,
                                  line->type, task.type));
    task.type = line->type;
  }
  return refused;
}

}  // namespace divisi::dijob
