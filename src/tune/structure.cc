// Hyper values, and the nested structures that hold them.
#include "base/status.h"
#include "divisi/tune.h"
#include "tune/curved.h"
#include "tune/numbers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace divisi::tune {
namespace {

Result<Value> transformed(const HyperValue::Transform& transform, const Value& value) {
  if (transform.name == "int")
    return Value(static_cast<std::int64_t>(as_number(value).value_or(0)));
  if (transform.name == "exp") {
    // Rounding must not leave the bounds.
    const double low = as_number(transform.operand.at(0)).value_or(0);
    const double high = as_number(transform.operand.at(1)).value_or(0);
    return Value(std::clamp(std::exp(as_number(value).value_or(0)), low, high));
  }
  if (transform.name == "choice") {
    return transform.operand.at(static_cast<std::size_t>(as_number(value).value_or(0)));
  }
  if (is_curved(transform.name)) return curved(transform, as_number(value).value_or(0));
  return transform.operand_first ? apply_binary(transform.name, transform.operand, value)
                                 : apply_binary(transform.name, value, transform.operand);
}

// 2.0 is 2 in the arithmetic, so that whole numbers stay whole.
Value operand_of(double number) {
  const bool whole = std::abs(number) < 9007199254740992.0 && std::floor(number) == number;
  return whole ? Value(static_cast<std::int64_t>(number)) : Value(number);
}

}  // namespace

HyperValue::HyperValue(Space space, std::vector<Transform> transforms)
    : space_(space), transforms_(std::move(transforms)) {}

Value HyperValue::value(double raw) const {
  Value value(raw);
  for (const Transform& transform : transforms_) {
    Result<Value> next = transformed(transform, value);
    if (!next) throw UsageError(next.error().message());
    value = *std::move(next);
  }
  return value;
}

HyperValue HyperValue::then(std::string name, Value operand, bool operand_first) const {
  HyperValue further = *this;
  further.transforms_.push_back({std::move(name), std::move(operand), operand_first});
  return further;
}

HyperValue operator+(const HyperValue& a, double b) {
  return a.then("+", operand_of(b));
}
HyperValue operator+(double a, const HyperValue& b) {
  return b.then("+", operand_of(a), true);
}
HyperValue operator-(const HyperValue& a, double b) {
  return a.then("-", operand_of(b));
}
HyperValue operator-(double a, const HyperValue& b) {
  return b.then("-", operand_of(a), true);
}
HyperValue operator-(const HyperValue& a) {
  return a.then("-", Value(0), true);
}
HyperValue operator*(const HyperValue& a, double b) {
  return a.then("*", operand_of(b));
}
HyperValue operator*(double a, const HyperValue& b) {
  return b.then("*", operand_of(a), true);
}
HyperValue operator/(const HyperValue& a, double b) {
  return a.then("/", operand_of(b));
}
HyperValue operator/(double a, const HyperValue& b) {
  return b.then("/", operand_of(a), true);
}
HyperValue pow(const HyperValue& base, double exponent) {
  return base.then("**", operand_of(exponent));
}
HyperValue pow(double base, const HyperValue& exponent) {
  return exponent.then("**", operand_of(base), true);
}

HyperValue uniform(double lower, double upper) {
  return HyperValue(Space::continuous(lower, upper));
}

HyperValue quniform(double start, double end, double step) {
  return HyperValue(Space::separate(start, end, step));
}

HyperValue randint(double start, double end) {
  const double first = std::ceil(start);
  const double last = std::floor(end);
  if (!(first <= last)) {
    throw UsageError(fmt::format("there is no whole number from {} to {}", start, end));
  }
  return HyperValue(Space::separate(first, last, 1)).then("int");
}

HyperValue choice(Value::Array alternatives) {
  if (alternatives.empty()) throw UsageError("choice: nothing to choose from");
  const auto count = static_cast<std::int64_t>(alternatives.size());
  return HyperValue(Space::fixed(count)).then("choice", Value(std::move(alternatives)));
}

HyperValue loguniform(double lower, double upper) {
  if (!(lower > 0) || !(lower < upper)) {
    throw UsageError(fmt::format(
        "loguniform: the bounds must be positive, the lower one first: not {}, {}", lower, upper));
  }
  return HyperValue(Space::continuous(std::log(lower), std::log(upper)))
      .then("exp", Value(Value::Array{Value(lower), Value(upper)}));
}

struct Structure::Node {
  enum class Kind { kConstant, kHyper, kMap, kList };
  Kind kind = Kind::kConstant;
  Value constant;
  std::optional<HyperValue> hyper = std::nullopt;
  std::vector<Entry> entries;    // of a map, in the order written
  std::vector<Structure> items;  // of a list

