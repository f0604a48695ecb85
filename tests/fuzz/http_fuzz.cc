// Any bytes as requests and as answers: whatever the pieces they come in, the result is the same.
#include "http/parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace divisi::http;

constexpr Limits kLimits{.max_header_bytes = 2048, .max_body_bytes = 4096};

// All that comes of the bytes, message after message, as one text.
std::string outcome(Parser::Kind kind, std::string_view bytes, std::size_t piece, bool no_body) {
  std::string seen;
  std::string held;
  std::string body;
  while (true) {
    Parser parser(kind, kLimits);
    if (no_body) parser.expect_no_body();
    body.clear();
    for (bool fed = false; !parser.done(); fed = true) {
      if (fed || held.empty()) {
        if (bytes.empty()) {
          if (const auto wrong = parser.end()) return seen + "end " + wrong->text;
          break;
        }
        const auto next = bytes.substr(0, piece);
        bytes.remove_prefix(next.size());
        held += next;
      }
      const auto used = parser.feed(held, body);
      if (!used) return seen + std::to_string(used.error().status) + used.error().text;
      if (*used > held.size()) std::abort();
      held.erase(0, *used);
    }
    seen += kind == Parser::Kind::kRequest ? parser.request().method + parser.request().target
                                           : std::to_string(parser.response().status);
    const Headers& headers =
        kind == Parser::Kind::kRequest ? parser.request().headers : parser.response().headers;
    for (const auto& [name, value] : headers) seen += '\n' + name + '=' + value;
    seen += "\n\n" + body + (parser.keeps_alive() ? "+" : "-");
    if (bytes.empty() && held.empty()) return seen;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto kind = (data[0] & 1) != 0 ? Parser::Kind::kRequest : Parser::Kind::kResponse;
  const bool no_body = (data[0] & 2) != 0;
  const std::size_t piece = std::max<std::size_t>(data[1], 1);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (bytes.empty()) return 0;
  const auto whole = outcome(kind, bytes, bytes.size(), no_body);
  if (outcome(kind, bytes, piece, no_body) != whole) std::abort();
  return 0;
}
