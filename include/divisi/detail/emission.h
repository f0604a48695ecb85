// Emission: the arguments of one emit while it decides where they go. Listeners that run inline
// borrow them; for the queue they are moved (or copied, if the emitter keeps them) into storage.
#pragma once

#include "divisi/detail/argument.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace divisi::detail {

// How the queue handles stored arguments of some type: `object` is what Emission::store returned,
// later a copy of it inside the queue.
struct StoredOps {
  std::uint32_t size;
  std::uint32_t count;
  void (*move)(void* to, void* from) noexcept;  // constructs at `to`; `from` is still destroyed
  void (*destroy)(void* object) noexcept;
  void (*refer)(void* object, ArgRef* out, bool may_move) noexcept;
};

// More than anybody writes; argument references stand on the stack.
inline constexpr std::size_t kMaxArguments = 32;

// Stored arguments stand in the queue itself up to this size, beyond they are allocated.
inline constexpr std::size_t kMaxInQueue = 512;

class Emission {
 public:
  Emission(const StoredOps* stored_ops, std::unique_ptr<Kwargs> keywords)
      : ops(stored_ops), kwargs(std::move(keywords)) {}

  const StoredOps* const ops;
  std::unique_ptr<Kwargs> kwargs;  // null: none

  virtual void borrow(ArgRef* out, bool may_move) noexcept = 0;
  virtual void* store() = 0;

 protected:
  ~Emission() = default;
};

// One positional argument as emit() got it; A is a reference.
template <class A>
struct Given {
  static_assert(std::is_reference_v<A>);
  using Plain = std::remove_cvref_t<A>;
  static_assert(!std::is_array_v<Plain> || std::is_convertible_v<A, std::string_view>,
                "pass a std::vector or std::array instead of a C array");
  using Seen = ArgumentType<Plain>;
  static constexpr bool kIsItself = std::same_as<Seen, Plain>;
  // A view would outlive what it looks at.
  using Stored = std::conditional_t<
      std::same_as<Seen, std::string_view>, std::string,
      std::conditional_t<std::same_as<Seen, std::span<const std::byte>>, Buffer, Seen>>;

  explicit Given(A given) : value(std::forward<A>(given)), seen(make_seen(value)) {}

  ArgRef borrow(bool may_move) noexcept {
    constexpr bool kGivenAway =
        std::is_rvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;
    if constexpr (kIsItself) {
      return {&kArgOps<Seen>, const_cast<Plain*>(std::addressof(value)), may_move && kGivenAway};
    } else {
      return {&kArgOps<Seen>, &seen, false};
    }
  }

  Stored take() {
    if constexpr (std::same_as<Stored, Buffer> && !std::same_as<Plain, Buffer>) {
      return Buffer::copy_of(std::span<const std::byte>(value));
    } else {
      return Stored(std::forward<A>(value));
    }
  }

  struct Nothing {};
  static auto make_seen(const Plain& plain) {
    if constexpr (kIsItself) {
      return Nothing();
    } else {
      return as_argument(plain);
    }
  }

  A value;
  [[no_unique_address]] decltype(make_seen(std::declval<const Plain&>())) seen;
};

template <class Tuple>
struct InQueue {
  static constexpr bool kBoxed = sizeof(Tuple) > kMaxInQueue ||
                                 alignof(Tuple) > alignof(std::max_align_t) ||
                                 !std::is_nothrow_move_constructible_v<Tuple>;
  using Holder = std::conditional_t<kBoxed, std::unique_ptr<Tuple>, Tuple>;

  static Tuple& tuple(void* object) {
    if constexpr (kBoxed) {
      return **static_cast<Holder*>(object);
    } else {
      return *static_cast<Holder*>(object);
    }
  }

  static void move(void* to, void* from) noexcept {
    ::new (to) Holder(std::move(*static_cast<Holder*>(from)));
  }
  static void destroy(void* object) noexcept { static_cast<Holder*>(object)->~Holder(); }
  static void refer(void* object, ArgRef* out, bool may_move) noexcept {
    refer_each(tuple(object), out, may_move, std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }

  static constexpr StoredOps kOps = {sizeof(Holder), std::tuple_size_v<Tuple>, &move, &destroy,
                                     &refer};

 private:
  template <std::size_t... I>
  static void refer_each([[maybe_unused]] Tuple& stored, [[maybe_unused]] ArgRef* out,
                         [[maybe_unused]] bool may_move, std::index_sequence<I...>) noexcept {
    ((out[I] = {&kArgOps<std::tuple_element_t<I, Tuple>>, &std::get<I>(stored), may_move}), ...);
  }
};

template <class... A>
class TypedEmission final : public Emission {
  static_assert(sizeof...(A) <= kMaxArguments, "an event takes up to 32 arguments");
  using Tuple = std::tuple<typename Given<A>::Stored...>;
  using Queue = InQueue<Tuple>;

 public:
  TypedEmission(std::unique_ptr<Kwargs> keywords, std::tuple<A...> given)
      : TypedEmission(std::move(keywords), given, std::index_sequence_for<A...>()) {}

  void borrow(ArgRef* out, bool may_move) noexcept override {
    std::apply([&](auto&... given) { ((*out++ = given.borrow(may_move)), ...); }, given_);
    static_cast<void>(out);
  }

  void* store() override {
    return std::apply(
        [&](auto&... given) -> void* {
          if constexpr (Queue::kBoxed) {
            return &stored_.emplace(std::make_unique<Tuple>(given.take()...));
          } else {
            return &stored_.emplace(given.take()...);
          }
        },
        given_);
  }

 private:
  template <std::size_t... I>
  TypedEmission(std::unique_ptr<Kwargs> keywords, std::tuple<A...>& given,
                std::index_sequence<I...>)
      : Emission(&Queue::kOps, std::move(keywords)),
        given_(std::forward<A>(std::get<I>(given))...) {}

  std::tuple<Given<A>...> given_;
  std::optional<typename Queue::Holder> stored_;
};

template <class A>
auto positional_only(A&& arg) {
  if constexpr (kIsKw<std::remove_cvref_t<A>>) {
    return std::tuple<>();
  } else {
    return std::tuple<A&&>(std::forward<A>(arg));
  }
}

template <class A>
void collect_keyword(Kwargs& kwargs, const A& arg) {
  if constexpr (kIsKw<A>) {
    using T = decltype(A::value);
    static_assert(is_packable_v<T>,
                  "a keyword argument has no MessagePack form: list its fields with DIVISI_FIELDS");
    kwargs.insert_or_assign(std::string(arg.name),
                            Value::from<ArgumentType<T>>(as_argument(arg.value)));
  }
}

// Calls `use(Emission&)` with the arguments of one emit.
template <class Use, class... A>
void with_emission(Use use, A&&... args) {
  std::unique_ptr<Kwargs> kwargs;
  if constexpr ((kIsKw<std::remove_cvref_t<A>> || ...)) {
    kwargs = std::make_unique<Kwargs>();
    (collect_keyword(*kwargs, args), ...);
  }
  [&]<class... P>(std::tuple<P...> positional) {
    TypedEmission<P...> emission(std::move(kwargs), std::move(positional));
    use(emission);
  }(std::tuple_cat(positional_only(std::forward<A>(args))...));
}

}  // namespace divisi::detail
