// Progress: what the log of a run says so far, and how it looks on a terminal, in plain lines and
// as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cartpole {

struct Evaluation {
  double seconds = 0;  // since the run began
  std::int64_t env_step = 0;
  std::int64_t train_iter = 0;
  double mean = 0;
};

struct NodeStatus {
  int node = 0;
  std::string role;
  bool up = false;
};

struct Progress {
  double seconds = 0;  // of the latest line
  std::int64_t env_step = 0;
  std::int64_t train_iter = 0;
  double env_steps_per_second = 0;
  double updates_per_second = 0;
  double loss = 0;
  double mean_q = 0;
  double eps = 0;
  std::int64_t version = 0;  // of the weights that were sent last
  std::vector<NodeStatus> nodes;
  std::vector<Evaluation> evaluations;
  bool solved = false;

  // One line of log.jsonl. False for a line that cannot be read: it is still being written.
  bool take(std::string_view line);
};

struct Screen {
  int columns = 80;
  int rows = 24;
  bool colour = true;
};

// Everything on one screen: the curve in braille, the figures, who is alive.
std::string draw(const Progress& progress, std::string_view title, double stop_value,
                 double seconds_without_news, const Screen& screen);

// "  12.3 s   8,192 env steps  ..." for pipes and logs.
std::string plain_line(const Progress& progress);

// The curve of the evaluations as an SVG document.
std::string curve_svg(const std::vector<Evaluation>& evaluations, double stop_value,
                      std::string_view title);

// 1234567 as 1,234,567.
std::string with_commas(std::int64_t number);

}  // namespace cartpole
