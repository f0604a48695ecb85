#include "progress.h"

#include "json/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace cartpole {

using divisi::json::Value;

namespace {

double number(const Value& line, std::string_view key, double otherwise) {
  const Value* const value = line.find(key);
  if (value == nullptr) return otherwise;
  if (const auto* const real = value->as_double()) return *real;
  if (const auto* const integer = value->as_int()) return static_cast<double>(*integer);
  return otherwise;
}

std::int64_t integer(const Value& line, std::string_view key, std::int64_t otherwise) {
  return static_cast<std::int64_t>(number(line, key, static_cast<double>(otherwise)));
}

std::string text(const Value& line, std::string_view key) {
  const Value* const value = line.find(key);
  const std::string* const found = value == nullptr ? nullptr : value->as_string();
  return found == nullptr ? std::string() : *found;
}

// A picture of two times four dots a character.
class Braille {
 public:
  Braille(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<std::size_t>(columns * rows), 0) {}

  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void dot(int x, int y) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    static constexpr std::uint8_t kBits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[static_cast<std::size_t>(y / 4 * columns_ + x / 2)] |= kBits[y % 4][x % 2];
  }

  void line(double x0, double y0, double x1, double y1) {
    const int steps = 1 + static_cast<int>(std::max(std::abs(x1 - x0), std::abs(y1 - y0)));
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))));
    }
  }

  std::string row(int i) const {
    std::string out;
    for (int c = 0; c < columns_; ++c) {
      const unsigned bits = cells_[static_cast<std::size_t>(i * columns_ + c)];
      // U+2800 and up, as UTF-8.
      out += '\xE2';
      out += static_cast<char>(0xA0 + (bits >> 6U));
      out += static_cast<char>(0x80 + (bits & 0x3FU));
    }
    return out;
  }

 private:
  int columns_;
  int rows_;
  std::vector<std::uint8_t> cells_;
};

double top_of(const std::vector<Evaluation>& evaluations, double stop_value) {
  double top = stop_value;
  for (const auto& each : evaluations) top = std::max(top, each.mean);
  return std::max(1.0, 1.05 * top);
}

// 1, 2 or 5 times a power of ten, so that about `count` of them make up `range`.
double round_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string count_of(double number) {
  return with_commas(static_cast<std::int64_t>(std::llround(number)));
}

}  // namespace

bool Progress::take(std::string_view bytes) {
  const auto parsed = divisi::json::parse(bytes);
  if (!parsed || parsed->as_object() == nullptr) return false;
  const Value& line = *parsed;
  const std::string kind = text(line, "kind");
  seconds = number(line, "seconds", seconds);
  env_step = integer(line, "env_step", env_step);
  train_iter = integer(line, "train_iter", train_iter);
  if (kind == "eval") {
    evaluations.push_back({seconds, env_step, train_iter, number(line, "mean", 0)});
    return true;
  }
  if (kind == "solved") solved = true;
  env_steps_per_second = number(line, "env_steps_per_second", env_steps_per_second);
  updates_per_second = number(line, "updates_per_second", updates_per_second);
  loss = number(line, "loss", loss);
  mean_q = number(line, "mean_q", mean_q);
  eps = number(line, "eps", eps);
  version = integer(line, "version", version);
  if (const Value* const list = line.find("nodes");
      list != nullptr && list->as_array() != nullptr) {
    nodes.clear();
    for (const Value& each : *list->as_array()) {
      const Value* const up = each.find("up");
      nodes.push_back({static_cast<int>(integer(each, "node", -1)), text(each, "role"),
                       up != nullptr && up->as_bool() != nullptr && *up->as_bool()});
    }
  }
  return true;
}

