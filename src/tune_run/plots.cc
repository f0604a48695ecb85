#include "tune_run/plots.h"

#include "base/nearest_name.h"
#include "tune/numbers.h"
#include "tune_run/svg.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

namespace divisi::tune_run {
namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 480;

// The part of a drawing inside of the axes.
struct Frame {
  double left = 76;
  double right = kWidth - 24;
  double top = 52;
  double bottom = kHeight - 56;
};

std::pair<double, double> extent(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax_element(values);
  return {*low, *high};
}

std::vector<double> targets_of(const std::vector<const StudyTrial*>& trials, std::size_t index) {
  std::vector<double> values;
  for (const StudyTrial* trial : trials) {
    if (index < trial->record.values.size()) values.push_back(trial->record.values[index]);
  }
  return values;
}

// One bad trial must not flatten all others: what lies far beyond the quartiles on the bad side is
// drawn at the edge.
std::pair<double, double> robust_extent(std::vector<double> values, bool maximize) {
  auto [low, high] = extent(values);
  if (values.size() < 8) return {low, high};
  std::ranges::sort(values);
  const double lower = values[values.size() / 4];
  const double upper = values[values.size() * 3 / 4];
  const double reach = 3 * (upper - lower);
  if (reach <= 0) return {low, high};
  if (maximize) low = std::max(low, lower - reach);
  if (!maximize) high = std::min(high, upper + reach);
  return {low, high};
}

std::string trial_title(const StudyData& data, const StudyTrial& trial) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < data.names.size(); ++i) {
    if (!trial.variables[i].is_nil()) {
      parts.push_back(fmt::format("{} = {}", data.names[i], plain_text(trial.variables[i])));
    }
  }
  const std::string value =
      trial.record.values.empty() ? "" : fmt::format(": {:.6g}", trial.record.values[0]);
  return fmt::format("trial {}{} ({})", trial.record.id, value, fmt::join(parts, ", "));
}

void draw_y_axis(Svg& svg, const Frame& frame, const Scale& y) {
  for (const double tick : y.ticks()) {
    svg.line({frame.left, y.place(tick)}, {frame.right, y.place(tick)}, "grid");
    svg.text({frame.left - 8, y.place(tick) + 4}, tick_text(tick), "end");
  }
  svg.line({frame.left, frame.top}, {frame.left, frame.bottom}, "axis");
}

void draw_x_axis(Svg& svg, const Frame& frame, const Scale& x) {
  for (const double tick : x.ticks()) {
    svg.line({x.place(tick), frame.bottom}, {x.place(tick), frame.bottom + 4}, "axis");
    svg.text({x.place(tick), frame.bottom + 18}, tick_text(tick), "middle");
  }
  svg.line({frame.left, frame.bottom}, {frame.right, frame.bottom}, "axis");
}

// A sample of a mark and what it means, from the right; returns where the next one ends.
double draw_legend(Svg& svg, double right, std::string_view text,
                   const std::function<void(Point)>& mark) {
  svg.text({right, 28}, text, "end", "small");
  const double left = right - 6.2 * static_cast<double>(text.size()) - 10;
  mark({left, 24});
  return left - 16;
}

class HistoryPlot {
 public:
  explicit HistoryPlot(const StudyData& data)
      : data_(data),
        trials_(data.finished()),
        last_(static_cast<double>(data.trials.back().record.id)),
        x_(1, std::max(2.0, last_), false, frame_.left + 10, frame_.right - 10),
        y_(y_scale()) {}

  std::string draw() {
    draw_y_axis(svg_, frame_, y_);
    draw_x_axis(svg_, frame_, x_);
    draw_ended_early();
    for (const StudyTrial* trial : trials_) {
      svg_.circle(place(*trial), 3.5, "trial", trial_title(data_, *trial));
    }
    draw_best();
    draw_texts();
    return svg_.file(fmt::format("history of {}", data_.spec.name));
  }

 private:
  Scale y_scale() const {
    const auto [low, high] = robust_extent(targets_of(trials_, 0), data_.maximize());
    return {low, high, false, frame_.bottom - 8, frame_.top};
  }

  double column(const StudyTrial& trial) const {
    return x_.place(static_cast<double>(trial.record.id));
  }

  Point place(const StudyTrial& trial) const {
    return {column(trial),
            std::clamp(y_.place(trial.record.values[0]), frame_.top, frame_.bottom - 8)};
  }

