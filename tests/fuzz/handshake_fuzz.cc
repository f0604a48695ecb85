// Any bytes as a stranger's greeting, to both roles.
#include "mesh/frame_reader.h"
#include "mesh/handshake.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using namespace divisi;
using namespace divisi::mesh;

void greet(Handshake::Role role, const std::uint8_t* data, std::size_t size) {
  Identity self;
  self.job = "job";
  self.node = 1;
  self.incarnation = 7;
  Handshake handshake(role, self, "secret", [](const Identity&) -> Handshake::Verdict {
    std::abort();  // nobody proves a secret by chance
  });
  if (size < kPreambleBytes) return;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  if (!handshake.on_preamble({bytes, kPreambleBytes}).ok()) return;
  bytes += kPreambleBytes;
  size -= kPreambleBytes;
  FrameReader reader;
  while (size > 0 && handshake.state() == Handshake::State::kRunning) {
    std::size_t taken = 0;
    for (const iovec& part : reader.prepare()) {
      const std::size_t take = std::min(size, part.iov_len);
      std::memcpy(part.iov_base, bytes, take);
      bytes += take;
      size -= take;
      taken += take;
    }
    if (!reader.commit(taken, handshake).ok()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  greet(Handshake::Role::kAcceptor, data, size);
  greet(Handshake::Role::kDialler, data, size);
  return 0;
}
