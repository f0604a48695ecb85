// ServedListener: what Parallel::serve() registers. Whatever happens to a call goes back to who
// made it, and to nobody else.
#pragma once

#include "divisi/detail/listener.h"
#include "divisi/export.h"
#include "divisi/payload.h"
#include "divisi/value.h"

#include <type_traits>
#include <utility>

namespace divisi::detail {

// The half that knows no types.
class DIVISI_API ServedCall : public Listener {
 public:
  void call(const LocalCall& call) final;
  // Throws nothing: an argument that does not fit is the caller's mistake, not this node's.
  void call(const PayloadView& payload) final;

 private:
  // The function's own arguments are what `args` has left.
  virtual Value run(ArgReader& args) = 0;
};

template <class F, class... P>
class ServedListener final : public ServedCall {
 public:
  explicit ServedListener(F fn) : fn_(std::move(fn)) {}

 private:
  Value run(ArgReader& args) override {
    Value result;
    auto keep_result = [&](P... params) {
      if constexpr (std::is_void_v<std::invoke_result_t<const F&, P...>>) {
        std::as_const(fn_)(std::forward<P>(params)...);
      } else {
        result = Value::from(std::as_const(fn_)(std::forward<P>(params)...));
      }
    };
    TypedListener<decltype(keep_result), P...>(std::move(keep_result)).call(args);
    return result;
  }

  F fn_;
};

}  // namespace divisi::detail
