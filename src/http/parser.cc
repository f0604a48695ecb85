#include "http/parser.h"

// Nothing but the head parser; its assertions hold for whatever a whole head contains.
#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace divisi::http {

namespace {

namespace beast = boost::beast;

// Tells a Request or a ResponseHead what Beast finds in a complete head.
template <bool kIsRequest>
class HeadReader final : public beast::http::basic_parser<kIsRequest> {
 public:
  using Message = std::conditional_t<kIsRequest, Request, ResponseHead>;
  explicit HeadReader(Message& message) : message_(message) {}

  int version() const { return version_; }

 private:
  using Text = beast::string_view;
  using Error = beast::error_code;

  void on_request_impl(beast::http::verb, Text method, Text target, int version, Error&) override {
    if constexpr (kIsRequest) {
      message_.method = std::string(method);
      message_.target = std::string(target);
    }
    version_ = version;
  }
  void on_response_impl(int status, Text reason, int version, Error&) override {
    if constexpr (!kIsRequest) {
      message_.status = status;
      message_.reason = std::string(reason);
    }
    version_ = version;
  }
  void on_field_impl(beast::http::field, Text name, Text value, Error&) override {
    message_.headers.add(std::string(name), std::string(value));
  }
  void on_header_impl(Error&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Error&) override {}
  std::size_t on_body_impl(Text, Error&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, Text, Error&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text, Error&) override { return 0; }
  void on_finish_impl(Error&) override {}

  Message& message_;
  int version_ = 11;
};

std::size_t count(const Headers& headers, std::string_view name) {
  std::size_t found = 0;
  for (const auto& field : headers) found += same_name(field.first, name) ? 1 : 0;
  return found;
}

std::string describe(const beast::error_code& problem) {
  using beast::http::error;
  if (problem == error::bad_content_length)
    return "a Content-Length that is no number, or not alone";
  if (problem == error::multiple_content_length) return "two different Content-Lengths";
  if (problem == error::bad_transfer_encoding) return "two ways to say how long the body is";
  if (problem == error::bad_line_ending) return "a line that does not end with CRLF";
  if (problem == error::bad_version) return "not HTTP/1.0 or HTTP/1.1";
  if (problem == error::bad_method) return "a method that is no word";
  if (problem == error::bad_target) return "a request target with forbidden characters";
  if (problem == error::bad_status) return "a status that is no number";
  if (problem == error::bad_field) return "a header name with forbidden characters";
  if (problem == error::bad_value) return "a header value with forbidden characters";
  return problem.message();
}

}  // namespace

tl::expected<std::size_t, ParseError> Parser::feed(std::string_view bytes, std::string& body) {
  std::size_t used = 0;
  if (!has_head_) {
    auto head = feed_head(bytes);
    if (!head || !has_head_) return head;
    used = *head;
  }
  const std::size_t before = body.size();
  used += framing_.feed(bytes.substr(used), body);
  body_bytes_ += body.size() - before;
  // Too much comes before wrong, as it came: then the pieces it came in make no difference.
  if (body_bytes_ > limits_.max_body_bytes) {
    return tl::unexpected(
        error(413, fmt::format("a body of more than {} bytes", limits_.max_body_bytes)));
  }
  if (framing_.error() != nullptr) return tl::unexpected(error(400, framing_.error()));
  return used;
}

tl::expected<std::size_t, ParseError> Parser::feed_head(std::string_view bytes) {
  auto size = find_head(bytes);
  if (!size || *size == 0) return size;
  if (auto problem = read_head(bytes.substr(0, *size))) return tl::unexpected(*std::move(problem));
  has_head_ = true;
  return size;
}

std::optional<ParseError> Parser::end() {
  if (done()) return std::nullopt;
  if (!has_head_) return error(400, "the connection ended inside the head");
  if (framing_.to_the_end()) {
    framing_ = BodyFraming::none();
    return std::nullopt;
  }
  if (framing_.inside_chunks()) return error(400, "the connection ended inside a chunked body");
  return error(400, fmt::format("the connection ended {} bytes before the end of the body",
                                framing_.left()));
}

