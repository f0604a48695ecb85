// Expectations: what a controller has asked for and its cache does not show yet.
//
// Reconciling from a cache that is behind would make the same pod twice. So a controller notes what
// it is about to create or delete, its handlers strike off what they see, and reconcile leaves a
// key alone until all is seen or too old to be believed.
//
// Loop only. Objects are counted by name, so that the same event twice counts once.
#pragma once

#include "io/reactor.h"

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace divisi::kube {

class Expectations {
 public:
  static constexpr std::chrono::minutes kBelieved{5};

  explicit Expectations(io::Reactor& reactor, io::Duration believed = kBelieved)
      : reactor_(reactor), believed_(believed) {}

  void expect_created(const std::string& key, std::string object) {
    expect(key, '+', std::move(object));
  }
  void expect_deleted(const std::string& key, std::string uid) { expect(key, '-', std::move(uid)); }

  // Seen by a handler, or the request failed.
  void created(const std::string& key, std::string_view object) { settle(key, '+', object); }
  void deleted(const std::string& key, std::string_view uid) { settle(key, '-', uid); }

  // Whether the cache shows everything that was asked for. An expectation that is too old is
  // forgotten: the event was missed, and the cache is right.
  bool satisfied(const std::string& key);
  void forget(const std::string& key) { pending_.erase(key); }

 private:
  struct Pending {
    std::set<std::string, std::less<>> objects;
    io::TimePoint since;
  };

  void expect(const std::string& key, char kind, std::string object);
  void settle(const std::string& key, char kind, std::string_view object);

  io::Reactor& reactor_;
  const io::Duration believed_;
  std::unordered_map<std::string, Pending> pending_;
};

}  // namespace divisi::kube
