// Small SVG drawings: shapes with classes, and axes with round ticks.
//
//   Svg svg(800, 480);
//   svg.line({0, 0}, {10, 10}, "grid");
//   std::string text = svg.text_of_file("history of cartpole");
//
// Colours are in one style sheet that follows the reader's light or dark scheme.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::tune_run {

struct Point {
  double x = 0;
  double y = 0;
};

class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  // `style` is CSS of this shape alone; `title` is shown when the pointer rests on it.
  void line(Point from, Point to, std::string_view css_class);
  void path(const std::vector<Point>& points, std::string_view css_class,
            std::string_view style = {});
  void circle(Point centre, double radius, std::string_view css_class, std::string_view title = {},
              std::string_view style = {});
  void cross(Point centre, double radius, std::string_view css_class, std::string_view title = {});
  void rectangle(Point corner, double width, double height, std::string_view css_class,
                 std::string_view style = {});
  // `anchor` is start, middle or end.
  void text(Point where, std::string_view text, std::string_view anchor,
            std::string_view css_class = "label");
  // Upwards, for the axis on the left.
  void text_upwards(Point where, std::string_view text, std::string_view css_class = "label");

  std::string file(std::string_view title) const;
  double width() const { return width_; }
  double height() const { return height_; }

 private:
  double width_;
  double height_;
  std::string body_;
};

// An interval of numbers on an interval of the drawing.
class Scale {
 public:
  // Widened to round numbers; `logarithmic` needs numbers above 0.
  Scale(double low, double high, bool logarithmic, double from, double to);
  double place(double value) const;
  std::vector<double> ticks() const { return ticks_; }
  bool is_logarithmic() const { return logarithmic_; }

 private:
  double low_;
  double high_;
  bool logarithmic_;
  double from_;
  double to_;
  std::vector<double> ticks_;
};

// Short, and as many digits as the step between ticks needs: "0.25", "1e-05", "12,000".
std::string tick_text(double value);
// The longest beginning of a text that fits, with "…" if it is not all.
std::string shortened(std::string_view text, std::size_t characters);
// A colour between two ends, for 0 to 1: from pale to strong.
std::string ramp_colour(double part);

}  // namespace divisi::tune_run
