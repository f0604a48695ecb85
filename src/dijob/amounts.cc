#include "dijob/amounts.h"

#include "dijob/pod_template.h"

#include <algorithm>

namespace divisi::dijob {

Result<json::Quantity> read_amount(const json::Value& value) {
  if (const std::string* text = value.as_string()) return json::Quantity::parse(*text);
  if (const std::int64_t* whole = value.as_int()) return json::Quantity(*whole);
  if (value.as_double() != nullptr) return json::Quantity::parse(json::print(value));
  return failure(Code::kInvalid, "a quantity must be a string or a number");
}

Amounts read_amounts(const json::Value* map) {
  Amounts amounts;
  if (map == nullptr || map->as_object() == nullptr) return amounts;
  for (const auto& [name, value] : *map->as_object()) {
    if (const Result<json::Quantity> amount = read_amount(value)) amounts.emplace(name, *amount);
  }
  return amounts;
}

void add(Amounts& to, const Amounts& more) {
  for (const auto& [name, amount] : more) to[name] += amount;
}

void subtract(Amounts& from, const Amounts& less) {
  for (const auto& [name, amount] : less) from[name] -= amount;
}

void raise(Amounts& to, const Amounts& least) {
  for (const auto& [name, amount] : least) to[name] = std::max(to[name], amount);
}

bool fits(const Amounts& needs, const Amounts& free) noexcept {
  return std::ranges::all_of(needs, [&](const auto& need) {
    if (need.second.sign() <= 0) return true;
    const auto found = free.find(need.first);
    return found != free.end() && need.second <= found->second;
  });
}

double dominant_share(const Amounts& needs, const Amounts& total) {
  double share = 0;
  for (const auto& [name, amount] : needs) {
    const auto all = total.find(name);
    const double whole = all == total.end() ? 0 : all->second.to_double();
    if (whole > 0) share = std::max(share, amount.to_double() / whole);
  }
  return share;
}

std::string text_of(const Amounts& amounts, const Amounts& names) {
  std::string text;
  for (const auto& [name, unused] : names) {
    const auto found = amounts.find(name);
    text += text.empty() ? "" : ", ";
    text += fmt::format("{} {}", name, found == amounts.end() ? "0" : found->second.to_string());
  }
  return text;
}

Amounts container_requests(const json::Value& container) {
  Amounts requests = read_amounts(container.find_path({"resources", "requests"}));
  requests.merge(read_amounts(container.find_path({"resources", "limits"})));
  return requests;
}

Amounts pod_requests(const json::Value& pod_spec) {
  Amounts together;  // sidecars, which run beside whatever comes after them
  Amounts most;
  for (const json::Value& container : elements(pod_spec, "initContainers")) {
    Amounts now = container_requests(container);
    add(now, together);
    raise(most, now);
    if (container.string_at({"restartPolicy"}) == "Always") together = std::move(now);
  }
  for (const json::Value& container : elements(pod_spec, "containers")) {
    add(together, container_requests(container));
  }
  raise(together, most);
  add(together, read_amounts(pod_spec.find("overhead")));
  return together;
}

}  // namespace divisi::dijob
