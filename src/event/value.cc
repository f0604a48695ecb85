#include "divisi/value.h"

#include "base/status.h"
#include "divisi/packer.h"

namespace divisi {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

std::size_t Value::size() const {
  if (const auto* array = get_if<Array>()) return array->size();
  if (const Map* map = get_if<Map>()) return map->size();
  throw UsageError(fmt::format("{} has no elements", describe()));
}

const Value& Value::at(std::size_t index) const {
  const auto* array = get_if<Array>();
  if (array == nullptr) throw UsageError(fmt::format("{} is no list", describe()));
  if (index >= array->size()) {
    throw UsageError(fmt::format("element {} of a {}", index, describe()));
  }
  return (*array)[index];
}

const Value& Value::at(std::string_view key) const {
  const Map* map = get_if<Map>();
  if (map == nullptr) throw UsageError(fmt::format("{} is no map", describe()));
  for (const auto& [name, value] : *map) {
    const auto* text = name.get_if<std::string>();
    if (text != nullptr && *text == key) return value;
  }
  throw UsageError(fmt::format("the map has no key \"{}\"", key));
}

std::string Value::describe() const {
  return std::visit(
      Overloaded{
          [](std::monostate) -> std::string { return "nil"; },
          [](bool value) -> std::string { return value ? "bool true" : "bool false"; },
          [](std::int64_t value) { return fmt::format("integer {}", value); },
          [](std::uint64_t value) { return fmt::format("integer {}", value); },
          [](double value) { return fmt::format("float {}", value); },
          [](const std::string&) -> std::string { return "string"; },
          [](const Buffer& value) { return fmt::format("{} bytes", value.size()); },
          [](const Array& value) { return fmt::format("list of {}", value.size()); },
          [](const Map& value) { return fmt::format("map of {}", value.size()); },
          [](const Tensor&) -> std::string { return "tensor"; },
      },
      storage_);
}

bool Value::operator==(const Value& other) const {
  if (storage_.index() == other.storage_.index()) {
    if (const auto* bytes = get_if<Buffer>()) {
      return bytes->text() == other.get_if<Buffer>()->text();
    }
    return std::visit(
        [&](const auto& value) {
          using T = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<T, Buffer>) {
            return false;
          } else {
            return value == *std::get_if<T>(&other.storage_);
          }
        },
        storage_);
  }
  // Signed and unsigned forms never hold the same number (see the constructor); a float may.
  const auto same = [](double real, const Value& integer) {
    if (const auto* value = integer.get_if<std::int64_t>()) {
      return real >= -0x1p63 && real < 0x1p63 && static_cast<std::int64_t>(real) == *value &&
             static_cast<double>(*value) == real;
    }
    if (const auto* value = integer.get_if<std::uint64_t>()) {
      return real >= 0 && real < 0x1p64 && static_cast<std::uint64_t>(real) == *value &&
             static_cast<double>(*value) == real;
    }
    return false;
  };
  if (const auto* real = get_if<double>()) return same(*real, other);
  if (const auto* real = other.get_if<double>()) return same(*real, *this);
  return false;
}

void Value::pack(Packer& packer) const {
  std::visit(Overloaded{
                 [&](std::monostate) { packer.nil(); },
                 [&](bool value) { packer.boolean(value); },
                 [&](std::int64_t value) { packer.integer(value); },
                 [&](std::uint64_t value) { packer.unsigned_integer(value); },
                 [&](double value) { packer.real(value); },
                 [&](const std::string& value) { packer.text(value); },
                 [&](const Buffer& value) { packer.buffer(value); },
                 [&](const Array& value) {
                   packer.array(value.size());
                   for (const Value& element : value) element.pack(packer);
                 },
                 [&](const Map& value) {
                   packer.map(value.size());
                   for (const auto& [key, mapped] : value) {
                     key.pack(packer);
                     mapped.pack(packer);
                   }
                 },
                 [&](const Tensor& value) { packer.tensor(value); },
             },
             storage_);
}

Value Value::unpack(Unpacker& unpacker) {
  using Kind = Unpacker::Kind;
  switch (unpacker.kind()) {
    case Kind::kNil: unpacker.nil(); return {};
    case Kind::kBool: return unpacker.boolean();
    case Kind::kInteger: {
      const Number number = unpacker.number("integer");
      if (number.kind == Number::Kind::kSigned) return number.as_signed;
      return number.as_unsigned;
    }
    case Kind::kReal: return unpacker.number("float").as_real;
    case Kind::kText: return unpacker.text();
    case Kind::kBytes:
    case Kind::kBuffer: return unpacker.buffer();
    case Kind::kTensor: return unpacker.tensor();
    case Kind::kArray: {
      Array array;
      for (std::size_t left = unpacker.array(); left > 0; --left) array.push_back(unpack(unpacker));
      unpacker.leave();
      return array;
    }
    case Kind::kMap: {
      Map map;
      for (std::size_t left = unpacker.map(); left > 0; --left) {
        Value key = unpack(unpacker);
        map.emplace_back(std::move(key), unpack(unpacker));
      }
      unpacker.leave();
      return map;
    }
    case Kind::kUnknown: break;
  }
  unpacker.mismatch("a value");
}

const Value& Args::at(std::size_t index) const {
  if (index >= values.size()) {
    throw UsageError(fmt::format("argument {} of {}", index + 1, values.size()));
  }
  return values[index];
}

const Value& Args::kwarg(std::string_view name) const {
  const auto found = kwargs.find(name);
  if (found == kwargs.end()) throw UsageError(fmt::format("no keyword argument \"{}\"", name));
  return found->second;
}

}  // namespace divisi
