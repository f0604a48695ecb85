// FakeDiServer: as much of a di-server as a worker sees, on loopback: lists of members as
// server-sent events, and profilings that are posted.
#pragma once

#include "http/server.h"
#include "io/reactor.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace divisi::runtime::testing {

class FakeDiServer {
 public:
  FakeDiServer();
  ~FakeDiServer();
  FakeDiServer(const FakeDiServer&) = delete;
  FakeDiServer& operator=(const FakeDiServer&) = delete;

  std::string url() const;

  // The data of a members event; to those who listen, and to those who come.
  void set_members(std::string data);
  // Ends all streams, as a server that is started again does.
  void cut();
  // What it answers to everything; 0: what is asked for.
  void set_status(int status);

  // Blocks until so many were asked (false at the deadline).
  bool wait_for_streams(std::size_t count);
  bool wait_for_posts(std::size_t count);
  std::vector<http::Request> posts() const;
  std::vector<http::Request> streams() const;

 private:
  void answer(const std::shared_ptr<http::ServerCall>& call);
  static std::string event(const std::string& data);

  const std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::unique_ptr<http::Server> server_;
  std::vector<std::shared_ptr<http::ServerCall>> listeners_;  // loop only
  std::string members_;                                       // loop only
  int status_ = 0;                                            // loop only

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<http::Request> posts_;    // guarded by mutex_
  std::vector<http::Request> streams_;  // guarded by mutex_
};

}  // namespace divisi::runtime::testing
