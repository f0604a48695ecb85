// EventRecorder: tells of what happened to an object, as `kubectl describe` shows it.
//
// Loop only; never fails: what cannot be written is logged. Alike ones are joined as kubectl's
// users know it: the same event again only raises the count of the first; more than ten that differ
// in their message alone become one; an object that is told too much about is no longer for a
// while.
#pragma once

#include "json/value.h"
#include "kube/client.h"

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::kube {

struct RecorderOptions {
  std::string component{};  // who tells: "di-operator"
  std::string instance{};   // which of several
  int alike = 10;           // so many with other messages within `alike_within` are joined
  std::chrono::seconds alike_within{600};
  double burst = 25;  // events an object and lane at once, then one each `refill`
  std::chrono::seconds refill{300};
  // Of all objects together: events come after what they tell of, never before it.
  double writes_per_second = 20;
  double writes_at_once = 30;
  // Events; the oldest are forgotten, also those not written yet, but of these no warning while
  // there are others.
  std::size_t remembered = 1024;
  std::function<std::chrono::system_clock::time_point()> wall_clock = [] {
    return std::chrono::system_clock::now();
  };
};

class EventRecorder {
 public:
  EventRecorder(Client& client, RecorderOptions options);
  ~EventRecorder();

  // `about`: the object, or at least its kind, apiVersion, and metadata's name, namespace and uid.
  // `type` is "Normal" or "Warning". Events of another `lane` have an allowance of their own: many
  // of them hide none of these.
  void record(const json::Value& about, std::string_view type, std::string_view reason,
              std::string_view message, std::string_view lane = {});

 private:
  struct Known {
    std::string space;  // of the Event object
    std::string name;
    std::string text;     // the object as it began: thousands may wait, and a text is small
    std::string message;  // the last one
    std::int64_t count = 0;
    io::TimePoint last{};
    std::chrono::system_clock::time_point last_time{};
    bool is_warning = false;
    bool is_new = true;    // the server has none yet
    bool writing = false;  // or waiting to be: one request at a time; the rest raises `count`
    bool dirty = false;    // count has grown since
  };
  struct Alike {
    std::vector<io::TimePoint> times;
  };
  struct Bucket {
    double tokens;
    io::TimePoint at;
  };
  using Knowns = std::list<std::pair<std::string, std::shared_ptr<Known>>>;

  bool take(Bucket& bucket, double most, double per_second) const;
  bool allowed(const std::string& object);
  std::shared_ptr<Known> known(const std::string& key);
  void write(const std::shared_ptr<Known>& known);
  void write_waiting();
  void send(const std::shared_ptr<Known>& known);
  void written(const std::shared_ptr<Known>& known, const Result<json::Value>& answer);
  json::Value make(const json::Value& about, std::string_view type, std::string_view reason) const;

  Client& client_;
  const RecorderOptions options_;
  Knowns order_;  // newest first
  std::unordered_map<std::string, Knowns::iterator> known_;
  std::unordered_map<std::string, Alike> alike_;
  std::unordered_map<std::string, Bucket> buckets_;
  Bucket writes_;
  std::deque<std::shared_ptr<Known>> waiting_;  // for their turn to be written
  std::unique_ptr<io::Timer> turn_;
  std::shared_ptr<bool> alive_;
};

}  // namespace divisi::kube
