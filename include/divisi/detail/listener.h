// Listener: a callable of any argument types behind one interface.
#pragma once

#include "divisi/detail/argument.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace divisi {

// Names one registration of a listener; never reused within a process. 0 is none.
enum class ListenerId : std::uint64_t {};

namespace detail {

// The arguments of a local emit.
struct LocalCall {
  std::span<const ArgRef> args;
  const Kwargs* kwargs = nullptr;
};

class DIVISI_API Listener {
 public:
  virtual ~Listener() = default;

  // Throw what the callable throws, and PayloadError (without the event's name) on a mismatch.
  virtual void call(const LocalCall& call) = 0;
  virtual void call(const PayloadView& payload) = 0;

  // Set before registration, constant afterwards.
  ListenerId id{};
  bool once = false;
  bool runs_inline = false;
  const void* function = nullptr;  // a plain function, for off()

  // Is this what off(pattern, other) means? Called under a lock: no user code.
  virtual bool is(const void* other) const noexcept { return function == other; }

  // `once`: whoever sets it runs the listener.
  std::atomic<bool> spent{false};
};

// The parameter types of a callable.
template <class... P>
struct Params {};

template <class F>
struct Signature;
template <class R, class... P>
struct Signature<R (*)(P...)> {
  using Types = Params<P...>;
};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...)> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const noexcept> : Signature<R (*)(P...)> {};

template <class F>
concept HasOneCallOperator = requires { &F::operator(); };

template <class F>
auto params_of() {
  if constexpr (std::is_pointer_v<F>) {
    return typename Signature<F>::Types{};
  } else if constexpr (HasOneCallOperator<F>) {
    return typename Signature<decltype(&F::operator())>::Types{};
  } else {
    static_assert(std::is_invocable_v<F&, const Args&>,
                  "the argument types of a generic or overloaded callable cannot be deduced: name "
                  "them, or take divisi::Args");
    return Params<const Args&>{};
  }
}

// Run-time halves of the templates below.
DIVISI_API Args local_args(const LocalCall& call);
DIVISI_API void require_local(const LocalCall& call, std::size_t expected, bool takes_kwargs,
                              std::string (*types)());
DIVISI_API const Kwargs& no_kwargs() noexcept;

template <class F, class... P>
class TypedListener final : public Listener {
  static constexpr std::size_t kAll = sizeof...(P);
  using Types = std::tuple<P...>;
  static constexpr bool last_is_kwargs() {
    if constexpr (kAll == 0) {
      return false;
    } else {
      return std::is_same_v<std::remove_cvref_t<std::tuple_element_t<kAll - 1, Types>>, Kwargs>;
    }
  }
  static constexpr bool kTakesKwargs = last_is_kwargs();
  static constexpr std::size_t kPositional = kAll - (kTakesKwargs ? 1 : 0);
  using Positions = std::make_index_sequence<kPositional>;
  template <std::size_t I>
  using Param = std::tuple_element_t<I, Types>;
  template <std::size_t I>
  using Stored = std::remove_cvref_t<Param<I>>;

 public:
  explicit TypedListener(F fn) : fn_(std::move(fn)) {}

  void call(const LocalCall& call) override { call_local(call, Positions()); }
  void call(const PayloadView& payload) override {
    ArgReader reader(payload);
    call(reader);
  }
  // With what the reader has left.
  void call(ArgReader& reader) { call_remote(reader, Positions()); }

 private:
  template <std::size_t... I>
  static std::string type_names(std::index_sequence<I...>) {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + name_of<Stored<I>>()), ...);
    return text;
  }
  static std::string types() { return type_names(Positions()); }

  template <std::size_t... I>
  void call_local(const LocalCall& call, std::index_sequence<I...>) {
    if (call.args.size() != kPositional || call.kwargs != nullptr) [[unlikely]] {
      require_local(call, kPositional, kTakesKwargs, &types);
    }
    [[maybe_unused]] std::tuple<Bound<Param<I>>...> bound(Positioned{call.args[I], I}...);
    if constexpr (kTakesKwargs) {
      std::invoke(fn_, std::get<I>(bound).get()...,
                  Kwargs(call.kwargs != nullptr ? *call.kwargs : no_kwargs()));
    } else {
      std::invoke(fn_, std::get<I>(bound).get()...);
    }
  }

  template <std::size_t... I>
  void call_remote(ArgReader& reader, std::index_sequence<I...>) {
    if constexpr ((Decodable<Stored<I>> && ...)) {
      reader.require(kPositional, &types);
      [[maybe_unused]] std::tuple<Stored<I>...> values{reader.template next<Stored<I>>()...};
      if constexpr (kTakesKwargs) {
        Kwargs kwargs = reader.kwargs();
        std::invoke(fn_, static_cast<Param<I>&&>(std::get<I>(values))..., std::move(kwargs));
      } else {
        reader.require_no_kwargs();
        std::invoke(fn_, static_cast<Param<I>&&>(std::get<I>(values))...);
      }
    } else {
      throw PayloadError("the listener takes (" + types() +
                         "), which cannot come from another process");
    }
  }

  F fn_;
};

// Takes whatever comes.
template <class F>
class ArgsListener final : public Listener {
 public:
  explicit ArgsListener(F fn) : fn_(std::move(fn)) {}
  void call(const LocalCall& call) override { std::invoke(fn_, local_args(call)); }
  void call(const PayloadView& payload) override { std::invoke(fn_, unpack_any(payload)); }

 private:
  F fn_;
};

template <class F, class... P>
std::unique_ptr<Listener> make_typed(F fn, Params<P...>) {
  if constexpr (sizeof...(P) == 1 && (std::is_same_v<std::remove_cvref_t<P>, Args> && ...)) {
    return std::make_unique<ArgsListener<F>>(std::move(fn));
  } else {
    return std::make_unique<TypedListener<F, P...>>(std::move(fn));
  }
}

template <class F>
std::unique_ptr<Listener> make_listener(F&& fn) {
  using Callable = std::decay_t<F>;
  Callable callable(std::forward<F>(fn));
  const void* function = nullptr;
  if constexpr (std::is_pointer_v<Callable>) function = reinterpret_cast<const void*>(callable);
  auto listener = make_typed(std::move(callable), params_of<Callable>());
  listener->function = function;
  return listener;
}

}  // namespace detail
}  // namespace divisi
