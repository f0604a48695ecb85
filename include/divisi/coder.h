// Coder<T>: how a C++ type is written to and read from MessagePack.
//
//   C++                                                    MessagePack
//   bool                                                   bool
//   integers, enums                                        integer
//   float, double                                          float 32, float 64
//   std::string, std::string_view, const char*, char       str
//   std::vector<std::byte>, std::span<const std::byte>     bin
//   Buffer, Tensor                                         bin, ext 1, ext 2 (packer.h)
//   std::optional<T>                                       nil or T
//   std::vector<T>, std::array<T, N>, std::pair, tuple     array
//   std::map, std::unordered_map (string or integer keys)  map
//   a struct with DIVISI_FIELDS                            map from field name to value
//   Value                                                  what it holds
//
// Reading checks. To an integer type a number must keep its value: 300 does not fit uint8_t, 2.5 is
// no integer, 2.0 is 2. To a floating type it may be rounded, but a finite number must stay
// finite. bool is no number and bytes are no string. Arrays of fixed length must have that length.
//
// std::string_view and std::span<const std::byte> read as views into the message: inside a
// listener they are valid until it returns. A Buffer keeps its bytes alive.
//
// For a type of your own either list its fields (fields.h) or specialise Coder with the three
// functions below.
#pragma once

#include "divisi/detail/type_name.h"
#include "divisi/fields.h"
#include "divisi/packer.h"
#include "divisi/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace divisi {

template <class T>
struct Coder;  // static std::string name(); static void pack(Packer&, const T&); static T
               // unpack(Unpacker&);

// A type that can be written; what can be read as well is Decodable (a const char* cannot).
template <class T>
concept Encodable = requires(Packer& packer, const T& value) {
  Coder<T>::pack(packer, value);
  { Coder<T>::name() } -> std::convertible_to<std::string>;
};
// A type that can be written and read.
template <class T>
concept Decodable = Encodable<T> && requires(Unpacker& unpacker) {
  { Coder<T>::unpack(unpacker) } -> std::same_as<T>;
};

namespace detail {

template <class T>
concept PlainInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

template <class T>
concept HasFields = requires(const T* object) { divisi_fields(object); };

template <class T>
constexpr std::string_view integer_name() {
  constexpr std::string_view kSigned[] = {"int8", "int16", "int32", "int64"};
  constexpr std::string_view kUnsigned[] = {"uint8", "uint16", "uint32", "uint64"};
  constexpr int kIndex = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return std::signed_integral<T> ? kSigned[kIndex] : kUnsigned[kIndex];
}

[[noreturn]] DIVISI_API void number_does_not_fit(const Number& number, std::string_view type);

template <class T>
T to_integer(const Number& number, std::string_view type) {
  switch (number.kind) {
    case Number::Kind::kSigned:
      if (std::in_range<T>(number.as_signed)) return static_cast<T>(number.as_signed);
      break;
    case Number::Kind::kUnsigned:
      if (std::in_range<T>(number.as_unsigned)) return static_cast<T>(number.as_unsigned);
      break;
    case Number::Kind::kReal: {
      // Both bounds are powers of two, or zero, and so exact as doubles.
      constexpr double kEnd =
          2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
      constexpr double kBegin = std::signed_integral<T> ? -kEnd : 0.0;
      const double real = number.as_real;
      if (real >= kBegin && real < kEnd && real == std::trunc(real)) return static_cast<T>(real);
      break;
    }
  }
  number_does_not_fit(number, type);
}

template <std::floating_point T>
T to_real(const Number& number) {
  switch (number.kind) {
    case Number::Kind::kSigned: return static_cast<T>(number.as_signed);
    case Number::Kind::kUnsigned: return static_cast<T>(number.as_unsigned);
    case Number::Kind::kReal: break;
  }
  if constexpr (sizeof(T) < sizeof(double)) {
    if (std::isfinite(number.as_real) && !std::isfinite(static_cast<T>(number.as_real))) {
      number_does_not_fit(number, "float32");
    }
  }
  return static_cast<T>(number.as_real);
}

// Memory set aside for a list before its elements were seen: what a hostile count can cost.
inline constexpr std::size_t kTrustedBytes = std::size_t{64} * 1024;

// "Point.x: <why>", "[3]: <why>": where in a nested value reading failed.
[[noreturn]] DIVISI_API void rethrow_inside(const std::string& place, const PayloadError& error);

template <class T>
T unpack_inside(Unpacker& unpacker, std::size_t index) {
  try {
    return Coder<T>::unpack(unpacker);
  } catch (const PayloadError& error) {
    rethrow_inside("[" + std::to_string(index) + "]", error);
  }
}

[[noreturn]] DIVISI_API void wrong_length(std::string_view type, std::size_t expected,
                                          std::size_t received);
[[noreturn]] DIVISI_API void missing_field(std::string_view type, std::string_view field);

template <class Map>
struct MapCoder {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;
  static std::string name() {
    return "map from " + Coder<Key>::name() + " to " + Coder<Mapped>::name();
  }
  static void pack(Packer& packer, const Map& value) {
    packer.map(value.size());
    for (const auto& [key, mapped] : value) {
      Coder<Key>::pack(packer, key);
      Coder<Mapped>::pack(packer, mapped);
    }
  }
  static Map unpack(Unpacker& unpacker)
    requires Decodable<Mapped>
  {
    if (unpacker.kind() != Unpacker::Kind::kMap) unpacker.mismatch(name());
    Map result;
    const std::size_t count = unpacker.map();
    for (std::size_t i = 0; i < count; ++i) {
      Key key = unpack_inside<Key>(unpacker, i);
      result.insert_or_assign(std::move(key), unpack_inside<Mapped>(unpacker, i));
    }
    unpacker.leave();
    return result;
  }
};

template <class T>
concept MapKey = std::same_as<T, std::string> || PlainInteger<T> || std::is_enum_v<T>;

// std::pair and std::tuple: an array of exactly that many values.
template <class Tuple, class... T>
struct TupleCoder {
  static std::string name() {
    std::string text;
    ((text += (text.empty() ? "(" : ", ") + Coder<T>::name()), ...);
    return text.empty() ? "()" : text + ")";
  }
  static void pack(Packer& packer, const Tuple& value) {
    packer.array(sizeof...(T));
    std::apply([&](const auto&... element) { (Coder<T>::pack(packer, element), ...); }, value);
  }
  static Tuple unpack(Unpacker& unpacker)
    requires(Decodable<T> && ...)
  {
    if (unpacker.kind() != Unpacker::Kind::kArray) unpacker.mismatch(name());
    const std::size_t count = unpacker.array();
    if (count != sizeof...(T)) wrong_length(name(), sizeof...(T), count);
    Tuple result = unpack_each(unpacker, std::index_sequence_for<T...>());
    unpacker.leave();
    return result;
  }

