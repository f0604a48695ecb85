// Value: anything an event can carry, decided at run time. For listeners that take whatever comes
// (`Value`, `Args`), for keyword arguments, and for what wait_for returns.
#pragma once

#include "divisi/buffer.h"
#include "divisi/export.h"
#include "divisi/tensor.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace divisi {

class Packer;
class Unpacker;

class DIVISI_API Value {
 public:
  using Array = std::vector<Value>;                  // a list
  using Map = std::vector<std::pair<Value, Value>>;  // in the order received
  // What it may hold; std::monostate is nil.
  using Storage = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                               std::string, Buffer, Array, Map, Tensor>;

  Value() noexcept = default;
  // Of anything that Storage has; the default is nil.
  Value(std::nullptr_t) noexcept {}
  Value(bool value) : storage_(value) {}
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  Value(T value) {
    // One form for each number: unsigned only where signed cannot hold it.
    if (std::in_range<std::int64_t>(value)) {
      storage_ = static_cast<std::int64_t>(value);
    } else {
      storage_ = static_cast<std::uint64_t>(value);
    }
  }
  Value(double value) : storage_(value) {}
  Value(float value) : storage_(static_cast<double>(value)) {}
  Value(const char* value) : storage_(std::string(value)) {}
  Value(std::string_view value) : storage_(std::string(value)) {}
  Value(std::string value) : storage_(std::move(value)) {}
  Value(Buffer value) : storage_(std::move(value)) {}
  Value(Array value) : storage_(std::move(value)) {}
  Value(Map value) : storage_(std::move(value)) {}
  Value(Tensor value) : storage_(std::move(value)) {}

  // Any type with a Coder, by way of its encoding.
  template <class T>
  static Value from(const T& value);

  // A look at what it holds, without a conversion:
  const Storage& storage() const noexcept { return storage_; }
  bool is_nil() const noexcept { return std::holds_alternative<std::monostate>(storage_); }
  template <class T>
  bool holds() const noexcept {
    return std::holds_alternative<T>(storage_);
  }
  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&storage_);
  }

  // As a C++ type, under the same rules as a listener's parameter. Throws PayloadError.
  template <class T>
  T as() const;

  // Elements of an array or a map. Throw UsageError: not a container, no such element.
  std::size_t size() const;
  // By index in an array, by key in a map.
  const Value& at(std::size_t index) const;
  const Value& at(std::string_view key) const;

  // "integer 5", "string", "list of 3": as error messages say it.
  std::string describe() const;

  // Numbers are equal when their values are, whatever their type; bytes and tensors by content.
  bool operator==(const Value& other) const;

  // As MessagePack, and back:
  void pack(Packer& packer) const;
  static Value unpack(Unpacker& unpacker);

 private:
  Storage storage_;
};

// Keyword arguments by name.
using Kwargs = std::map<std::string, Value, std::less<>>;

// A whole argument list.
struct DIVISI_API Args {
  std::vector<Value> values;  // positional arguments
  Kwargs kwargs;              // keyword arguments

  // Positional arguments by index:
  std::size_t size() const noexcept { return values.size(); }
  const Value& operator[](std::size_t index) const { return at(index); }
  const Value& at(std::size_t index) const;  // throws UsageError
  // As a C++ type. Throws PayloadError.
  template <class T>
  T get(std::size_t index) const {
    return at(index).as<T>();
  }
  const Value& kwarg(std::string_view name) const;  // throws UsageError
  bool operator==(const Args&) const = default;     // by value
};

}  // namespace divisi
