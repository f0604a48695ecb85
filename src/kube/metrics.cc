#include "kube/metrics.h"

#include "base/status.h"

#include <fmt/format.h>

#include <algorithm>

namespace divisi::kube {
namespace {

std::string escaped(std::string_view text, bool quote) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\\\";
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '"' && quote) {
      result += "\\\"";
    } else {
      result += c;
    }
  }
  return result;
}

// `a="b",c="d"`, sorted, without braces.
std::string label_text(Metrics::Labels labels) {
  std::ranges::sort(labels);
  std::string text;
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}=\"{}\"", name, escaped(value, true));
  }
  return text;
}

std::string braced(const std::string& labels) {
  return labels.empty() ? std::string() : "{" + labels + "}";
}

}  // namespace

void Histogram::observe(double seconds) noexcept {
  const auto bound = std::ranges::lower_bound(kBounds, seconds);
  ++counts_[static_cast<std::size_t>(bound - kBounds.begin())];
  double sum = sum_;
  while (!sum_.compare_exchange_weak(sum, sum + seconds)) {
  }
}

Metrics::Family& Metrics::family(const std::string& name, const std::string& help,
                                 std::string_view type) {
  Family& family = families_[name];
  DIVISI_CHECK(family.type.empty() || family.type == type, "a metric has one type");
  family.help = help;
  family.type = type;
  return family;
}

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Counter*& found = family(name, help, "counter").counters[label_text(labels)];
  if (found == nullptr) found = &counters_.emplace_back();
  return *found;
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help,
                              const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Histogram*& found = family(name, help, "histogram").histograms[label_text(labels)];
  if (found == nullptr) found = &histograms_.emplace_back();
  return *found;
}

void Metrics::gauge(const std::string& name, const std::string& help, std::function<double()> read,
                    const Labels& labels) {
  const std::lock_guard lock(mutex_);
  family(name, help, "gauge").reads[label_text(labels)] = std::move(read);
}

void Metrics::counter(const std::string& name, const std::string& help,
                      std::function<double()> read, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  family(name, help, "counter").reads[label_text(labels)] = std::move(read);
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  fmt::memory_buffer out;
  const auto print = [&]<class... Args>(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(out), form, std::forward<Args>(args)...);
  };
  for (const auto& [name, family] : families_) {
    print("# HELP {} {}\n# TYPE {} {}\n", name, escaped(family.help, false), name, family.type);
    for (const auto& [labels, counter] : family.counters) {
      print("{}{} {}\n", name, braced(labels), counter->value());
    }
    for (const auto& [labels, read] : family.reads)
      print("{}{} {}\n", name, braced(labels), read());
    for (const auto& [labels, histogram] : family.histograms) {
      const std::string before = labels.empty() ? labels : labels + ",";
      std::uint64_t count = 0;
      for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) {
        count += histogram->counts_[i];
        print("{}_bucket{{{}le=\"{}\"}} {}\n", name, before, Histogram::kBounds[i], count);
      }
      count += histogram->counts_.back();
      print("{}_bucket{{{}le=\"+Inf\"}} {}\n", name, before, count);
      print("{}_sum{} {}\n", name, braced(labels), histogram->sum_.load());
      print("{}_count{} {}\n", name, braced(labels), count);
    }
  }
  return fmt::to_string(out);
}

}  // namespace divisi::kube