 private:
  template <std::size_t... I>
  static Tuple unpack_each([[maybe_unused]] Unpacker& unpacker, std::index_sequence<I...>) {
    return Tuple{unpack_inside<T>(unpacker, I)...};
  }
};

}  // namespace detail

template <>
struct Coder<bool> {
  static std::string name() { return "bool"; }
  static void pack(Packer& packer, bool value) { packer.boolean(value); }
  static bool unpack(Unpacker& unpacker) { return unpacker.boolean(); }
};

template <detail::PlainInteger T>
struct Coder<T> {
  static std::string name() { return std::string(detail::integer_name<T>()); }
  static void pack(Packer& packer, T value) {
    if constexpr (std::signed_integral<T>) {
      packer.integer(value);
    } else {
      packer.unsigned_integer(value);
    }
  }
  static T unpack(Unpacker& unpacker) {
    return detail::to_integer<T>(unpacker.number(detail::integer_name<T>()),
                                 detail::integer_name<T>());
  }
};

template <class T>
  requires std::is_enum_v<T>
struct Coder<T> {
  using Underlying = std::underlying_type_t<T>;
  static_assert(detail::PlainInteger<Underlying>, "an enum over bool or char cannot travel");
  static std::string name() { return detail::demangled(typeid(T)); }
  static void pack(Packer& packer, T value) {
    Coder<Underlying>::pack(packer, static_cast<Underlying>(value));
  }
  static T unpack(Unpacker& unpacker) {
    return static_cast<T>(Coder<Underlying>::unpack(unpacker));
  }
};

template <>
struct Coder<double> {
  static std::string name() { return "float64"; }
  static void pack(Packer& packer, double value) { packer.real(value); }
  static double unpack(Unpacker& unpacker) {
    return detail::to_real<double>(unpacker.number("float64"));
  }
};

template <>
struct Coder<float> {
  static std::string name() { return "float32"; }
  static void pack(Packer& packer, float value) { packer.real32(value); }
  static float unpack(Unpacker& unpacker) {
    return detail::to_real<float>(unpacker.number("float32"));
  }
};

template <>
struct Coder<std::string> {
  static std::string name() { return "string"; }
  static void pack(Packer& packer, const std::string& value) { packer.text(value); }
  static std::string unpack(Unpacker& unpacker) { return std::string(unpacker.text()); }
};

template <>
struct Coder<std::string_view> {
  static std::string name() { return "string"; }
  static void pack(Packer& packer, std::string_view value) { packer.text(value); }
  static std::string_view unpack(Unpacker& unpacker) { return unpacker.text(); }
};

template <>
struct Coder<const char*> {
  static std::string name() { return "string"; }
  static void pack(Packer& packer, const char* value) { packer.text(value); }
};