  // Failed trials have no value: they stand on the axis.
  void draw_ended_early() {
    for (const StudyTrial& trial : data_.trials) {
      if (trial.record.stage == tune::TrialStage::kFail) {
        svg_.cross({column(trial), frame_.bottom - 5}, 3, "mark",
                   fmt::format("{} {}", trial_title(data_, trial), trial.record.error));
        any_failed_ = true;
      } else if (trial.record.stage == tune::TrialStage::kPruned && !trial.record.values.empty()) {
        svg_.circle(place(trial), 3, "hollow", "pruned " + trial_title(data_, trial));
        any_pruned_ = true;
      }
    }
  }

  void draw_best() {
    std::vector<Point> line;
    const StudyTrial* best = nullptr;
    const double sign = data_.maximize() ? -1 : 1;
    for (const StudyTrial* trial : trials_) {
      if (best != nullptr && sign * trial->record.values[0] >= sign * best->record.values[0])
        continue;
      const Point at = place(*trial);
      if (best != nullptr) line.push_back({at.x, line.back().y});
      line.push_back(at);
      best = trial;
    }
    line.push_back({x_.place(last_), line.back().y});
    svg_.path(line, "best");
    svg_.circle(place(*best), 5, "bestpoint", "best: " + trial_title(data_, *best));
  }

  void draw_texts() {
    svg_.text({frame_.left, 28}, fmt::format("{}: {} trials", data_.spec.name, data_.trials.size()),
              "start", "title");
    double right = draw_legend(svg_, frame_.right, "best so far", [&](Point at) {
      svg_.line({at.x - 14, at.y}, {at.x + 4, at.y}, "best");
    });
    right = draw_legend(svg_, right - 8, "trial", [&](Point at) { svg_.circle(at, 3.5, "trial"); });
    if (any_pruned_) {
      right = draw_legend(svg_, right, "pruned", [&](Point at) { svg_.circle(at, 3, "hollow"); });
    }
    if (any_failed_)
      draw_legend(svg_, right, "failed", [&](Point at) { svg_.cross(at, 3, "mark"); });
    svg_.text({(frame_.left + frame_.right) / 2, kHeight - 14}, "trial", "middle");
    svg_.text_upwards({20, (frame_.top + frame_.bottom) / 2}, shortened(data_.target_name(), 50));
  }

  const StudyData& data_;
  std::vector<const StudyTrial*> trials_;
  Frame frame_;
  Svg svg_{kWidth, kHeight};
  double last_;  // number of a trial
  Scale x_;
  Scale y_;
  bool any_failed_ = false;
  bool any_pruned_ = false;
};

// The values of a variable on an axis: numbers, logarithms, or names one below the other.
class VariableAxis {
 public:
  VariableAxis(const StudyData& data, const std::vector<const StudyTrial*>& trials,
               std::size_t index, double from, double to)
      : from_(from), to_(to) {
    std::vector<double> numbers;
    bool logarithmic = true;
    for (const StudyTrial* trial : trials) {
      const Value& value = trial->variables[index];
      if (value.is_nil()) continue;
      const auto number = value.holds<bool>() ? std::nullopt : tune::as_number(value);
      if (!number) {
        use_names(trials, index);
        return;
      }
      numbers.push_back(*number);
      // The engine draws the logarithm of such variables.
      const double raw = index < trial->record.raw.size() ? trial->record.raw[index] : 0;
      logarithmic = logarithmic && *number > 0 && std::abs(std::log(*number) - raw) < 0.51;
    }
    if (data.spaces[index].kind() == tune::Space::Kind::kFixed) {
      use_names(trials, index);
      return;
    }
    if (numbers.empty()) numbers = {0, 1};
    const auto [low, high] = extent(numbers);
    const bool wide = data.spaces[index].kind() == tune::Space::Kind::kContinuous;
    scale_.emplace(low, high, logarithmic && wide && high > 2 * low, from, to);
  }

  std::optional<double> place(const Value& value) const {
    if (value.is_nil()) return std::nullopt;
    if (scale_) {
      const auto number = tune::as_number(value);
      return number ? std::optional(scale_->place(*number)) : std::nullopt;
    }
    const auto found = std::ranges::find(names_, plain_text(value));
    if (found == names_.end()) return std::nullopt;
    return place_of_name(static_cast<std::size_t>(found - names_.begin()));
  }

  std::vector<std::pair<double, std::string>> labels() const {
    std::vector<std::pair<double, std::string>> all;
    if (scale_) {
      for (const double tick : scale_->ticks())
        all.emplace_back(scale_->place(tick), tick_text(tick));
      return all;
    }
    for (std::size_t i = 0; i < names_.size(); ++i) all.emplace_back(place_of_name(i), names_[i]);
    return all;
  }

