// What the test programs share: arguments as name=value, one line when they listen, the end by a
// signal.
#pragma once

#include "base/status.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist::testing {

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view text = argv[i];
      const auto equals = text.find('=');
      values_[std::string(text.substr(0, equals))] =
          equals == std::string_view::npos ? "" : std::string(text.substr(equals + 1));
    }
  }

  std::string text(const std::string& name, std::string otherwise = {}) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  int number(const std::string& name, int otherwise) const {
    const std::string given = text(name);
    int value = otherwise;
    std::from_chars(given.data(), given.data() + given.size(), value);
    return value;
  }
  std::chrono::milliseconds ms(const std::string& name, int otherwise) const {
    return std::chrono::milliseconds(number(name, otherwise));
  }
  std::vector<std::string> list(const std::string& name) const {
    std::vector<std::string> parts;
    const std::string all = text(name);
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t comma = std::min(all.find(',', at), all.size());
      parts.push_back(all.substr(at, comma - at));
      at = comma + 1;
    }
    return parts;
  }

 private:
  std::map<std::string, std::string> values_;
};

inline void print_line(std::string_view line) {
  const std::string whole = fmt::format("{}\n", line);
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
}

// Before any thread is started: the threads inherit it.
inline sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

inline void wait_for_signal(const sigset_t& set) {
  int signal = 0;
  sigwait(&set, &signal);
}

}  // namespace divisi::dist::testing
