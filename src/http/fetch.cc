// Client::fetch: the whole answer as one value.
#include "http/client.h"

#include <charconv>
#include <utility>

namespace divisi::http {

namespace {

class Collector final : public ResponseHandler {
 public:
  Collector(std::size_t limit, std::function<void(Result<Response>)> on_done)
      : limit_(limit), on_done_(std::move(on_done)) {}

  void on_head(ResponseHead head) override {
    response_.status = head.status;
    response_.headers = std::move(head.headers);
    const auto length = response_.headers.get("Content-Length");
    std::uint64_t announced = 0;
    std::from_chars(length.data(), length.data() + length.size(), announced);
    too_large_ = announced > limit_;
  }

  bool on_body(std::string_view piece) override {
    too_large_ = too_large_ || piece.size() > limit_ - response_.body.size();
    if (!too_large_) response_.body.append(piece);
    return !too_large_;
  }

  void on_done(Status status) override {
    const auto run = std::exchange(on_done_, nullptr);
    if (status.ok()) return run(std::move(response_));
    if (!too_large_ || status.code() != Code::kCancelled) return run(failure(std::move(status)));
    // "GET https://…: given up by the caller": the name of the call is worth keeping.
    const auto& text = status.message();
    run(failure(Code::kUnavailable, "{}: the answer has more than {} bytes",
                text.substr(0, text.rfind(": ")), limit_));
  }

 private:
  const std::size_t limit_;
  std::function<void(Result<Response>)> on_done_;
  Response response_;
  bool too_large_ = false;
};

}  // namespace

std::unique_ptr<Call> Client::fetch(Request request, CallOptions options,
                                    std::function<void(Result<Response>)> on_done) {
  auto collector = std::make_shared<Collector>(options.limits.max_body_bytes, std::move(on_done));
  return send(std::move(request), options, std::move(collector));
}

}  // namespace divisi::http
