// What Middleware needs to know about a callable: which context it takes, and what to call it.
#pragma once

#include "divisi/context.h"
#include "divisi/error.h"
#include "divisi/export.h"

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace divisi::detail {

// The one parameter of a function, or of an object whose operator() is not overloaded.
template <class F>
struct StepParameter : StepParameter<decltype(&F::operator())> {};
template <class F>
struct StepParameter<std::reference_wrapper<F>> : StepParameter<std::decay_t<F>> {};
template <class R, class A>
struct StepParameter<R (*)(A)> {
  using Type = A;
};
template <class R, class A>
struct StepParameter<R (*)(A) noexcept> : StepParameter<R (*)(A)> {};
template <class C, class R, class A>
struct StepParameter<R (C::*)(A)> : StepParameter<R (*)(A)> {};
template <class C, class R, class A>
struct StepParameter<R (C::*)(A) noexcept> : StepParameter<R (*)(A)> {};
template <class C, class R, class A>
struct StepParameter<R (C::*)(A) const> : StepParameter<R (*)(A)> {};
template <class C, class R, class A>
struct StepParameter<R (C::*)(A) const noexcept> : StepParameter<R (*)(A)> {};

[[noreturn]] DIVISI_API void throw_empty_step();
[[noreturn]] DIVISI_API void throw_wrong_context(const std::type_info& wanted,
                                                 const Context& received);

// Checked, because the context of a task is chosen at run time.
template <class Wanted>
Wanted& context_as(Context& ctx) {
  if constexpr (std::is_same_v<std::remove_const_t<Wanted>, Context>) {
    return ctx;
  } else {
    auto* wanted = dynamic_cast<Wanted*>(&ctx);
    if (wanted == nullptr) throw_wrong_context(typeid(Wanted), ctx);
    return *wanted;
  }
}

// The two kinds of callable that may be empty.
template <class F>
inline constexpr bool kMayBeEmpty = std::is_pointer_v<F>;
template <class S>
inline constexpr bool kMayBeEmpty<std::function<S>> = true;

template <class F>
std::function<void(Context&)> step_function(F&& fn) {
  using Callable = std::decay_t<F>;
  if constexpr (kMayBeEmpty<std::remove_cvref_t<F>>) {
    if (fn == nullptr) throw_empty_step();
  }
  // Shared, so that a callable that cannot be copied is a middleware too, and so that all copies
  // of a middleware see one state.
  auto shared = std::make_shared<Callable>(std::forward<F>(fn));
  if constexpr (std::is_invocable_v<Callable&, Context&>) {
    return [shared](Context& ctx) { static_cast<void>(std::invoke(*shared, ctx)); };
  } else {
    using Parameter = typename StepParameter<Callable>::Type;
    using Wanted = std::remove_reference_t<Parameter>;
    static_assert(std::is_lvalue_reference_v<Parameter> && std::is_base_of_v<Context, Wanted>,
                  "a middleware takes one argument: divisi::Context& or a reference to a class "
                  "derived from it");
    return [shared](Context& ctx) {
      static_cast<void>(std::invoke(*shared, context_as<Wanted>(ctx)));
    };
  }
}

DIVISI_API std::string name_of_type(const std::type_info& type);
DIVISI_API std::string name_of_function(const void* address, const std::type_info& type);

template <class F>
std::string step_name(const F& fn) {
  using Callable = std::decay_t<F>;
  if constexpr (requires {
                  { fn.name() } -> std::convertible_to<std::string>;
                }) {
    return fn.name();
  } else if constexpr (std::is_pointer_v<Callable> &&
                       std::is_function_v<std::remove_pointer_t<Callable>>) {
    const Callable pointer = fn;
    return name_of_function(reinterpret_cast<const void*>(pointer), typeid(Callable));
  } else {
    return name_of_type(typeid(Callable));
  }
}

}  // namespace divisi::detail
