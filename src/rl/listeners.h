// Listeners: those of one owner, which go with it.
#pragma once

#include "divisi/parallel.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::rl {

// A callback may still run when this is gone (off does not wait), so callbacks share what they use.
class Listeners {
 public:
  explicit Listeners(Parallel& router) : router_(router) {}
  ~Listeners() {
    for (const auto& [event, id] : ids_) router_.off(event, id);
  }
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  template <class F>
  void on(std::string_view event, F&& fn) {
    ids_.emplace_back(event, router_.on(event, std::forward<F>(fn)));
  }

 private:
  Parallel& router_;
  std::vector<std::pair<std::string, ListenerId>> ids_;
};

}  // namespace divisi::rl