 private:
  void use_names(const std::vector<const StudyTrial*>& trials, std::size_t index) {
    std::vector<std::pair<double, std::string>> found;  // by their number in the space
    for (const StudyTrial* trial : trials) {
      if (trial->variables[index].is_nil()) continue;
      const double raw = index < trial->record.raw.size() ? trial->record.raw[index] : 0;
      found.emplace_back(raw, plain_text(trial->variables[index]));
    }
    std::ranges::sort(found);
    for (auto& [raw, name] : found) {
      if (std::ranges::find(names_, name) == names_.end()) names_.push_back(std::move(name));
    }
  }

  double place_of_name(std::size_t i) const {
    const double part = (static_cast<double>(i) + 0.5) / static_cast<double>(names_.size());
    return from_ + part * (to_ - from_);
  }

  double from_;
  double to_;
  std::optional<Scale> scale_;
  std::vector<std::string> names_;
};

// How good a value is among the others: 1 is the best. By rank, so that one bad trial does not
// take all colours.
std::vector<double> goodness(const StudyData& data, const std::vector<const StudyTrial*>& trials) {
  std::vector<std::size_t> order(trials.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const double sign = data.maximize() ? 1 : -1;
  std::ranges::sort(
      order, {}, [&](std::size_t i) { return std::pair(sign * trials[i]->record.values[0], i); });
  std::vector<double> good(trials.size(), 1);
  for (std::size_t rank = 0; rank < order.size() && order.size() > 1; ++rank) {
    good[order[rank]] = static_cast<double>(rank) / static_cast<double>(order.size() - 1);
  }
  return good;
}

class ParallelPlot {
 public:
  explicit ParallelPlot(const StudyData& data)
      : data_(data),
        trials_(data.finished()),
        good_(goodness(data, trials_)),
        width_(std::max(kWidth, 150.0 * static_cast<double>(data.names.size() + 1))),
        frame_{90, width_ - 90, 84, kHeight - 30},
        svg_(width_, kHeight),
        target_(target_scale()) {
    for (std::size_t i = 0; i < data.names.size(); ++i) {
      axes_.emplace_back(data, trials_, i, frame_.bottom, frame_.top);
    }
  }

  std::string draw() {
    std::vector<std::size_t> order(trials_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(good_[i], i); });
    for (const std::size_t i : order) draw_trial(i, i == order.back());
    for (std::size_t i = 0; i < axes_.size(); ++i) draw_axis(i);
    draw_target_axis();
    draw_texts();
    return svg_.file(fmt::format("parallel coordinates of {}", data_.spec.name));
  }

 private:
  Scale target_scale() const {
    const auto [low, high] = robust_extent(targets_of(trials_, 0), data_.maximize());
    return {low, high, false, frame_.bottom, frame_.top};
  }

  double column(std::size_t i) const {
    return frame_.left + (frame_.right - frame_.left) * static_cast<double>(i) /
                             static_cast<double>(data_.names.size());
  }

  void draw_trial(std::size_t i, bool best) {
    std::vector<Point> points;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      if (const auto y = axes_[a].place(trials_[i]->variables[a]))
        points.push_back({column(a), *y});
    }
    const double value = target_.place(trials_[i]->record.values[0]);
    points.push_back({column(axes_.size()), std::clamp(value, frame_.top, frame_.bottom)});
    svg_.path(points, "thread",
              fmt::format("stroke: {}{}", ramp_colour(good_[i]),
                          best ? "; stroke-width: 3; stroke-opacity: 1" : ""));
  }

  void draw_axis(std::size_t i) {
    svg_.line({column(i), frame_.top}, {column(i), frame_.bottom}, "axis");
    svg_.text({column(i), frame_.top - 16}, shortened(data_.names[i], 20), "middle");
    for (const auto& [y, label] : axes_[i].labels()) {
      svg_.line({column(i) - 4, y}, {column(i), y}, "axis");
      svg_.text({column(i) - 8, y + 4}, shortened(label, 12), "end", "over");
    }
  }

  void draw_target_axis() {
    const double x = column(axes_.size());
    svg_.line({x, frame_.top}, {x, frame_.bottom}, "axis");
    svg_.text({x, frame_.top - 16}, shortened(data_.target_name(), 20), "middle");
    for (const double tick : target_.ticks()) {
      svg_.text({x + 8, target_.place(tick) + 4}, tick_text(tick), "start", "over");
    }
  }

  void draw_texts() {
    svg_.text({24, 28}, fmt::format("{}: {} trials", data_.spec.name, trials_.size()), "start",
              "title");
    svg_.text({width_ - 174, 28}, "better", "end", "small");
    for (int i = 0; i < 60; ++i) {
      svg_.rectangle({width_ - 168 + 1.5 * i, 18}, 2, 10, "ramp",
                     fmt::format("fill: {}", ramp_colour(1 - i / 59.0)));
    }
    svg_.text({width_ - 72, 28}, "worse", "start", "small");
  }

  const StudyData& data_;
  std::vector<const StudyTrial*> trials_;
  std::vector<double> good_;
  double width_;
  Frame frame_;
  Svg svg_;
  Scale target_;
  std::vector<VariableAxis> axes_;
};

