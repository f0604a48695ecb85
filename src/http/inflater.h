// Inflater: the text of a gzip body, piece by piece, in bounded memory.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct z_stream_s;  // NOLINT(readability-identifier-naming): zlib's

namespace divisi::http {

class Inflater {
 public:
  static constexpr std::size_t kPiece = std::size_t{256} << 10;

  Inflater();

  // Takes from `bytes` what one piece of text (at most kPiece) needs. An empty piece: more
  // bytes are needed, or all are decoded.
  Result<std::string_view> next(std::string& bytes);

  // Whether the text ended where the gzip format says that it does.
  bool complete() const { return complete_; }
  // Whether the last piece was cut at kPiece: next() may have more without more bytes.
  bool full() const { return full_; }

 private:
  struct End {
    void operator()(z_stream_s* stream) const;
  };
  std::unique_ptr<z_stream_s, End> stream_;
  std::string piece_;
  bool complete_ = false;
  bool full_ = false;
};

}  // namespace divisi::http
