// RawPeer and ScriptedServer: the other side as bytes, for peers that do not behave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace divisi::http::testing {

// A blocking TCP socket. Everything throws after some time rather than hang.
class RawPeer {
 public:
  explicit RawPeer(int fd);
  static RawPeer connect(std::uint16_t port);
  ~RawPeer();
  RawPeer(RawPeer&& other) noexcept;
  RawPeer& operator=(RawPeer&&) = delete;

  // False when the other side takes no more.
  bool write(std::string_view bytes);
  // Some bytes; empty at the end.
  std::string read_some();
  std::string read_until(std::string_view mark);
  std::string read_to_end();
  void shutdown_write();
  void reset();  // closes with RST

 private:
  int fd_;
};

// Runs `script` for each connection, one after the other, on a thread of its own.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::function<void(RawPeer&, int connection)> script);
  ~ScriptedServer();
  std::uint16_t port() const { return port_; }
  int connections() const { return connections_.load(); }

 private:
  int listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace divisi::http::testing
