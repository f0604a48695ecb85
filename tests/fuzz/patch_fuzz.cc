// Any patch on any document: it applies, or it leaves the document alone and says why.
//
// Input: the text of a document, a line feed, the text of a patch, in YAML without line feeds. The
// patch is tried in all three formats.
#include "json/patch.h"
#include "json/strategic.h"
#include "json/yaml.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace divisi::json;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_unchanged_on_failure(const divisi::Status& status, const Value& before,
                                const Value& after) {
  if (status.ok()) return;
  require(after == before && !status.message().empty());
}

void check_json_patch(const Value& document, const Value& patch) {
  Value target = document;
  check_unchanged_on_failure(apply_json_patch(target, patch), document, target);
}

// Applying a merge patch twice is applying it once.
void check_merge_patch(const Value& document, const Value& patch) {
  Value once = document;
  apply_merge_patch(once, patch);
  Value twice = once;
  apply_merge_patch(twice, patch);
  require(once == twice);
  (void)make_merge_patch(document, once);
}

void check_strategic_patch(const Value& document, const Value& patch) {
  for (const ObjectType type : {ObjectType{"v1", "Pod"}, ObjectType{"apps/v1", "Deployment"},
                                ObjectType{"v1", "Node"}, ObjectType{"v1", "Service"}}) {
    Value target = document;
    check_unchanged_on_failure(apply_strategic_patch(target, type, patch), document, target);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  const ParseLimits limits{.max_bytes = std::size_t{64} << 10, .max_depth = 64};
  const auto document = parse_yaml_one(text.substr(0, line), limits);
  const auto patch = parse_yaml_one(text.substr(std::min(line + 1, size)), limits);
  if (!document || !patch) return 0;
  check_json_patch(*document, *patch);
  check_merge_patch(*document, *patch);
  check_strategic_patch(*document, *patch);
  return 0;
}
