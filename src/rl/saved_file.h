// Files that survive kill -9 and tell when they were damaged: checkpoints.
//
//   save_file(path, "replay", totals, buffer);                    // the old file, or all of the
//   new auto saved = load_file<Totals, Buffer>(path, "replay");       // nothing when there is no
//   file
//
//   0        8      "DIVISI01"
//   8        4      length of the kind, k
//   12       k      the kind
//   12+k     8      length of the body, b
//   20+k     4      number of buffers beside it, n
//   24+k     8 n    their lengths
//   .        b      the body: the values as MessagePack (packer.h)
//   .        .      the buffers
//   end-4    4      CRC-32 of all before
//
// All numbers little-endian.
#pragma once

#include "divisi/payload.h"

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace divisi::rl {

// Throws Error naming the path: a full disk, a folder that cannot be written to. The old file is
// still there then.
void save_payload(const std::string& path, std::string_view kind, const PayloadView& payload);
// The same into a file that the caller puts into its place, as ckpt_saver does.
void write_payload(const std::string& path, std::string_view kind, const PayloadView& payload);

// Nothing when there is no such file. Throws UsageError for one that is truncated, damaged or of
// another kind.
std::optional<Payload> load_payload(const std::string& path, std::string_view kind);

template <class... A>
void save_file(const std::string& path, std::string_view kind, const A&... values) {
  PackScratch scratch;
  save_payload(path, kind, pack_args(scratch, values...));
}

template <class... A>
void write_file(const std::string& path, std::string_view kind, const A&... values) {
  PackScratch scratch;
  write_payload(path, kind, pack_args(scratch, values...));
}

template <class... T>
std::optional<std::tuple<T...>> load_file(const std::string& path, std::string_view kind) {
  const std::optional<Payload> payload = load_payload(path, kind);
  if (!payload) return std::nullopt;
  try {
    return unpack_args<T...>(payload->view());
  } catch (const PayloadError& error) {
    throw UsageError(path + ": written by another version: " + error.what());
  }
}

}  // namespace divisi::rl
