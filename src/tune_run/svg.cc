#include "tune_run/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace divisi::tune_run {
namespace {

constexpr std::string_view kStyle = R"(
  .back { fill: #ffffff; }
  text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #30343b; }
  text.title { font-size: 15px; font-weight: 600; }
  text.small { font-size: 11px; fill: #5b626d; }
  text.over { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
  .grid { stroke: #e4e7eb; stroke-width: 1; }
  .axis { stroke: #8a919c; stroke-width: 1; fill: none; }
  .trial { fill: #3b73c8; fill-opacity: 0.75; }
  .mark { stroke: #b3bac4; stroke-width: 1.4; fill: none; }
  .hollow { stroke: #3b73c8; stroke-width: 1.4; fill: none; }
  .best { stroke: #d9690f; stroke-width: 2; fill: none; }
  .bestpoint { fill: #d9690f; }
  .bar { fill: #3b73c8; }
  .thread { fill: none; stroke-width: 1.3; stroke-opacity: 0.65; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #15181d; }
    text { fill: #d8dce2; }
    text.small { fill: #9aa2ae; }
    text.over { stroke: #15181d; }
    .grid { stroke: #2a2f37; }
    .axis { stroke: #717985; }
    .trial, .bar { fill: #6ea0ee; }
    .hollow { stroke: #6ea0ee; }
    .mark { stroke: #5d6571; }
    .best { stroke: #ff9a4a; }
    .bestpoint { fill: #ff9a4a; }
  }
)";

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe.push_back(static_cast<unsigned char>(c) < 32 ? ' ' : c);
    }
  }
  return safe;
}

// The end of a shape's tag, with a title inside of it.
std::string tag_end(std::string_view tag, std::string_view title) {
  if (title.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", escaped(title), tag);
}

std::string style_text(std::string_view style) {
  return style.empty() ? "" : fmt::format(" style=\"{}\"", style);
}

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high) {
  const double step = round_step((high - low) / 6);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  const double last = std::floor(high / step + 1e-9);
  const auto count = static_cast<int>(last - first) + 1;
  for (int k = 0; k < count; ++k) {
    const double i = first + k;
    ticks.push_back(i == 0 ? 0 : i * step);
  }
  return ticks;
}

std::vector<double> power_ticks(double low, double high) {
  const double first = std::ceil(std::log10(low) - 1e-9);
  const double last = std::floor(std::log10(high) + 1e-9);
  std::vector<double> ticks;
  const double stride = std::max(1.0, std::ceil((last - first) / 7));
  for (int k = 0; first + k * stride <= last; ++k) {
    ticks.push_back(std::pow(10, first + k * stride));
  }
  if (ticks.size() >= 3) return ticks;
  ticks.clear();
  const double lowest = std::floor(std::log10(low));
  for (int k = 0; lowest + k <= last; ++k) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, lowest + k);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string coordinates(const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points) text += fmt::format("{:.2f},{:.2f} ", point.x, point.y);
  return text;
}

}  // namespace

void Svg::line(Point from, Point to, std::string_view css_class) {
  body_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\"/>\n",
                  css_class, from.x, from.y, to.x, to.y);
}

void Svg::path(const std::vector<Point>& points, std::string_view css_class,
               std::string_view style) {
  body_ += fmt::format("<polyline class=\"{}\"{} points=\"{}\"/>\n", css_class, style_text(style),
                       coordinates(points));
}

void Svg::circle(Point centre, double radius, std::string_view css_class, std::string_view title,
                 std::string_view style) {
  body_ += fmt::format("<circle class=\"{}\"{} cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\"", css_class,
                       style_text(style), centre.x, centre.y, radius);
  body_ += tag_end("circle", title);
}

void Svg::cross(Point centre, double radius, std::string_view css_class, std::string_view title) {
  body_ += fmt::format("<path class=\"{}\" d=\"M{:.2f} {:.2f}l{} {}m0 {}l{} {}\"", css_class,
                       centre.x - radius, centre.y - radius, 2 * radius, 2 * radius, -2 * radius,
                       -2 * radius, 2 * radius);
  body_ += tag_end("path", title);
}

void Svg::rectangle(Point corner, double width, double height, std::string_view css_class,
                    std::string_view style) {
  body_ += fmt::format(
      "<rect class=\"{}\"{} x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>\n",
      css_class, style_text(style), corner.x, corner.y, width, height);
}

void Svg::text(Point where, std::string_view text, std::string_view anchor,
               std::string_view css_class) {
  body_ +=
      fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n",
                  css_class, where.x, where.y, anchor, escaped(text));
}

void Svg::text_upwards(Point where, std::string_view text, std::string_view css_class) {
  body_ += fmt::format(
      "<text class=\"{}\" text-anchor=\"middle\" transform=\"translate({:.2f} {:.2f}) "
      "rotate(-90)\">{}</text>\n",
      css_class, where.x, where.y, escaped(text));
}

std::string Svg::file(std::string_view title) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n<rect class=\"back\" "
      "width=\"{0}\" height=\"{1}\"/>\n{4}</svg>\n",
      width_, height_, escaped(title), kStyle, body_);
}

Scale::Scale(double low, double high, bool logarithmic, double from, double to)
    : low_(low), high_(high), logarithmic_(logarithmic && low > 0), from_(from), to_(to) {
  if (!(high_ > low_)) {
    const double margin = logarithmic_ ? 0 : std::max(std::abs(low_) * 0.1, 0.5);
    high_ = logarithmic_ ? low_ * 2 : low_ + margin;
    low_ = logarithmic_ ? low_ / 2 : low_ - margin;
  }
  if (logarithmic_) {
    ticks_ = power_ticks(low_, high_);
    return;
  }
  const double step = round_step((high_ - low_) / 6);
  // A bit of room, and whole steps where that costs little.
  const double low_step = std::floor(low_ / step + 1e-9) * step;
  const double high_step = std::ceil(high_ / step - 1e-9) * step;
  low_ = low_ - low_step < 0.6 * step ? low_step : low_ - 0.05 * (high_ - low_);
  high_ = high_step - high_ < 0.6 * step ? high_step : high_ + 0.05 * (high_ - low_);
  ticks_ = linear_ticks(low_, high_);
}

double Scale::place(double value) const {
  if (!logarithmic_) return from_ + (value - low_) / (high_ - low_) * (to_ - from_);
  const double part = std::log(std::max(value, low_ * 1e-3) / low_) / std::log(high_ / low_);
  return from_ + part * (to_ - from_);
}

std::string tick_text(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e7 && std::floor(value) == value) {
    std::string digits = fmt::format("{:.0f}", size);
    for (int place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3) {
      digits.insert(static_cast<std::size_t>(place), ",");
    }
    return (value < 0 ? "-" : "") + digits;
  }
  return fmt::format("{:.4g}", value);
}

std::string shortened(std::string_view text, std::size_t characters) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U;
    if (begins && ++seen > characters) return std::string(text.substr(0, i)) + "…";
  }
  return std::string(text);
}

std::string ramp_colour(double part) {
  // Readable on white and on black: a pale violet-blue, blue, and orange for the best.
  constexpr std::array<std::array<double, 3>, 3> kStops{
      {{176, 190, 214}, {59, 115, 200}, {217, 105, 15}}};
  const double place = std::clamp(part, 0.0, 1.0) * 2;
  const auto first = static_cast<std::size_t>(std::min(place, 1.0));
  const double rest = place - static_cast<double>(first);
  std::array<int, 3> colour{};
  for (std::size_t i = 0; i < 3; ++i) {
    colour[i] =
        static_cast<int>(kStops[first][i] + rest * (kStops[first + 1][i] - kStops[first][i]));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

}  // namespace divisi::tune_run
