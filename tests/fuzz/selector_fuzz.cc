// Any text as a label selector and as a field selector: what is accepted means the same when it is
// written out and read again.
#include "json/selector.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace divisi::json;

template <class Selector>
void check(std::string_view text) {
  const auto selector = Selector::parse(text);
  if (!selector) {
    if (selector.error().message().empty()) std::abort();
    return;
  }
  const auto again = Selector::parse(selector->to_string());
  if (!again || !(*again == *selector)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check<LabelSelector>(text);
  check<FieldSelector>(text);
  if (const auto object = parse(text)) {
    if (const auto selector = LabelSelector::from_object(*object)) {
      (void)selector->matches(*object);
      const auto again = LabelSelector::parse(selector->to_string());
      if (!selector->selects_nothing() && (!again || !(*again == *selector))) std::abort();
    }
  }
  return 0;
}
