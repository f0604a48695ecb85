// Listeners: those of one owner, which go with it.
#pragma once

#include "divisi/parallel.h"

#include <string_view>
#include <utility>
#include <vector>

namespace divisi::rl {

class Listeners {
 public:
  explicit Listeners(Parallel& router) : router_(router) {}

  template <class F>
  void on(std::string_view event, F&& fn) {
    subscriptions_.push_back(router_.on(event, std::forward<F>(fn)));
  }

 private:
  Parallel& router_;
  std::vector<Subscription> subscriptions_;
};

}  // namespace divisi::rl
