// Wire: the bytes of one connection: read and not used yet, written and not sent yet.
//
// All on the loop. What is written in one turn of the loop leaves in one write; what can be read in
// one turn is told once. A wire that is destroyed closes its stream.
#pragma once

#include "io/reactor.h"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace divisi::http {

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  static std::shared_ptr<Wire> make(io::Reactor& reactor, std::shared_ptr<io::Stream> stream);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Who is told; either may be null, and may be changed from inside a callback.
  // on_input: there is more input, or the end. on_progress: output was taken, or broken() is set.
  void set_user(std::function<void()> on_input, std::function<void()> on_progress);

  std::string_view input() const { return std::string_view(input_).substr(used_); }
  void consume(std::size_t bytes);
  bool ended() const { return ended_; }  // no more input will come
  int error() const { return error_; }   // then: an errno, or 0 after a proper end
  // While paused nothing more is read.
  void set_reading(bool wanted);

  void write(std::string bytes);
  std::size_t unsent() const { return unsent_; }
  // Errno of a write that failed: nothing more can be sent, but an answer may still be readable.
  int broken() const { return broken_; }

  void shutdown_write();  // after what was written
  void close();

  // Gives the stream away; to be used by its next owner from another callback than ours. What was
  // read and not used goes into `rest`. Nothing may be unsent.
  std::shared_ptr<io::Stream> release(std::string& rest);

  const std::shared_ptr<io::Stream>& stream() const { return stream_; }
  io::Reactor& reactor() const { return reactor_; }

 private:
  Wire(io::Reactor& reactor, std::shared_ptr<io::Stream> stream)
      : reactor_(reactor), stream_(std::move(stream)) {}
  void read_some();
  bool on_readable();
  void start_reading();
  void flush_later();
  void flush();

  io::Reactor& reactor_;
  std::shared_ptr<io::Stream> stream_;  // null once closed or given away
  std::function<void()> on_input_;
  std::function<void()> on_progress_;

  std::string input_;
  std::size_t used_ = 0;  // of input_
  bool reading_ = false;
  bool ended_ = false;
  int error_ = 0;

  std::deque<std::string> output_;
  std::size_t sent_ = 0;  // of output_.front()
  std::size_t unsent_ = 0;
  int broken_ = 0;
  bool flush_posted_ = false;
  bool waits_writable_ = false;
  bool shuts_ = false;
};

}  // namespace divisi::http
