// Metrics: counters, gauges and histograms, in the text form that Prometheus reads.
//
//   Metrics metrics;
//   Counter& calls = metrics.counter("divisi_api_calls_total", "Requests to the API.", {{"verb",
//   "get"}}); calls.add();   ...   metrics.text();
//
// Counting is safe from any thread and takes no lock; making a metric and text() take one. What is
// returned lives as long as the registry. Labels have few values: never the name of an object.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::kube {

class Counter {
 public:
  void add(std::uint64_t count = 1) noexcept { value_ += count; }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Of times, in seconds.
class Histogram {
 public:
  static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                      0.25,  0.5,    1.0,   2.5,  5.0,   10.0, 30.0};
  void observe(double seconds) noexcept;

 private:
  friend class Metrics;
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> counts_{};  // the last: above all
  std::atomic<double> sum_{0};
};

class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // The same name and labels give the same metric.
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const Labels& labels = {});
  // Asked when text() is: on its thread. A counter that somebody else keeps never gets smaller.
  void gauge(const std::string& name, const std::string& help, std::function<double()> read,
             const Labels& labels = {});
  void counter(const std::string& name, const std::string& help, std::function<double()> read,
               const Labels& labels = {});

  std::string text() const;

 private:
  struct Family {
    std::string help;
    std::string_view type;
    std::map<std::string, Counter*> counters;  // by their labels as text
    std::map<std::string, Histogram*> histograms;
    std::map<std::string, std::function<double()>> reads;
  };

  Family& family(const std::string& name, const std::string& help, std::string_view type);

  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;  // guarded by mutex_, as those below
  std::deque<Counter> counters_;
  std::deque<Histogram> histograms_;
};

}  // namespace divisi::kube