  // The places of a map's entries in the order of their keys.
  std::vector<std::size_t> sorted() const {
    std::vector<std::size_t> order(entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return entries[a].first < entries[b].first; });
    return order;
  }

  void flatten(std::vector<HyperValue>& to) const {
    if (hyper) to.push_back(*hyper);
    for (const std::size_t i : sorted()) entries[i].second.node_->flatten(to);
    for (const Structure& item : items) item.node_->flatten(to);
  }

  void name(const std::string& path, std::vector<std::string>& to) const {
    const std::string prefix = path.empty() ? path : path + ".";
    if (hyper) to.push_back(path);
    for (const Entry& entry : entries) entry.second.node_->name(prefix + entry.first, to);
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].node_->name(prefix + std::to_string(i), to);
    }
  }

  void flat_name(const std::string& path, std::vector<std::string>& to) const {
    const std::string prefix = path.empty() ? path : path + ".";
    if (hyper) to.push_back(path);
    for (const std::size_t i : sorted()) {
      entries[i].second.node_->flat_name(prefix + entries[i].first, to);
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].node_->flat_name(prefix + std::to_string(i), to);
    }
  }

  void collect(const Value& from, std::vector<Value>& to) const {
    if (hyper) to.push_back(from);
    const auto* map = from.get_if<Value::Map>();
    for (const Entry& entry : entries) {
      Value found;
      for (std::size_t i = 0; map != nullptr && i < map->size(); ++i) {
        if ((*map)[i].first == Value(entry.first)) found = (*map)[i].second;
      }
      entry.second.node_->collect(found, to);
    }
    const auto* list = from.get_if<Value::Array>();
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].node_->collect(list != nullptr && i < list->size() ? (*list)[i] : Value(), to);
    }
  }

  Value build(const std::vector<double>& raw, std::size_t& next) const {
    switch (kind) {
      case Kind::kConstant: return constant;
      case Kind::kHyper: return hyper->value(raw[next++]);
      case Kind::kList: {
        Value::Array list;
        for (const Structure& item : items) list.push_back(item.node_->build(raw, next));
        return Value(std::move(list));
      }
      case Kind::kMap: break;
    }
    Value::Map map;
    for (const std::size_t i : sorted()) {
      map.emplace_back(Value(entries[i].first), entries[i].second.node_->build(raw, next));
    }
    return Value(std::move(map));
  }
};

Structure::Structure(std::unique_ptr<Node> node) : node_(std::move(node)) {}
Structure::Structure(HyperValue value) : node_(std::make_unique<Node>()) {
  node_->kind = Node::Kind::kHyper;
  node_->hyper = std::move(value);
}
Structure::Structure(Value constant) : node_(std::make_unique<Node>()) {
  node_->constant = std::move(constant);
}
Structure::Structure(std::initializer_list<Entry> entries)
    : Structure(map(std::vector<Entry>(entries))) {}
Structure::Structure(const Structure& other) : node_(std::make_unique<Node>(*other.node_)) {}
Structure& Structure::operator=(const Structure& other) {
  if (this != &other) node_ = std::make_unique<Node>(*other.node_);
  return *this;
}
Structure::Structure(Structure&&) noexcept = default;
Structure& Structure::operator=(Structure&&) noexcept = default;
Structure::~Structure() = default;

Structure Structure::map(std::vector<Entry> entries) {
  auto node = std::make_unique<Node>();
  node->kind = Node::Kind::kMap;
  node->entries = std::move(entries);
  const std::vector<std::size_t> order = node->sorted();
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::string& name = node->entries[order[i]].first;
    if (name == node->entries[order[i - 1]].first) {
      throw UsageError(fmt::format("a search structure has the key '{}' twice", name));
    }
  }
  return Structure(std::move(node));
}

Structure Structure::list(std::vector<Structure> items) {
  auto node = std::make_unique<Node>();
  node->kind = Node::Kind::kList;
  node->items = std::move(items);
  return Structure(std::move(node));
}

std::vector<HyperValue> Structure::flatten() const {
  std::vector<HyperValue> values;
  node_->flatten(values);
  return values;
}

std::vector<std::string> Structure::names() const {
  std::vector<std::string> names;
  node_->name("", names);
  return names;
}

std::vector<std::string> Structure::flat_names() const {
  std::vector<std::string> names;
  node_->flat_name("", names);
  return names;
}

Value Structure::config(const std::vector<double>& raw) const {
  const std::size_t wanted = flatten().size();
  if (raw.size() != wanted) {
    throw UsageError(fmt::format("{} values for {} hyper values", raw.size(), wanted));
  }
  std::size_t next = 0;
  return node_->build(raw, next);
}

std::vector<Value> Structure::variables(const Value& config) const {
  std::vector<Value> values;
  node_->collect(config, values);
  return values;
}

}  // namespace divisi::tune
