// Strategic merge patch: Kubernetes' own patch format, where lists are merged by a key that
// depends on the type of the object.
//
//   DIVISI_TRY_STATUS(json::apply_strategic_patch(pod, {"v1", "Pod"}, patch));
//
// Knows the kinds of core/v1, apps/v1, batch/v1 and what else has a merge key by field. Directives:
// $patch (replace, delete, in lists also per element), $retainKeys, $setElementOrder/FIELD and
// $deleteFromPrimitiveList/FIELD. A field that has no merge key takes a list as a whole.
#pragma once

#include "json/value.h"

#include <string_view>

namespace divisi::json {

struct ObjectType {
  std::string_view api_version;  // "v1", "apps/v1"
  std::string_view kind;
};

// Whether the type takes strategic patches; custom resources take merge patches only.
bool has_strategic_schema(ObjectType type) noexcept;

// All or nothing: on failure `target` is as it was. kInvalid for a type without a schema and for
// a patch that breaks the format; the message names the field.
Status apply_strategic_patch(Value& target, ObjectType type, const Value& patch);

}  // namespace divisi::json