tl::expected<std::size_t, ParseError> Parser::find_head(std::string_view bytes) {
  constexpr std::string_view kVersion = "HTTP/1.";
  const auto start = bytes.substr(0, kVersion.size());
  if (kind_ == Kind::kResponse && !kVersion.starts_with(start)) {
    return tl::unexpected(error(400, "the answer is not HTTP/1"));
  }
  if (kind_ == Kind::kRequest && !bytes.empty() && (bytes[0] <= ' ' || bytes[0] >= 127)) {
    return tl::unexpected(error(400, "not the start of a request"));
  }
  const std::size_t end = std::min(bytes.size(), limits_.max_header_bytes);
  for (; scanned_ < end; ++scanned_) {
    const std::size_t i = scanned_;
    if (i == 0) continue;
    const char c = bytes[i];
    if (bytes[i - 1] == '\n' && (c == ' ' || c == '\t')) {
      return tl::unexpected(error(400, "a header that goes on in the next line"));
    }
    if (c != '\n') continue;
    if (bytes[i - 1] != '\r') return tl::unexpected(error(400, "a line that ends without CR"));
    if (i >= 3 && bytes[i - 2] == '\n') return ++scanned_;
  }
  if (bytes.size() < limits_.max_header_bytes) return 0;
  return tl::unexpected(
      error(431, fmt::format("a head of more than {} bytes", limits_.max_header_bytes)));
}

std::optional<ParseError> Parser::read_head(std::string_view head) {
  return kind_ == Kind::kRequest ? read_head_as<true>(head) : read_head_as<false>(head);
}

template <bool kIsRequest>
std::optional<ParseError> Parser::read_head_as(std::string_view head) {
  auto& message = [this]() -> auto& {
    if constexpr (kIsRequest) {
      return request_;
    } else {
      return response_;
    }
  }();
  HeadReader<kIsRequest> reader(message);
  reader.body_limit(boost::none);
  reader.header_limit(
      static_cast<std::uint32_t>(std::min<std::size_t>(head.size() + 1, UINT32_MAX)));
  if (no_body_) reader.skip(true);
  beast::error_code problem;
  const std::size_t used = reader.put({head.data(), head.size()}, problem);
  if (problem == beast::http::error::bad_version && kIsRequest) {
    return error(505, describe(problem));
  }
  if (problem) return error(400, describe(problem));
  if (used != head.size() || !reader.is_header_done()) return error(400, "a head that ends early");
  http_1_0_ = reader.version() == 10;

  const bool encoded = message.headers.has("Transfer-Encoding");
  if (encoded &&
      (!reader.chunked() || http_1_0_ || count(message.headers, "Transfer-Encoding") > 1 ||
       !same_name(message.headers.get("Transfer-Encoding"), "chunked"))) {
    return error(kIsRequest ? 501 : 400, "a Transfer-Encoding other than chunked");
  }
  if constexpr (kIsRequest) {
    if (auto wrong = check_request()) return wrong;
  }
  keeps_alive_ = reader.keep_alive();
  if (reader.is_done()) {
    framing_ = BodyFraming::none();
  } else if (reader.chunked()) {
    framing_ = BodyFraming::chunked(limits_.max_header_bytes);
  } else if (const auto size = reader.content_length()) {
    if (*size > limits_.max_body_bytes) {
      return error(413, fmt::format("a body of {} bytes, more than the allowed {}", *size,
                                    limits_.max_body_bytes));
    }
    framing_ = BodyFraming::sized(*size);
  } else {
    framing_ = BodyFraming::until_end();
    keeps_alive_ = false;
  }
  has_body_ = !framing_.done();
  return std::nullopt;
}

std::optional<ParseError> Parser::check_request() const {
  const std::size_t hosts = count(request_.headers, "Host");
  if (hosts > 1 || (hosts == 0 && !http_1_0_)) return error(400, "not exactly one Host");
  return std::nullopt;
}

}  // namespace divisi::http
