// The two patch formats of the IETF: JSON Patch (a list of operations) and JSON Merge Patch (a
// document with nulls for what goes away).
//
//   DIVISI_TRY_STATUS(json::apply_json_patch(pod, patch));
//   json::apply_merge_patch(pod, changes);
#pragma once

#include "json/value.h"

namespace divisi::json {

// RFC 6902. All operations or none: when one fails, `target` is as it was and the message names
// the operation. A failed `test` is kConflict, everything else kInvalid.
Status apply_json_patch(Value& target, const Value& patch);

// RFC 7396. Cannot fail: what is no object in the patch replaces what was there.
void apply_merge_patch(Value& target, const Value& patch);

// The merge patch that turns `from` into `to`. A member that is null in `to` cannot be written
// as a merge patch; applying the result removes it instead.
Value make_merge_patch(const Value& from, const Value& to);

// The operations of RFC 6902 that change `target` as the merge patch would. Kubernetes drops null
// members in the lists of a merge patch, but not in those of a JSON Patch.
Value as_json_patch(const Value& target, const Value& merge_patch);

}  // namespace divisi::json
