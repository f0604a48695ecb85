// Exchange: one request and its answer on a connection.
//
// All on the loop. It has the wire while it runs; when it ends the wire may serve the next one, if
// the ending says so.
#pragma once

#include "base/status.h"
#include "http/client.h"
#include "http/inflater.h"
#include "http/parser.h"
#include "http/wire.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace divisi::http {

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  struct Ending {
    Status status{};
    bool reusable = false;   // the connection can serve another request
    bool untouched = false;  // failed, and not a byte of an answer had come
    bool upgraded = false;   // 101: the stream was given away
  };
  struct Events {
    std::function<void(ResponseHead)> on_head{};
    std::function<bool(std::string_view)> on_body{};
    std::function<void(std::shared_ptr<io::Stream>, std::string)> on_upgrade{};
    std::function<void(Ending)> on_end{};  // once, last
  };
  struct Options {
    std::size_t max_header_bytes = Limits{}.max_header_bytes;
    bool head_only = false;  // HEAD
    bool upgrade = false;
    bool body_follows = false;  // in pieces, by write() and finish_body()
  };

  Exchange(std::shared_ptr<Wire> wire, Options options, Events events);

  void start(std::string request);
  void set_paused(bool paused);
  void write(std::string_view piece);
  void finish_body();

  const std::shared_ptr<Wire>& wire() const { return wire_; }
  bool paused() const { return paused_; }
  io::TimePoint last_heard() const { return last_heard_; }

  // Nobody is told any more; the wire is closed.
  void abandon();

 private:
  void expect_answer();
  void on_input();
  void advance();
  void read_answer();
  void tell_head();
  void deliver();
  void complete();
  Status why_it_ended();
  void hand_over(ResponseHead head);
  void end(Ending ending);

  const std::shared_ptr<Wire> wire_;
  const Options options_;
  Events events_;
  std::unique_ptr<Parser> parser_;
  std::optional<Inflater> inflater_;
  std::string raw_;  // of the body, not delivered
  Status problem_;   // to be told when all before it is delivered
  io::TimePoint last_heard_;
  int interim_answers_ = 0;
  bool body_sent_;
  bool touched_ = false;
  bool head_told_ = false;
  bool paused_ = false;
  bool delivering_ = false;
  bool upgrading_ = false;
  bool ended_ = false;
};

}  // namespace divisi::http
