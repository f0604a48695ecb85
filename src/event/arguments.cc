// Run-time halves of how local arguments reach a listener (divisi/detail).
#include "base/status.h"
#include "divisi/detail/listener.h"

namespace divisi::detail {

namespace {

std::string received_types(const LocalCall& call) {
  std::string text;
  for (const ArgRef& arg : call.args) text += (text.empty() ? "" : ", ") + arg.ops->name();
  return text;
}

Value to_value(const ArgRef& arg) {
  if (holds<Value>(arg)) return *static_cast<const Value*>(arg.object);
  if (holds<Buffer>(arg)) return *static_cast<const Buffer*>(arg.object);
  return convert<Value>(arg);
}

}  // namespace

void argument_mismatch(const std::string& expected, const ArgRef& arg) {
  std::string hint;
  if (arg.ops->pack == nullptr) hint = " (no common form: list its fields with DIVISI_FIELDS)";
  throw PayloadError(fmt::format("expected {}, received {}{}", expected, arg.ops->name(), hint));
}

void cannot_copy(const std::string& type) {
  throw PayloadError(
      fmt::format("{} cannot be copied, and this is not the last of several listeners", type));
}

Args local_args(const LocalCall& call) {
  Args args;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    try {
      args.values.push_back(to_value(call.args[i]));
    } catch (const PayloadError& error) {
      rethrow_inside("argument " + std::to_string(i + 1), error);
    }
  }
  if (call.kwargs != nullptr) args.kwargs = *call.kwargs;
  return args;
}

void require_local(const LocalCall& call, std::size_t expected, bool takes_kwargs,
                   std::string (*types)()) {
  if (call.args.size() != expected) {
    throw PayloadError(fmt::format("expected {} arguments ({}), received {} ({})", expected,
                                   types(), call.args.size(), received_types(call)));
  }
  if (call.kwargs != nullptr && !takes_kwargs) {
    std::string names;
    for (const auto& [name, value] : *call.kwargs) names += (names.empty() ? "" : ", ") + name;
    throw PayloadError(fmt::format("keyword arguments ({}) for a listener that takes none", names));
  }
}

const Kwargs& no_kwargs() noexcept {
  static const Kwargs none;
  return none;
}

}  // namespace divisi::detail
