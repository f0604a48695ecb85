// Payload: the arguments of one event, as bytes.
//
//   PackScratch scratch;
//   const PayloadView& view = pack_args(scratch, 1, "two", kw("x", 3));   // send view
//   auto [number, text] = unpack_args<int, std::string>(other_view);      // throws PayloadError
//
// Which types travel, and how numbers convert, is in coder.h; structs are told by DIVISI_FIELDS.
//
// A payload has a codec, a body, and extra buffers beside the body:
//
//   codec 0 (raw)     the body is the bytes of the one argument, which is bytes
//   codec 1 (native)  the body is one MessagePack array of the positional arguments; with
//                     has_kwargs its last element is a map of the keyword arguments
//   codec 2 (pickle)  opaque in C++: delivered as one bytes argument
//
// A single bytes argument (Buffer, std::vector<std::byte>, std::span<const std::byte>) without
// keyword arguments is always sent as codec 0.
#pragma once

#include "divisi/buffer.h"
#include "divisi/coder.h"
#include "divisi/export.h"
#include "divisi/fields.h"
#include "divisi/packer.h"
#include "divisi/tensor.h"
#include "divisi/value.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace divisi {

// How the arguments became bytes. The numbers are part of the wire format.
enum class Codec : std::uint8_t {
  kRaw = 0,     // the bytes of the one argument
  kNative = 1,  // MessagePack
  kPickle = 2,  // Python's own
};

// Somebody else's bytes. `owner`, where set, keeps `body` alive (body lies inside it), so that a
// Buffer argument can share the bytes; otherwise it copies them.
struct PayloadView {
  Codec codec = Codec::kNative;     // see above
  bool has_kwargs = false;          // the last element of the body is the keyword arguments
  std::span<const std::byte> body;  // valid as long as whoever made the view says
  std::span<const Buffer> buffers;  // beside the body, in the order of their indices
  Buffer owner;                     // of the body, or empty
};

// A payload that owns its bytes.
struct DIVISI_API Payload {
  Codec codec = Codec::kNative;  // see above
  bool has_kwargs = false;       // the last element of the body is the keyword arguments
  Buffer body;                   // the arguments
  std::vector<Buffer> buffers;   // beside the body, in the order of their indices

  // Copies the body unless `view.owner` holds it; extra buffers are shared.
  static Payload copy_of(const PayloadView& view);
  // Valid while this payload lives unchanged.
  PayloadView view() const { return {codec, has_kwargs, body.bytes(), buffers, body}; }
};

// A keyword argument: emit("e", 1, kw("x", 2)).
template <class T>
struct Kw {
  std::string_view name;  // as the receiver looks for it
  T value;                // anything with a Coder
};
// Makes one. The name is not copied.
template <class T>
Kw<std::decay_t<T>> kw(std::string_view name, T&& value) {
  return {name, std::forward<T>(value)};
}

namespace detail {

template <class T>
inline constexpr bool kIsKw = false;
template <class T>
inline constexpr bool kIsKw<Kw<T>> = true;

// What stands for an argument on its way: texts of any kind are string views, mutable spans of
// bytes are constant ones, everything else is itself.
template <class T>
decltype(auto) as_argument(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view> &&
                !std::same_as<T, std::string> && !std::same_as<T, std::nullptr_t>) {
    return std::string_view(value);
  } else if constexpr (std::same_as<T, std::span<std::byte>>) {
    return std::span<const std::byte>(value);
  } else {
    return (value);
  }
}
template <class T>
using ArgumentType = std::remove_cvref_t<decltype(as_argument(std::declval<const T&>()))>;

template <class T>
concept BytesLike = std::same_as<T, Buffer> || std::same_as<T, std::vector<std::byte>> ||
                    std::same_as<T, std::span<const std::byte>>;

template <class T>
constexpr bool is_packable() {
  if constexpr (kIsKw<T>) {
    return is_packable<decltype(T::value)>();
  } else {
    return Encodable<ArgumentType<T>>;
  }
}

template <class T>
void pack_argument(Packer& packer, const T& value) {
  Coder<ArgumentType<T>>::pack(packer, as_argument(value));
}

}  // namespace detail

// True if arguments of these types (keyword arguments too) can be sent.
template <class... T>
// NOLINTNEXTLINE(*-identifier-naming,*-redundant-expression): like the traits of the standard
inline constexpr bool is_packable_v = (detail::is_packable<std::remove_cvref_t<T>>() && ...);

// Memory for packing, taken from and given back to the calling thread: no allocation when warm.
// Make one where it is needed; several may live at a time.
class DIVISI_API PackScratch {
 public:
  PackScratch();
  ~PackScratch();
  PackScratch(const PackScratch&) = delete;
  PackScratch& operator=(const PackScratch&) = delete;

  // What pack_args writes to, and the view of it that it returns:
  Packer& packer() noexcept { return memory_->packer; }
  PayloadView& view() noexcept { return memory_->view; }

 private:
  struct Memory {
    Packer packer;
    PayloadView view;
  };
  struct Spare;
  Memory* memory_;
};