class SlicePlot {
 public:
  explicit SlicePlot(const StudyData& data)
      : data_(data),
        trials_(data.finished()),
        good_(goodness(data, trials_)),
        columns_(data.names.size() == 4 ? 2 : std::min<std::size_t>(3, data.names.size())),
        panel_width_(columns_ == 1 ? 520 : 290),
        svg_(80 + panel_width_ * static_cast<double>(columns_),
             60 + kPanelHeight *
                      static_cast<double>((data.names.size() + columns_ - 1) / columns_)) {
    std::tie(low_, high_) = robust_extent(targets_of(trials_, 0), data.maximize());
  }

  std::string draw() {
    for (std::size_t i = 0; i < data_.names.size(); ++i) draw_panel(i);
    svg_.text({76, 28},
              fmt::format("{}: {} over each variable", data_.spec.name,
                          shortened(data_.target_name(), 30)),
              "start", "title");
    return svg_.file(fmt::format("slices of {}", data_.spec.name));
  }

 private:
  static constexpr double kPanelHeight = 240;

  void draw_panel(std::size_t i) {
    const double left = 76 + panel_width_ * static_cast<double>(i % columns_);
    const double top = 52 + kPanelHeight * static_cast<double>(i / columns_);
    const Frame frame{left, left + panel_width_ - 30, top, top + kPanelHeight - 60};
    const Scale y(low_, high_, false, frame.bottom, frame.top);
    for (const double tick : y.ticks()) {
      svg_.line({frame.left, y.place(tick)}, {frame.right, y.place(tick)}, "grid");
      if (i % columns_ != 0) continue;
      svg_.text({frame.left - 8, y.place(tick) + 4}, tick_text(tick), "end", "small");
    }
    const VariableAxis x(data_, trials_, i, frame.left + 8, frame.right - 8);
    draw_panel_axis(frame, x);
    for (std::size_t t = 0; t < trials_.size(); ++t) {
      const auto place = x.place(trials_[t]->variables[i]);
      if (!place) continue;
      const bool best = good_[t] == 1;
      const double height = y.place(trials_[t]->record.values[0]);
      svg_.circle({*place, std::clamp(height, frame.top, frame.bottom)}, best ? 5 : 3.5,
                  best ? "bestpoint" : "trial", trial_title(data_, *trials_[t]));
    }
    svg_.text({(frame.left + frame.right) / 2, frame.bottom + 36}, shortened(data_.names[i], 36),
              "middle");
  }

  void draw_panel_axis(const Frame& frame, const VariableAxis& x) {
    svg_.line({frame.left, frame.bottom}, {frame.right, frame.bottom}, "axis");
    double free_from = -1e9;  // labels that would overlap are left out
    for (const auto& [place, label] : x.labels()) {
      const std::string text = shortened(label, 12);
      const double half = 3.4 * static_cast<double>(text.size());
      svg_.line({place, frame.bottom}, {place, frame.bottom + 4}, "axis");
      if (place - half < free_from) continue;
      svg_.text({place, frame.bottom + 17}, text, "middle", "small");
      free_from = place + half + 6;
    }
  }

  const StudyData& data_;
  std::vector<const StudyTrial*> trials_;
  std::vector<double> good_;
  std::size_t columns_;
  double panel_width_;
  Svg svg_;
  double low_ = 0;
  double high_ = 0;
};