template <>
struct Coder<char> {
  static std::string name() { return "character"; }
  static void pack(Packer& packer, char value) { packer.text({&value, 1}); }
  static char unpack(Unpacker& unpacker) {
    if (unpacker.kind() != Unpacker::Kind::kText) unpacker.mismatch(name());
    const std::string_view text = unpacker.text();
    if (text.size() != 1) detail::wrong_length(name(), 1, text.size());
    return text.front();
  }
};

template <>
struct Coder<std::nullptr_t> {
  static std::string name() { return "nil"; }
  static void pack(Packer& packer, std::nullptr_t) { packer.nil(); }
  static std::nullptr_t unpack(Unpacker& unpacker) {
    unpacker.nil();
    return nullptr;
  }
};

template <>
struct Coder<std::span<const std::byte>> {
  static std::string name() { return "bytes"; }
  static void pack(Packer& packer, std::span<const std::byte> value) { packer.bytes(value); }
  static std::span<const std::byte> unpack(Unpacker& unpacker) { return unpacker.bytes(); }
};

template <>
struct Coder<std::vector<std::byte>> {
  static std::string name() { return "bytes"; }
  static void pack(Packer& packer, const std::vector<std::byte>& value) { packer.bytes(value); }
  static std::vector<std::byte> unpack(Unpacker& unpacker) {
    const std::span<const std::byte> bytes = unpacker.bytes();
    return {bytes.begin(), bytes.end()};
  }
};

template <>
struct Coder<Buffer> {
  static std::string name() { return "bytes"; }
  static void pack(Packer& packer, const Buffer& value) { packer.buffer(value); }
  static Buffer unpack(Unpacker& unpacker) { return unpacker.buffer(); }
};

template <>
struct Coder<Tensor> {
  static std::string name() { return "tensor"; }
  static void pack(Packer& packer, const Tensor& value) { packer.tensor(value); }
  static Tensor unpack(Unpacker& unpacker) { return unpacker.tensor(); }
};

template <>
struct Coder<Value> {
  static std::string name() { return "any value"; }
  static void pack(Packer& packer, const Value& value) { value.pack(packer); }
  static Value unpack(Unpacker& unpacker) { return Value::unpack(unpacker); }
};

template <class T>
  requires Encodable<T>
struct Coder<std::optional<T>> {
  static std::string name() { return "optional " + Coder<T>::name(); }
  static void pack(Packer& packer, const std::optional<T>& value) {
    if (value) {
      Coder<T>::pack(packer, *value);
    } else {
      packer.nil();
    }
  }
  static std::optional<T> unpack(Unpacker& unpacker)
    requires Decodable<T>
  {
    if (unpacker.kind() == Unpacker::Kind::kNil) {
      unpacker.nil();
      return std::nullopt;
    }
    return Coder<T>::unpack(unpacker);
  }
};

template <class T>
  requires(Encodable<T> && !std::same_as<T, std::byte>)
struct Coder<std::vector<T>> {
  static std::string name() { return "list of " + Coder<T>::name(); }
  static void pack(Packer& packer, const std::vector<T>& value) {
    packer.array(value.size());
    // By value where the element is a proxy (vector<bool>).
    for (const T& element : value) Coder<T>::pack(packer, element);
  }
  static std::vector<T> unpack(Unpacker& unpacker)
    requires Decodable<T>
  {
    if (unpacker.kind() != Unpacker::Kind::kArray) unpacker.mismatch(name());
    const std::size_t count = unpacker.array();
    std::vector<T> result;
    result.reserve(std::min(count, detail::kTrustedBytes / sizeof(T) + 1));
    for (std::size_t i = 0; i < count; ++i) result.push_back(detail::unpack_inside<T>(unpacker, i));
    unpacker.leave();
    return result;
  }
};

template <class T, std::size_t N>
  requires(Encodable<T> && std::is_default_constructible_v<T>)
struct Coder<std::array<T, N>> {
  static std::string name() { return "list of " + std::to_string(N) + " " + Coder<T>::name(); }
  static void pack(Packer& packer, const std::array<T, N>& value) {
    packer.array(N);
    for (const T& element : value) Coder<T>::pack(packer, element);
  }
  static std::array<T, N> unpack(Unpacker& unpacker)
    requires Decodable<T>
  {
    if (unpacker.kind() != Unpacker::Kind::kArray) unpacker.mismatch(name());
    const std::size_t count = unpacker.array();
    if (count != N) detail::wrong_length(name(), N, count);
    std::array<T, N> result{};
    for (std::size_t i = 0; i < N; ++i) result[i] = detail::unpack_inside<T>(unpacker, i);
    unpacker.leave();
    return result;
  }
};