// The payload of one argument list. Valid while `scratch` and the arguments live and until the
// next pack with the same scratch. Throws UsageError for a text of 4 GiB, an inconsistent tensor.
template <class... T>
const PayloadView& pack_args(PackScratch& scratch, const T&... args) {
  static_assert(is_packable_v<T...>,
                "an argument has no MessagePack form: list its fields with DIVISI_FIELDS");
  constexpr auto kKeywords = (std::size_t{0} + ... + std::size_t{detail::kIsKw<T>});
  constexpr std::size_t kPositional = sizeof...(T) - kKeywords;
  PayloadView& view = scratch.view();
  view = {};
  if constexpr (sizeof...(T) == 1 && (detail::BytesLike<detail::ArgumentType<T>> && ...)) {
    view.codec = Codec::kRaw;
    const auto raw = [&view](const auto& bytes) {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(bytes)>, Buffer>) {
        view.body = bytes.bytes();
        view.owner = bytes;
      } else {
        view.body = bytes;
      }
    };
    (raw(detail::as_argument(args)), ...);
  } else {
    Packer& packer = scratch.packer();
    packer.clear();
    packer.array(kPositional + (kKeywords > 0 ? 1 : 0));
    const auto positional = [&packer](const auto& arg) {
      if constexpr (!detail::kIsKw<std::remove_cvref_t<decltype(arg)>>) {
        detail::pack_argument(packer, arg);
      }
    };
    (positional(args), ...);
    if constexpr (kKeywords > 0) {
      packer.map(kKeywords);
      const auto keyword = [&packer](const auto& arg) {
        if constexpr (detail::kIsKw<std::remove_cvref_t<decltype(arg)>>) {
          packer.text(arg.name);
          detail::pack_argument(packer, arg.value);
        }
      };
      (keyword(args), ...);
    }
    view.has_kwargs = kKeywords > 0;
    view.body = packer.body();
    view.buffers = packer.buffers();
  }
  return view;
}

// The same for a list that is only known at run time.
DIVISI_API const PayloadView& pack_args(PackScratch& scratch, const Args& args);

// Reads an argument list in order. Errors name the position (from 1) and both types.
class DIVISI_API ArgReader {
 public:
  // The payload must outlive the reader.
  explicit ArgReader(const PayloadView& payload);

  // How many positional arguments there are.
  std::size_t count() const noexcept { return count_; }

  // Throws unless there are `expected` positional arguments. `types` names them, for the message.
  void require(std::size_t expected, std::string (*types)()) const {
    if (count_ != expected) [[unlikely]]
      wrong_count(expected, types());
  }

  // The next positional argument. Throws PayloadError.
  template <class T>
  T next() {
    ++position_;
    try {
      if (payload_.codec == Codec::kNative) [[likely]]
        return Coder<T>::unpack(unpacker_);
      return opaque<T>();
    } catch (const PayloadError& error) {
      detail::rethrow_inside("argument " + std::to_string(position_), error);
    }
  }

  // What was read so far stood before the arguments: they are counted from here.
  void begin_here() noexcept { count_ -= std::exchange(position_, 0); }

  // After the positional ones.
  Kwargs kwargs();
  // Throws when there are keyword arguments.
  void require_no_kwargs() {
    if (payload_.has_kwargs) [[unlikely]]
      refuse_kwargs();
  }

 private:
  template <class T>
  T opaque() const {
    if constexpr (std::same_as<T, Buffer> || std::same_as<T, Value>) {
      return T(opaque_buffer());
    } else if constexpr (std::same_as<T, std::span<const std::byte>>) {
      return payload_.body;
    } else if constexpr (std::same_as<T, std::vector<std::byte>>) {
      return {payload_.body.begin(), payload_.body.end()};
    } else {
      opaque_mismatch(Coder<T>::name());
    }
  }
  Buffer opaque_buffer() const;
  [[noreturn]] void opaque_mismatch(const std::string& expected) const;
  [[noreturn]] void wrong_count(std::size_t expected, const std::string& types) const;
  [[noreturn]] void refuse_kwargs();

  const PayloadView& payload_;
  Unpacker unpacker_;
  std::size_t count_ = 1;
  std::size_t position_ = 0;
};

namespace detail {

template <class... T>
std::string type_list() {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + Coder<T>::name()), ...);
  return text;
}

}  // namespace detail

// The arguments as a tuple of exactly these types. Throws PayloadError.
template <class Tuple>
  requires requires { std::tuple_size<Tuple>::value; }
Tuple unpack(const PayloadView& payload) {
  return [&]<class... T>(std::type_identity<std::tuple<T...>>) {
    ArgReader reader(payload);
    reader.require(sizeof...(T), &detail::type_list<T...>);
    std::tuple<T...> result{reader.template next<T>()...};
    reader.require_no_kwargs();
    return result;
  }(std::type_identity<Tuple>());
}
// The same with the types one by one.
template <class... T>
std::tuple<T...> unpack_args(const PayloadView& payload) {
  return unpack<std::tuple<T...>>(payload);
}

// The arguments whatever they are.
DIVISI_API Args unpack_any(const PayloadView& payload);

}  // namespace divisi