Result<std::string> plot_pareto(const StudyData& data) {
  if (data.spec.maximize.size() < 2) {
    return failure(Code::kInvalid, "study {} has one objective; a Pareto plot needs two",
                   data.spec.name);
  }
  const std::vector<const StudyTrial*> trials = data.finished();
  Svg svg(kWidth, kHeight);
  const Frame frame;
  const auto [x_low, x_high] = extent(targets_of(trials, 0));
  const auto [y_low, y_high] = extent(targets_of(trials, 1));
  const Scale x(x_low, x_high, false, frame.left + 8, frame.right - 8);
  const Scale y(y_low, y_high, false, frame.bottom - 8, frame.top);
  draw_y_axis(svg, frame, y);
  draw_x_axis(svg, frame, x);
  const auto place = [&](const StudyTrial& trial) {
    return Point{x.place(trial.record.values[0]), y.place(trial.record.values[1])};
  };
  for (const StudyTrial* trial : trials) {
    svg.circle(place(*trial), 3.5, "trial", trial_title(data, *trial));
  }
  std::vector<const StudyTrial*> front = data.pareto();
  std::ranges::sort(front, {}, [](const StudyTrial* trial) { return trial->record.values[0]; });
  std::vector<Point> line;
  for (const StudyTrial* trial : front) {
    const Point at = place(*trial);
    // What is reached with certainty between two points of the front is the corner between them:
    // on the worse side of both.
    if (!line.empty()) {
      const bool later_x = data.maximize(0);
      line.push_back(later_x ? Point{line.back().x, at.y} : Point{at.x, line.back().y});
    }
    line.push_back(at);
  }
  svg.path(line, "best");
  for (const StudyTrial* trial : front) {
    svg.circle(place(*trial), 4.5, "bestpoint", trial_title(data, *trial));
  }
  svg.text(
      {frame.left, 28},
      fmt::format("{}: {} of {} trials on the front", data.spec.name, front.size(), trials.size()),
      "start", "title");
  const auto axis_text = [&](std::size_t i) {
    return fmt::format("{} ({} is better)", shortened(data.target_name(i), 40),
                       data.maximize(i) ? "larger" : "smaller");
  };
  svg.text({(frame.left + frame.right) / 2, kHeight - 14}, axis_text(0), "middle");
  svg.text_upwards({20, (frame.top + frame.bottom) / 2}, axis_text(1));
  return svg.file(fmt::format("Pareto front of {}", data.spec.name));
}

Result<std::string> plot_importance(const StudyData& data,
                                    std::vector<std::pair<std::string, double>> importance) {
  if (importance.empty()) {
    return failure(Code::kInvalid, "study {} has no importances", data.spec.name);
  }
  std::ranges::sort(importance, std::greater<>(), &std::pair<std::string, double>::second);
  const double row = 34;
  const double left = 190;
  const double right = kWidth - 70;
  Svg svg(kWidth, 76 + row * static_cast<double>(importance.size()));
  const Scale x(0, std::max(1e-6, importance.front().second), false, left, right);
  for (std::size_t i = 0; i < importance.size(); ++i) {
    const double y = 52 + row * static_cast<double>(i);
    const double end = x.place(importance[i].second);
    svg.text({left - 10, y + 15}, shortened(importance[i].first, 26), "end");
    svg.rectangle({left, y}, std::max(1.0, end - left), row - 12, "bar");
    svg.text({end + 8, y + 15}, fmt::format("{:.1f} %", 100 * importance[i].second), "start",
             "small");
  }
  svg.line({left, 46}, {left, 52 + row * static_cast<double>(importance.size())}, "axis");
  svg.text({24, 28},
           fmt::format("{}: share of each variable in {}", data.spec.name,
                       shortened(data.target_name(), 40)),
           "start", "title");
  return svg.file(fmt::format("importance of the variables of {}", data.spec.name));
}

struct PlotName {
  std::string_view name;
  PlotKind kind;
};
constexpr std::array<PlotName, 5> kPlotNames{{{"history", PlotKind::kHistory},
                                              {"parallel", PlotKind::kParallel},
                                              {"slice", PlotKind::kSlice},
                                              {"pareto", PlotKind::kPareto},
                                              {"importance", PlotKind::kImportance}}};

}  // namespace

Result<PlotKind> parse_plot_kind(std::string_view text) {
  std::vector<std::string> names;
  for (const PlotName& one : kPlotNames) {
    if (one.name == text) return one.kind;
    names.emplace_back(one.name);
  }
  return failure(Code::kInvalid, "there is no plot '{}'{} (there are {})", text,
                 did_you_mean(text, names), fmt::join(names, ", "));
}

Result<std::string> plot(const StudyData& data, PlotKind kind,
                         const std::vector<std::pair<std::string, double>>& importance) {
  if (data.finished().empty()) {
    return failure(Code::kUnavailable, "no trial of study {} has ended well: nothing to draw",
                   data.spec.name);
  }
  switch (kind) {
    case PlotKind::kHistory: return HistoryPlot(data).draw();
    case PlotKind::kParallel: return ParallelPlot(data).draw();
    case PlotKind::kSlice: return SlicePlot(data).draw();
    case PlotKind::kPareto: return plot_pareto(data);
    case PlotKind::kImportance: return plot_importance(data, importance);
  }
  return failure(Code::kInternal, "a kind of plot that is not handled");
}

}  // namespace divisi::tune_run
