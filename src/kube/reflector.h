// Reflector: keeps a Sink equal to what the server has, by a list and a watch that follows it.
//
// Loop only. It lists, watches from there, and watches on whenever the stream ends, which is no
// error. When the stream cannot be followed (410, an ERROR, a frame that is none, versions that go
// back) it lists again: the newest state each time, never a cache that may be older than what was
// seen. It waits between tries, longer each time.
#pragma once

#include "http/client.h"
#include "kube/client.h"
#include "kube/retry.h"
#include "kube/watch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace divisi::kube {

struct ReflectorOptions {
  Resource resource{};
  std::string space{};  // empty: all
  std::string label_selector{};
  std::string field_selector{};
  std::int64_t page = 500;  // objects of one page of the list
  // Asks for the list as the beginning of the watch where the server can: no list in memory.
  bool stream_list = true;
  // Such a list that has not ended, with no object coming for so long, is asked for by pages
  // instead.
  io::Duration stalled_after = std::chrono::seconds(30);
  // Bookmarks come about every minute: a stream silent for so long is given up.
  io::Duration idle_timeout = std::chrono::minutes(3);
  // How long the server lets a watch live, at least; up to twice as long.
  std::chrono::seconds watch_for{300};
  BackoffOptions backoff{};
  io::Duration healthy_after = std::chrono::minutes(2);  // then the backoff begins anew
};

class Sink {
 public:
  virtual ~Sink() = default;
  // A list: everything that is there, then what is not listed is gone. A list that begins anew
  // before its end replaces the one before.
  virtual void begin_list() = 0;
  virtual void listed(json::Value object) = 0;
  virtual void end_list() = 0;
  // `deleted` has the last state.
  virtual void changed(json::Value object) = 0;
  virtual void deleted(json::Value object) = 0;
};

class Reflector {
 public:
  struct Counters {
    std::uint64_t lists = 0;
    std::uint64_t watches = 0;
    std::uint64_t events = 0;
    std::uint64_t errors = 0;
  };

  Reflector(Client& client, ReflectorOptions options, Sink& sink);
  ~Reflector();

  void start();
  void stop();

  const Counters& counters() const noexcept { return counters_; }
  const Status& last_error() const noexcept { return last_error_; }  // ok once all is well again
  const std::string& resource_version() const noexcept { return version_; }

 private:
  enum class Verdict { kGoOn, kListAgain };

  void list();
  void list_page(std::string continue_token, bool whole);
  void page_came(Result<json::Value> page, bool whole);
  void stream_initial();
  void expect_progress();
  void watch();
  void open(std::string target);
  void on_piece(std::string_view piece);
  bool on_event(WatchEvent event);
  bool on_initial_event(WatchEvent event);
  void on_stream_end(Status status);
  bool advance(const json::Value& object);
  void list_again(const Status& why);
  void retry(std::function<void()> what);
  void healthy();
  std::string what() const;
  Query selectors() const;

  Client& client_;
  const ReflectorOptions options_;
  Sink& sink_;

  Backoff backoff_;
  std::string version_;     // of the last list, event or bookmark
  bool stream_list_;        // the server has not refused it yet
  bool initial_ = false;    // the stream is still in its initial events
  bool list_next_ = false;  // the stream cannot be followed any further
  std::uint64_t events_of_stream_ = 0;
  io::TimePoint opened_{};
  io::TimePoint progress_{};  // of a list that is streamed
  io::TimePoint last_trouble_{};
  Status last_error_;
  Status stream_error_;
  Counters counters_;
  WatchDecoder decoder_;
  std::unique_ptr<http::Call> call_;
  std::unique_ptr<io::Timer> pause_;
  std::unique_ptr<io::Timer> stall_;  // runs while a list is streamed
  std::shared_ptr<bool> alive_;       // false: callbacks of the client come too late
};

}  // namespace divisi::kube
