// Any bytes as the payload of an event: every reader either succeeds or throws PayloadError, and
// what it read can be written and read again.
#include "divisi/payload.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace divisi {

struct FuzzedNode {
  std::int16_t id = 0;
  std::optional<std::string> label;
  std::vector<FuzzedNode> children;
  std::map<std::int8_t, std::vector<float>> series;
};
DIVISI_FIELDS(FuzzedNode, id, label, children, series)

namespace {

template <class... T>
void read_as(const PayloadView& view) {
  try {
    unpack_args<T...>(view);
  } catch (const PayloadError&) {
  }
}

void read_any_twice(const PayloadView& view) {
  Args args;
  try {
    args = unpack_any(view);
  } catch (const PayloadError&) {
    return;
  }
  PackScratch scratch;
  const Payload again = Payload::copy_of(pack_args(scratch, args));
  PackScratch second;
  const Payload twice = Payload::copy_of(pack_args(second, unpack_any(again.view())));
  // By bytes, not by value: a NaN is not equal to itself.
  if (again.body.text() != twice.body.text()) std::abort();
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi;
  if (size < 1) return 0;
  // The first byte chooses codec, keyword arguments, an owned or a borrowed body, extra buffers.
  const std::uint8_t choice = data[0];
  const std::span<const std::byte> body(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  const std::array<Buffer, 2> extra = {Buffer::copy_of(std::string_view("extra")), Buffer(16)};
  PayloadView view;
  view.codec = static_cast<Codec>(choice & 3);
  view.has_kwargs = (choice & 4) != 0;
  if ((choice & 8) != 0) view.buffers = extra;
  view.body = body;
  if ((choice & 16) != 0) {
    view.owner = Buffer::copy_of(body);
    view.body = view.owner.bytes();
  }
  read_any_twice(view);
  read_as<FuzzedNode>(view);
  read_as<std::string_view, std::span<const std::byte>>(view);
  read_as<Buffer, Tensor>(view);
  read_as<std::tuple<bool, char, double>, std::array<std::uint64_t, 2>>(view);
  read_as<std::map<std::string, Value>>(view);
  return 0;
}
