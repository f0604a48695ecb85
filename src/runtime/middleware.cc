#include "divisi/middleware.h"

#include "base/log.h"
#include "base/status.h"
#include "runtime/fiber.h"

#include <fmt/format.h>

#include <atomic>
#include <cxxabi.h>
#include <dlfcn.h>

namespace divisi {
namespace {

std::string demangle(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(text.get()) : std::string(symbol);
}

}  // namespace

namespace detail {

void throw_empty_step() {
  throw UsageError("a middleware must be callable, but this one is empty (a null function)");
}

void throw_wrong_context(const std::type_info& wanted, const Context& received) {
  throw UsageError(fmt::format(
      "this middleware takes a context of type {}, but the task runs with a context of type {}; "
      "pass the right one as StartOptions::ctx",
      name_of_type(wanted), name_of_type(typeid(received))));
}

std::string name_of_type(const std::type_info& type) {
  return demangle(type.name());
}

// Two functions of one signature have one type, so the type alone would merge their records.
std::string name_of_function(const void* address, const std::type_info& type) {
  Dl_info info{};
  if (::dladdr(address, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == address) {
    const std::string full = demangle(info.dli_sname);
    return full.substr(0, full.find('('));
  }
  return fmt::format("{}@{}", name_of_type(type), fmt::ptr(address));
}

}  // namespace detail

struct Middleware::State {
  std::string name;
  Function fn;
  bool is_void = false;
  // Set by the call that logs the warning about a second suspension; pairs with nothing.
  std::atomic<bool> warned{false};
};

Middleware::Middleware(std::string name, Function fn, bool is_void)
    : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->fn = std::move(fn);
  state_->is_void = is_void;
}

const std::string& Middleware::name() const noexcept {
  return state_->name;
}
bool Middleware::is_void() const noexcept {
  return state_->is_void;
}
void Middleware::operator()(Context& ctx) const {
  state_->fn(ctx);
}

Middleware Middleware::renamed(std::string name) const {
  return {std::move(name), state_->fn, state_->is_void};
}

struct MiddlewareCall::Impl {
  Impl(Middleware middleware, Context& ctx)
      : fn(std::move(middleware)), fiber([this, &ctx] { fn(ctx); }) {}

  Middleware fn;
  runtime::Fiber fiber;
};

MiddlewareCall::MiddlewareCall(Middleware fn, Context& ctx)
    : impl_(std::make_unique<Impl>(std::move(fn), ctx)) {}
MiddlewareCall::MiddlewareCall(MiddlewareCall&&) noexcept = default;
MiddlewareCall& MiddlewareCall::operator=(MiddlewareCall&&) noexcept = default;
MiddlewareCall::~MiddlewareCall() = default;

bool MiddlewareCall::forward() {
  return impl_->fiber.resume();
}

void MiddlewareCall::backward() {
  if (!suspended()) return;
  const bool suspended_again = impl_->fiber.resume();
  if (!suspended_again) return;
  if (!impl_->fn.state_->warned.exchange(true)) {
    log::warning(
        "middleware {} suspended twice in one iteration; it is resumed once only, what follows "
        "its second suspension never runs",
        name());
  }
  impl_.reset();
}

bool MiddlewareCall::suspended() const noexcept {
  return impl_ != nullptr && impl_->fiber.suspended();
}

const std::string& MiddlewareCall::name() const noexcept {
  return impl_->fn.name();
}

void suspend() {
  runtime::Fiber::suspend();
}

}  // namespace divisi
