#include "tune_run/status_view.h"

#include "tune/expr_node.h"
#include "tune/numbers.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

namespace divisi::tune_run {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMaxListed = 24;
// A terminal need not show more; drawing must not slow down trials that take milliseconds.
constexpr std::chrono::milliseconds kRedraw{100};

// A stranger's text must not bring control characters to a terminal; newlines are ours.
std::string clean(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return (c < 32 && c != '\n') || c == 127; }, '?');
  return text;
}

std::string range_list(std::vector<std::uint64_t> tasks) {
  std::ranges::sort(tasks);
  std::vector<std::string> parts;
  for (std::size_t first = 0; first < tasks.size();) {
    std::size_t last = first;
    while (last + 1 < tasks.size() && tasks[last + 1] == tasks[last] + 1) ++last;
    parts.push_back(first == last ? fmt::format("{}", tasks[first])
                                  : fmt::format("{}-{}", tasks[first], tasks[last]));
    first = last + 1;
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string elapsed_text(SteadyClock::duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string values_text(const StudyPlan& plan, const std::vector<double>& values) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < values.size() && i < plan.targets.size(); ++i) {
    parts.push_back(fmt::format("{} = {:.6g}", plan.targets[i].name, values[i]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

tune::Cell table_cell(const Value& value) {
  if (value.is_nil()) return {};
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  if (const auto number = tune::as_number(value); number && !value.holds<bool>()) return *number;
  return plain_text(value);
}

std::string end_line(const StudyPlan& plan, const tune::TrialRecord& trial) {
  const std::string variables = variables_text(plan, from_text(trial.config));
  if (trial.stage == tune::TrialStage::kOk) {
    return fmt::format("trial {} ok: {}  ({})", trial.id, values_text(plan, trial.values),
                       variables);
  }
  return fmt::format("trial {} {}: {}  ({})", trial.id,
                     trial.stage == tune::TrialStage::kFail ? "failed" : stage_name(trial.stage),
                     trial.error, variables);
}

// Each end of a trial is a line.
class LineView final : public RunView {
 public:
  LineView(const StudyPlan& plan, int descriptor) : plan_(plan), descriptor_(descriptor) {}

  void show(const RunState&) override {}
  void note(const std::string& line) override { print(line); }
  void ended(const tune::TrialRecord& trial, const RunState& state) override {
    const bool best = state.best && state.best->id == trial.id;
    print(end_line(plan_, trial) + (best ? "  best so far" : ""));
  }
  std::optional<SteadyClock::time_point> next_refresh() const override { return std::nullopt; }
  void close(const RunState& state) override {
    print(status_table(state, plan_.prune.has_value()));
    print(progress_line(state, plan_));
  }

 private:
  void print(std::string line) const { write_line(clean(std::move(line)) + "\n"); }
  void write_line(const std::string& text) const {
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, text.data(), text.size());
  }

  const StudyPlan& plan_;
  int descriptor_;
};

// The status table and a line of progress, always the last lines on the terminal.
class TerminalView final : public RunView {
 public:
  TerminalView(const StudyPlan& plan, int descriptor) : plan_(plan), descriptor_(descriptor) {}

  void show(const RunState& state) override {
    const auto now = SteadyClock::now();
    const bool changed = state.changes != shown_changes_;
    if (drawn_ && now < drawn_at_ + kRedraw) {
      pending_ = pending_ || changed;
      return;
    }
    if (!drawn_ || changed || pending_ || now >= drawn_at_ + std::chrono::seconds(1)) draw(state);
  }

  void note(const std::string& line) override { print_above(line); }

  void ended(const tune::TrialRecord& trial, const RunState& state) override {
    const bool best = state.best && state.best->id == trial.id;
    if (best) print_above(end_line(plan_, trial) + "  best so far");
    if (trial.stage == tune::TrialStage::kFail) print_above(end_line(plan_, trial));
  }

  std::optional<SteadyClock::time_point> next_refresh() const override {
    if (!drawn_) return std::nullopt;
    return drawn_at_ + (pending_ ? SteadyClock::duration(kRedraw) : std::chrono::seconds(1));
  }

  void close(const RunState& state) override { draw(state); }

 private:
  std::size_t width() const {
    winsize size{};
    const bool known = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
    return known ? size.ws_col : 80;
  }

  // Lines that wrap would make the cursor go up too little.
  std::string fitted(const std::string& text) const {
    const std::size_t columns = width();
    std::string lines;
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      std::string line = clean(text.substr(start, end - start));
      if (line.size() > columns) line = line.substr(0, columns - 3) + "...";
      lines += line + "\n";
      start = end + 1;
    }
    return lines;
  }

  std::string erase() {
    const std::string up = height_ == 0 ? "" : fmt::format("\x1b[{}A\r\x1b[J", height_);
    height_ = 0;
    return up;
  }

  void print_above(const std::string& line) {
    const std::string text = erase() + fitted(line) + frame_;
    height_ = static_cast<std::size_t>(std::ranges::count(frame_, '\n'));
    write_text(text);
  }

  void draw(const RunState& state) {
    frame_ =
        fitted(status_table(state, plan_.prune.has_value()) + "\n" + progress_line(state, plan_));
    const std::string text = erase() + frame_;
    height_ = static_cast<std::size_t>(std::ranges::count(frame_, '\n'));
    write_text(text);
    drawn_ = true;
    pending_ = false;
    drawn_at_ = SteadyClock::now();
    shown_changes_ = state.changes;
  }

  void write_text(const std::string& text) const {
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, text.data(), text.size());
  }

  const StudyPlan& plan_;
  int descriptor_;
  bool drawn_ = false;
  bool pending_ = false;  // a change that is not drawn yet
  SteadyClock::time_point drawn_at_{};
  std::uint64_t shown_changes_ = 0;
  std::string frame_;
  std::size_t height_ = 0;  // lines of the frame on the terminal
};

class QuietView final : public RunView {
 public:
  void show(const RunState&) override {}
  void note(const std::string&) override {}
  void ended(const tune::TrialRecord&, const RunState&) override {}
  std::optional<SteadyClock::time_point> next_refresh() const override { return std::nullopt; }
  void close(const RunState&) override {}
};

}  // namespace

std::string task_list(std::vector<std::uint64_t> tasks) {
  if (tasks.size() > kMaxListed) return range_list(std::move(tasks));
  return fmt::format("[{}]", fmt::join(tasks, ", "));
}

std::string status_table(const RunState& state, bool with_pruned) {
  std::vector<std::vector<tune::Cell>> rows;
  const auto add = [&](const char* name, const std::vector<std::uint64_t>& tasks) {
    rows.push_back({std::string(name), task_list(tasks)});
  };
  add("task_defined", state.defined);
  add("task_running", state.running);
  add("task_waiting", state.waiting);
  add("task_finished", state.finished);
  add("task_success", state.success);
  add("task_abnormal", state.abnormal);
  if (with_pruned) add("task_pruned", state.pruned);
  return tune::format_table({"status", "instances"}, rows, tune::TableStyle::kGrid);
}

std::string progress_line(const RunState& state, const StudyPlan& plan) {
  std::string line = plan.max_steps
                         ? fmt::format("{}/{} trials", state.trials_ended(), *plan.max_steps)
                         : fmt::format("{} trials", state.trials_ended());
  line += fmt::format("   {} ok   {} failed", state.trials_ok, state.trials_failed);
  if (plan.prune) line += fmt::format("   {} pruned", state.trials_pruned);
  line += fmt::format("   {} running   {}", state.running.size(),
                      elapsed_text(SteadyClock::now() - state.started));
  if (state.best && !state.best->values.empty()) {
    line += fmt::format("   best: {} (trial {}: {})", values_text(plan, state.best->values),
                        state.best->id, variables_text(plan, from_text(state.best->config)));
  }
  return line;
}

std::string variables_text(const StudyPlan& plan, const Value& config) {
  std::vector<std::string> parts;
  for (const std::string& name : plan.space.structure.names()) {
    const Value value = value_at(config, name);
    const auto* number = value.get_if<double>();
    parts.push_back(fmt::format(
        "{}={}", name, number != nullptr ? fmt::format("{:.6g}", *number) : plain_text(value)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string rank_table(const StudyPlan& plan, const std::vector<tune::TrialRecord>& best) {
  std::vector<std::string> headers{"#"};
  const std::vector<std::string> names = plan.space.structure.names();
  headers.insert(headers.end(), names.begin(), names.end());
  for (const Target& target : plan.targets) headers.push_back(target.name);
  for (const auto& [name, expr] : plan.concerns) headers.push_back(name);
  std::vector<std::vector<tune::Cell>> rows;
  for (const tune::TrialRecord& trial : best) {
    const tune::Record record{from_text(trial.config), from_text(trial.returned),
                              from_text(trial.metrics)};
    std::vector<tune::Cell>& row = rows.emplace_back();
    row.emplace_back(static_cast<std::int64_t>(trial.id));
    for (const std::string& name : names) row.push_back(table_cell(value_at(record.config, name)));
    for (const double value : trial.values) row.emplace_back(value);
    for (const auto& [name, expr] : plan.concerns) {
      row.push_back(table_cell(tune::evaluate(expr, record).value_or(Value())));
    }
  }
  return tune::format_table(headers, rows, tune::TableStyle::kPsql);
}

std::unique_ptr<RunView> make_view(const StudyPlan& plan, int descriptor) {
  if (::isatty(descriptor) != 0) return std::make_unique<TerminalView>(plan, descriptor);
  return std::make_unique<LineView>(plan, descriptor);
}

std::unique_ptr<RunView> make_quiet_view() {
  return std::make_unique<QuietView>();
}

}  // namespace divisi::tune_run
