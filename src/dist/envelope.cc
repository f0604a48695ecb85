#include "dist/envelope.h"

#include "base/log.h"
#include "dist/token.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace divisi::dist {
namespace {

constexpr std::size_t kShownText = 200;

http::Response envelope(int http_status, int code, std::string_view message, json::Value data) {
  json::Object body;
  body.reserve(4);
  body.emplace_back("success", code == 0);
  body.emplace_back("code", code);
  body.emplace_back("message", std::string(message));
  body.emplace_back("data", std::move(data));
  return {http_status,
          {{"Content-Type", "application/json"}},
          json::print(json::Value(std::move(body))) + "\n"};
}

// The length of the word at the start of the text that stands for a number that is not finite.
std::size_t word_length(std::string_view text) {
  for (const std::string_view word : {"Infinity", "-Infinity", "NaN"}) {
    if (text.starts_with(word)) return word.size();
  }
  return 0;
}

// Python writes numbers that are not finite as words, which are not JSON: null in their place.
std::string without_words(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  bool quoted = false;
  while (!text.empty()) {
    const std::size_t word = quoted ? 0 : word_length(text);
    const bool escape = quoted && text.front() == '\\';
    if (text.front() == '"') quoted = !quoted;
    const std::size_t used = std::min(text.size(), word > 0 ? word : escape ? 2 : std::size_t{1});
    plain += word > 0 ? std::string_view("null") : text.substr(0, used);
    text.remove_prefix(used);
  }
  return plain;
}

Result<json::Value> read_json(std::string_view text) {
  const auto read = [](std::string_view what) {
    return json::parse(what, {.max_bytes = what.size() + 1, .max_depth = 64});
  };
  auto value = read(text);
  const bool has_words =
      text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
  return value || !has_words ? std::move(value) : read(without_words(text));
}

std::string shortened(std::string_view text) {
  return log::printable(std::string(text.substr(0, kShownText)));
}

}  // namespace

http::Response success(std::string_view message, json::Value data) {
  return envelope(200, 0, message, std::move(data));
}

http::Response refused(int http_status, ReplyCode code, std::string_view message) {
  return envelope(http_status, static_cast<int>(code), message, {});
}

http::Response failed(int http_status, std::string_view message) {
  return envelope(http_status, 1, message, {});
}

Result<json::Value> read_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return json::Object{};
  return read_json(body);
}

std::optional<http::Response> check_channel(const http::Request& request, int channel) {
  const std::string_view text = request.headers.get(kChannelHeader);
  if (text.empty()) {
    return refused(400, ReplyCode::kNoChannel, "Channel not found in the headers.");
  }
  int given = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, given);
  if (error != std::errc() || end != last || given != channel) {
    return refused(403, ReplyCode::kWrongChannel, "Channel does not match.");
  }
  return std::nullopt;
}

std::optional<http::Response> check_self_token(const http::Request& request,
                                               std::string_view token) {
  const std::string_view given = request.headers.get(kTokenHeader);
  if (given.empty()) {
    return refused(400, ReplyCode::kNoSelfToken, "Token of this process not found in the headers.");
  }
  if (!same_token(given, token)) {
    return refused(403, ReplyCode::kWrongSelfToken, "Token of this process does not match.");
  }
  return std::nullopt;
}

std::string PeerReply::text() const {
  if (code < 0) return fmt::format("HTTP {}: {}", http, shortened(message));
  return fmt::format("HTTP {}, code {}: {}", http, code, shortened(message));
}

PeerReply read_reply(const http::Response& response) {
  PeerReply reply{.http = response.status};
  auto body = read_json(response.body);
  if (!body || body->as_object() == nullptr) {
    reply.message = body ? "the answer is no object" : shortened(response.body);
    return reply;
  }
  reply.success = body->bool_at({"success"}).value_or(false) && response.status / 100 == 2;
  reply.message = body->string_at({"message"});
  const auto code = body->int_at({"code"});
  if (code && *code >= 0 && *code < 100'000) reply.code = static_cast<int>(*code);
  if (json::Value* data = body->find("data")) reply.data = std::move(*data);
  return reply;
}

}  // namespace divisi::dist
