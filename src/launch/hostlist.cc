#include "launch/hostlist.h"

#include "launch/text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>

namespace divisi::launch {
namespace {

constexpr std::size_t kMaxDigits = 18;  // fits in 64 bits whatever the digits are
constexpr std::size_t kMaxListText = 1 << 20;

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status too_many() {
  return make_status(Code::kInvalid, "host list names more than {} hosts", kMaxHosts);
}

// One item between brackets: "7", "08-10". Appends its numbers as text.
Status append_range(std::string_view item, std::vector<std::string>& out) {
  const std::size_t dash = item.find('-');
  const std::string_view low_text = item.substr(0, dash);
  const std::string_view high_text =
      dash == std::string_view::npos ? low_text : item.substr(dash + 1);
  const auto low = parse_digits(low_text);
  const auto high = parse_digits(high_text);
  if (!low || !high) {
    return make_status(Code::kInvalid,
                       "host list: '{}' between brackets is not a number or a range",
                       item.substr(0, 40));
  }
  if (*low > *high) {
    return make_status(Code::kInvalid, "host list: the range '{}' runs backwards", item);
  }
  if (*high - *low >= kMaxHosts - std::min(out.size(), kMaxHosts)) return too_many();
  for (std::uint64_t number = *low; number <= *high; ++number) {
    out.push_back(fmt::format("{:0{}}", number, low_text.size()));
  }
  return {};
}

// The text between one pair of brackets.
Result<std::vector<std::string>> expand_group(std::string_view group) {
  std::vector<std::string> numbers;
  while (true) {
    const std::size_t comma = group.find(',');
    if (const Status status = append_range(trimmed(group.substr(0, comma)), numbers);
        !status.ok()) {
      return failure(status);
    }
    if (comma == std::string_view::npos) return numbers;
    group.remove_prefix(comma + 1);
  }
}

// Every name so far, continued by every suffix.
Result<std::vector<std::string>> multiply(const std::vector<std::string>& prefixes,
                                          const std::vector<std::string>& suffixes) {
  if (prefixes.size() * suffixes.size() > kMaxHosts) return failure(too_many());
  std::vector<std::string> out;
  out.reserve(prefixes.size() * suffixes.size());
  for (const std::string& prefix : prefixes) {
    for (const std::string& suffix : suffixes) out.push_back(prefix + suffix);
  }
  return out;
}

// One name of the list with its bracket groups: "rack[1-2]n[08-10]".
Result<std::vector<std::string>> expand_name(std::string_view name) {
  std::vector<std::string> out{""};
  while (!name.empty()) {
    const std::size_t open = std::min(name.find('['), name.size());
    const std::string_view literal = name.substr(0, open);
    if (literal.find(']') != std::string_view::npos) {
      return failure(Code::kInvalid, "host list: ']' without '['");
    }
    for (std::string& host : out) host += literal;
    name.remove_prefix(open);
    if (name.empty()) break;
    const std::size_t close = name.find(']');
    if (close == std::string_view::npos) {
      return failure(Code::kInvalid, "host list: '[' without ']'");
    }
    DIVISI_TRY(const auto numbers, expand_group(name.substr(1, close - 1)));
    DIVISI_TRY(out, multiply(out, numbers));
    name.remove_prefix(close + 1);
  }
  for (const std::string& host : out) {
    if (const Status status = check_host(host, "host list"); !status.ok()) return failure(status);
  }
  return out;
}

// The end of the first name: the next comma outside brackets.
std::size_t name_end(std::string_view text) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return text.size();
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text) {
  if (text.size() > kMaxListText) {
    return failure(Code::kInvalid, "host list of {} bytes is longer than {}", text.size(),
                   kMaxListText);
  }
  std::vector<std::string> hosts;
  while (true) {
    const std::size_t end = name_end(text);
    const std::string_view name = trimmed(text.substr(0, end));
    if (name.empty()) return failure(Code::kInvalid, "host list: a host name is empty");
    DIVISI_TRY(auto names, expand_name(name));
    if (hosts.size() + names.size() > kMaxHosts) return failure(too_many());
    std::ranges::move(names, std::back_inserter(hosts));
    if (end == text.size()) return hosts;
    text.remove_prefix(end + 1);
  }
}

Result<std::vector<int>> expand_task_counts(std::string_view text) {
  constexpr int kMost = static_cast<int>(kMaxHosts);
  std::vector<int> counts;
  for (const std::string& part : split_list(text)) {
    const std::string_view item = part;
    const std::size_t open = item.find("(x");
    DIVISI_TRY(const int tasks, parse_int(item.substr(0, open), 0, kMost, "tasks of a host"));
    int repeat = 1;
    if (open != std::string_view::npos) {
      if (item.back() != ')') {
        return failure(Code::kInvalid, "tasks per host: '{}' is not of the form 2(x3)",
                       item.substr(0, 40));
      }
      const std::string_view times = item.substr(open + 2, item.size() - open - 3);
      DIVISI_TRY(repeat, parse_int(times, 1, kMost, "repeat count of tasks per host"));
    }
    if (counts.size() + static_cast<std::size_t>(repeat) > kMaxHosts) return failure(too_many());
    counts.insert(counts.end(), static_cast<std::size_t>(repeat), tasks);
  }
  if (counts.empty()) return failure(Code::kInvalid, "tasks per host: the list is empty");
  return counts;
}

}  // namespace divisi::launch