std::string with_commas(std::int64_t number) {
  const std::string digits = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string draw(const Progress& progress, std::string_view title, double stop_value,
                 double seconds_without_news, const Screen& screen) {
  const auto paint = [&](std::string_view code, std::string_view what) {
    return screen.colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, what) : std::string(what);
  };
  constexpr int kMargin = 6;  // the scale
  constexpr int kOther = 9;   // lines that are not the curve
  const int columns = std::clamp(screen.columns - kMargin - 2, 20, 100);
  const int rows = std::clamp(screen.rows - kOther, 4, 14);
  const double top = top_of(progress.evaluations, stop_value);
  const double last_step =
      std::max<double>(1, static_cast<double>(std::max(progress.env_step, std::int64_t{1})));

  Braille picture(columns, rows);
  const auto x = [&](const Evaluation& e) {
    return static_cast<double>(e.env_step) / last_step * (picture.width() - 1);
  };
  const auto y = [&](double value) { return (1 - value / top) * (picture.height() - 1); };
  const auto& all = progress.evaluations;
  // One point for each character, the mean of what falls there: a curve, not a thicket.
  std::optional<std::pair<double, double>> last;
  for (std::size_t i = 0; i < all.size();) {
    const int column = static_cast<int>(x(all[i])) / 2;
    double sum = 0;
    const std::size_t first = i;
    while (i < all.size() && static_cast<int>(x(all[i])) / 2 == column) sum += all[i++].mean;
    const std::pair<double, double> point(2.0 * column, y(sum / static_cast<double>(i - first)));
    if (!last) last = point;
    picture.line(last->first, last->second, point.first, point.second);
    last = point;
  }
  const int goal_row = std::clamp(static_cast<int>(y(stop_value)) / 4, 0, rows - 1);

  std::string out = fmt::format("{}   {}\n\n", paint("1", title), clock(progress.seconds));
  for (int i = 0; i < rows; ++i) {
    const double value = top * (1 - (i + 0.5) / rows);
    const bool goal = i == goal_row;
    const std::string scale =
        goal
            ? fmt::format("{:>5.0f}", stop_value)
            : (i == rows - 1 ? fmt::format("{:>5.0f}", 0.0)
                             : (i % 4 == 0 ? fmt::format("{:>5.0f}", value) : std::string(5, ' ')));
    out += fmt::format("{} {}{}\n", paint(goal ? "33" : "2", scale), paint("2", goal ? "┼" : "│"),
                       paint("32", picture.row(i)));
  }
  const std::string best = all.empty() ? "none yet" : fmt::format("{:.1f}", all.back().mean);
  out += fmt::format("{}return of the last evaluation: {}  (goal {:.0f})\n",
                     std::string(kMargin, ' '), paint("1", best), stop_value);
  out += fmt::format(
      "\nenv steps {} ({}/s)   updates {} ({}/s)\nloss {:.4g}   q {:.3g}   eps {:.2f}   weights "
      "v{}\n",
      with_commas(progress.env_step), count_of(progress.env_steps_per_second),
      with_commas(progress.train_iter), count_of(progress.updates_per_second), progress.loss,
      progress.mean_q, progress.eps, progress.version);
  std::string who;
  for (const auto& node : progress.nodes) {
    who += fmt::format("{} {} {}   ", node.up ? paint("32", "●") : paint("31", "○"), node.role,
                       node.node);
  }
  constexpr double kQuiet = 3;
  if (seconds_without_news > kQuiet) {
    who += paint("33", fmt::format("no news from the learner for {:.0f} s", seconds_without_news));
  }
  return out + who + "\n";
}

std::string plain_line(const Progress& progress) {
  const std::string mean =
      progress.evaluations.empty() ? "-" : fmt::format("{:.1f}", progress.evaluations.back().mean);
  const auto up = std::ranges::count_if(progress.nodes, [](const auto& node) { return node.up; });
  return fmt::format(
      "{:>7.1f} s  env steps {:>9} ({:>7}/s)  updates {:>8} ({:>6}/s)  return {:>6}  loss {:<9.4g} "
      " "
      "weights v{}  {} of {} nodes up",
      progress.seconds, with_commas(progress.env_step), count_of(progress.env_steps_per_second),
      with_commas(progress.train_iter), count_of(progress.updates_per_second), mean, progress.loss,
      progress.version, up, progress.nodes.size());
}

std::string curve_svg(const std::vector<Evaluation>& evaluations, double stop_value,
                      std::string_view title) {
  constexpr double kWidth = 720;
  constexpr double kHeight = 360;
  constexpr double kLeft = 56;
  constexpr double kRight = 28;
  constexpr double kTop = 40;
  constexpr double kBottom = 48;
  const double top = top_of(evaluations, stop_value);
  const double last = evaluations.empty()
                          ? 1
                          : std::max<double>(1, static_cast<double>(evaluations.back().env_step));
  const auto x = [&](double step) { return kLeft + step / last * (kWidth - kLeft - kRight); };
  const auto y = [&](double value) {
    return kHeight - kBottom - value / top * (kHeight - kTop - kBottom);
  };

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"14\">{3}</text>\n",
      kWidth, kHeight, kLeft, title);
  constexpr int kLines = 5;
  const double value_step = round_step(top, kLines);
  for (double value = 0; value <= top; value += value_step) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#e5e5e5\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\" fill=\"#555\">{5:.0f}</text>\n",
        kLeft, kWidth - kRight, y(value), kLeft - 8, y(value) + 4, value);
  }
  const double env_step = std::max(1.0, round_step(last, kLines));
  for (double step = 0; step <= last; step += env_step) {
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n", x(step),
        kHeight - kBottom + 18, with_commas(static_cast<std::int64_t>(step)));
  }
  out += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#d08700\" "
      "stroke-dasharray=\"6 4\"/>\n<polyline fill=\"none\" stroke=\"#15803d\" stroke-width=\"2\" "
      "points=\"",
      kLeft, kWidth - kRight, y(stop_value));
  for (const auto& each : evaluations) {
    out += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(each.env_step)), y(each.mean));
  }
  out += fmt::format(
      "\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#555\">environment "
      "steps</text>\n</svg>\n",
      (kLeft + kWidth) / 2, kHeight - 10);
  return out;
}

}  // namespace cartpole
