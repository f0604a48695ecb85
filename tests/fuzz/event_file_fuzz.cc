// Event files: any bytes, in pieces that the first byte says.
#include "runtime/event_file.h"
#include "runtime/event_parser.h"

#include <cstdint>
#include <string_view>

namespace {

void feed_all(std::string_view bytes, std::size_t piece) {
  divisi::runtime::EventParser parser;
  std::vector<divisi::Scalar> found;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!parser.feed(bytes.substr(at, piece), found).ok()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::size_t piece = std::size_t{data[0]} + 1;
  feed_all(bytes, piece);
  // The fuzzer finds no checksums: a record that has the right ones.
  feed_all(divisi::runtime::tf_record(bytes), piece);
  return 0;
}