template <detail::MapKey Key, Encodable T, class Less, class Allocator>
struct Coder<std::map<Key, T, Less, Allocator>>
    : detail::MapCoder<std::map<Key, T, Less, Allocator>> {};

template <detail::MapKey Key, Encodable T, class Hash, class Equal, class Allocator>
struct Coder<std::unordered_map<Key, T, Hash, Equal, Allocator>>
    : detail::MapCoder<std::unordered_map<Key, T, Hash, Equal, Allocator>> {};

template <Encodable A, Encodable B>
struct Coder<std::pair<A, B>> : detail::TupleCoder<std::pair<A, B>, A, B> {};

template <Encodable... T>
struct Coder<std::tuple<T...>> : detail::TupleCoder<std::tuple<T...>, T...> {};

template <detail::HasFields T>
struct Coder<T> {
  static std::string name() {
    return std::string(divisi_type_name(static_cast<const T*>(nullptr)));
  }

  static void pack(Packer& packer, const T& value) {
    std::apply(
        [&](const auto&... field) {
          packer.map(sizeof...(field));
          (pack_field(packer, value, field), ...);
        },
        divisi_fields(static_cast<const T*>(nullptr)));
  }

  static T unpack(Unpacker& unpacker) {
    if (unpacker.kind() != Unpacker::Kind::kMap) unpacker.mismatch(name());
    constexpr auto kFields = divisi_fields(static_cast<const T*>(nullptr));
    constexpr std::size_t kCount = std::tuple_size_v<decltype(kFields)>;
    T result{};
    std::array<bool, kCount + 1> seen{};
    const std::size_t count = unpacker.map();
    std::size_t guess = 0;  // writers keep the order of the fields: the next one usually matches
    for (std::size_t i = 0; i < count; ++i) {
      if (unpacker.kind() != Unpacker::Kind::kText) {
        unpacker.skip();
        unpacker.skip();
        continue;
      }
      guess = unpack_named(unpacker, unpacker.text(), result, kFields, seen, guess,
                           std::make_index_sequence<kCount>());
    }
    unpacker.leave();
    check_complete(kFields, seen, std::make_index_sequence<kCount>());
    return result;
  }

 private:
  template <class Field>
  static void pack_field(Packer& packer, const T& value, const Field& field) {
    packer.text(field.name);
    using Member = std::remove_cvref_t<decltype(value.*field.member)>;
    Coder<Member>::pack(packer, value.*field.member);
  }

  template <class Fields, class Seen, std::size_t... I>
  static std::size_t unpack_named(Unpacker& unpacker, std::string_view key, T& result,
                                  const Fields& fields, Seen& seen, std::size_t guess,
                                  std::index_sequence<I...>) {
    std::size_t found = sizeof...(I);
    // First the expected one, then any: each is a short chain of comparisons.
    ((I == guess && std::get<I>(fields).name == key ? void(found = I) : void()), ...);
    if (found == sizeof...(I)) {
      ((std::get<I>(fields).name == key ? void(found = I) : void()), ...);
    }
    if (found == sizeof...(I)) {
      unpacker.skip();
      return guess;
    }
    try {
      ((I == found ? unpack_member(unpacker, result, std::get<I>(fields)) : void()), ...);
    } catch (const PayloadError& error) {
      detail::rethrow_inside(name() + "." + std::string(key), error);
    }
    seen[found] = true;
    return found + 1;
  }

  template <class Field>
  static void unpack_member(Unpacker& unpacker, T& result, const Field& field) {
    using Member = std::remove_cvref_t<decltype(result.*field.member)>;
    result.*field.member = Coder<Member>::unpack(unpacker);
  }

  template <class Fields, class Seen, std::size_t... I>
  static void check_complete(const Fields& fields, const Seen& seen, std::index_sequence<I...>) {
    ((seen[I] ? void() : detail::missing_field(name(), std::get<I>(fields).name)), ...);
  }
};

namespace detail {
template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... A>
inline constexpr bool kIsAlternative<T, std::variant<A...>> = (std::same_as<T, A> || ...);
}  // namespace detail

template <class T>
Value Value::from(const T& value) {
  Packer packer;
  Coder<T>::pack(packer, value);
  Unpacker unpacker(packer.body(), packer.buffers());
  return Value::unpack(unpacker);
}

template <class T>
T Value::as() const {
  static_assert(!std::same_as<T, std::string_view> && !std::same_as<T, std::span<const std::byte>>,
                "a view would point into a temporary: ask for std::string or Buffer");
  if constexpr (std::same_as<T, Value>) return *this;
  if constexpr (detail::kIsAlternative<T, Storage>) {
    if (const T* same = std::get_if<T>(&storage_)) return *same;
  }
  Packer packer;
  pack(packer);
  Unpacker unpacker(packer.body(), packer.buffers());
  return Coder<T>::unpack(unpacker);
}

}  // namespace divisi
