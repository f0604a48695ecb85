// What a reader of frames hears, as text that can be compared.
#pragma once

#include "mesh/inbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace divisi::mesh::testing {

class Recorder final : public Inbound::Control {
 public:
  std::vector<std::string> heard;
  Status ack_result;

  Status on_ack(std::uint64_t sequence, std::uint64_t credit) override {
    heard.push_back(fmt::format("ack {} {}", sequence, credit));
    return ack_result;
  }
  void on_subscribe(std::vector<std::string> topics, bool replace) override {
    heard.push_back(
        fmt::format("{} {}", replace ? "subscribe only" : "subscribe", fmt::join(topics, ",")));
  }
  void on_unsubscribe(std::vector<std::string> topics) override {
    heard.push_back(fmt::format("unsubscribe {}", fmt::join(topics, ",")));
  }
  void on_ready() override { heard.push_back("ready"); }
  void on_roles(std::vector<std::string> roles) override {
    heard.push_back(fmt::format("roles {}", fmt::join(roles, ",")));
  }
  void on_labels(std::vector<std::string> labels) override {
    heard.push_back(fmt::format("labels {}", fmt::join(labels, ",")));
  }
  void on_bye(bool clean, std::string reason) override {
    heard.push_back(fmt::format("bye {} {}", clean, reason));
  }
  void on_gap(std::uint64_t events) override { heard.push_back(fmt::format("gap {}", events)); }

  // The events since the last time, behind what was heard so far.
  void take(Inbound& in) {
    std::vector<Buffer> buffers;
    for (const InEvent& event : in.events().events) {
      read_buffers(event, in.events().owners[event.owner], buffers);
      const auto body = event.body();
      std::string line =
          fmt::format("event {} {} codec {} flags {} body {}", event.sequence, event.topic->name,
                      event.codec, event.flags & ~kFlagMore,
                      std::string_view(reinterpret_cast<const char*>(body.data()), body.size()));
      for (const Buffer& buffer : buffers) line += fmt::format(" [{}]", buffer.text());
      heard.push_back(std::move(line));
    }
    in.clear_events();
  }
};

// Feeds bytes as a socket would, at most `most` at a time.
inline Status feed(FrameReader& reader, FrameReader::Handler& handler,
                   std::span<const std::byte> bytes, std::size_t most = ~std::size_t{0}) {
  while (!bytes.empty()) {
    std::size_t moved = 0;
    for (const iovec& part : reader.prepare()) {
      const std::size_t take = std::min({part.iov_len, bytes.size() - moved, most - moved});
      std::memcpy(part.iov_base, bytes.data() + moved, take);
      moved += take;
    }
    bytes = bytes.subspan(moved);
    if (Status status = reader.commit(moved, handler); !status.ok()) return status;
  }
  return {};
}

}  // namespace divisi::mesh::testing
