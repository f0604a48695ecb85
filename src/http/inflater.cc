#include "http/inflater.h"

#include <zlib.h>

namespace divisi::http {

namespace {
constexpr int kGzipOnly = 16 + MAX_WBITS;
}  // namespace

void Inflater::End::operator()(z_stream_s* stream) const {
  ::inflateEnd(stream);
  delete stream;  // NOLINT(cppcoreguidelines-owning-memory): the unique_ptr's
}

Inflater::Inflater() : stream_(new z_stream{}) {
  DIVISI_CHECK(::inflateInit2(stream_.get(), kGzipOnly) == Z_OK, "zlib has memory to start");
}

Result<std::string_view> Inflater::next(std::string& bytes) {
  if (bytes.empty() && !full_) return std::string_view();
  if (complete_) {  // a second member may follow the first
    ::inflateReset(stream_.get());
    complete_ = false;
  }
  piece_.resize(kPiece);
  stream_->next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream_->avail_in = static_cast<uInt>(bytes.size());
  stream_->next_out = reinterpret_cast<Bytef*>(piece_.data());
  stream_->avail_out = static_cast<uInt>(piece_.size());
  const int result = ::inflate(stream_.get(), Z_NO_FLUSH);
  bytes.erase(0, bytes.size() - stream_->avail_in);
  full_ = stream_->avail_out == 0;
  if (result == Z_STREAM_END) {
    full_ = false;
    complete_ = true;
  } else if (result != Z_OK && result != Z_BUF_ERROR) {
    return failure(Code::kUnavailable, "the gzip body is damaged");
  }
  return std::string_view(piece_.data(), piece_.size() - stream_->avail_out);
}

}  // namespace divisi::http
