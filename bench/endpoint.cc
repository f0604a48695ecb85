#include "endpoint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <system_error>

namespace divisi::bench {
namespace {

using Make = std::function<std::unique_ptr<Endpoint>(Side, std::size_t, const std::string&)>;

const std::map<std::string, Make>& registry() {
  static const std::map<std::string, Make> known = {
      {"ours-ipc", [](Side s, std::size_t n, const auto& a) { return make_ours(false, s, n, a); }},
      {"ours-tcp", [](Side s, std::size_t n, const auto& a) { return make_ours(true, s, n, a); }},
      {"unix",
       [](Side s, std::size_t n, const auto& a) { return make_raw_socket(false, true, s, n, a); }},
      {"unix-unbatched",
       [](Side s, std::size_t n, const auto& a) { return make_raw_socket(false, false, s, n, a); }},
      {"tcp",
       [](Side s, std::size_t n, const auto& a) { return make_raw_socket(true, true, s, n, a); }},
      {"tcp-unbatched",
       [](Side s, std::size_t n, const auto& a) { return make_raw_socket(true, false, s, n, a); }},
      {"zmq-pushpull-ipc",
       [](Side s, std::size_t n, const auto& a) { return make_zmq(false, true, s, n, a); }},
      {"zmq-pushpull-tcp",
       [](Side s, std::size_t n, const auto& a) { return make_zmq(true, true, s, n, a); }},
      {"zmq-nocopy-ipc",
       [](Side s, std::size_t n, const auto& a) { return make_zmq(false, false, s, n, a); }},
      {"zmq-nocopy-tcp",
       [](Side s, std::size_t n, const auto& a) { return make_zmq(true, false, s, n, a); }},
      {"nng-pair-ipc",
       [](Side s, std::size_t n, const auto& a) { return make_nng(false, s, n, a); }},
      {"nng-pair-tcp",
       [](Side s, std::size_t n, const auto& a) { return make_nng(true, s, n, a); }},
  };
  return known;
}

}  // namespace

void fail(const std::string& what) {
  throw std::runtime_error(
      errno != 0 ? what + ": " + std::error_code(errno, std::generic_category()).message() : what);
}

std::string ipc_path(const std::string& address, std::string_view suffix) {
  return (std::filesystem::temp_directory_path() / ("divisi-bench-" + address + "-"))
      .string()
      .append(suffix);
}

// Below the range the kernel takes for outgoing connections, four to a run.
int tcp_port(const std::string& address, int offset) {
  return 20000 + static_cast<int>(std::hash<std::string>{}(address) % 3000) * 4 + offset;
}

void touch(Bytes body) {
  constexpr std::size_t kCacheLine = 64;
  unsigned sum = 0;
  for (std::size_t i = 0; i < body.size(); i += kCacheLine) sum += static_cast<unsigned>(body[i]);
  asm volatile("" : : "r"(sum));
}

ByteEndpoint::ByteEndpoint(std::size_t size) : message_(size, std::byte{0x5a}) {}

void ByteEndpoint::send(std::uint64_t number) {
  std::memcpy(message_.data(), &number, sizeof number);
  send_bytes(message_);
}

void ByteEndpoint::run() {
  for (;;) {
    const Bytes message = receive_bytes();
    if (message.size() < sizeof(std::uint64_t)) fail("closed early");
    std::uint64_t number = 0;
    std::memcpy(&number, message.data(), sizeof number);
    if (!sink_(number, message)) return;
  }
}

std::unique_ptr<Endpoint> open_endpoint(const std::string& transport, Side side, std::size_t size,
                                        const std::string& address) {
  const auto it = registry().find(transport);
  if (it == registry().end()) throw std::runtime_error("unknown transport " + transport);
  return it->second(side, size, address);
}

std::vector<std::string> transports() {
  std::vector<std::string> names;
  for (const auto& [name, make] : registry()) names.push_back(name);
  return names;
}

}  // namespace divisi::bench
