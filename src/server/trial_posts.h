// What a trial of the tuner posts about itself: its reports and its result, kept as status.trial of
// its job, so that they are there as long as the job is and the tuner reads them where it watches.
//
//   {"reports": {"120": {"loss": 0.5}}, "result": {"name": "result.pkl", "bytes": "<base64>"},
//    "trouble": "why there is no result"}
//
// Pure functions. A post that is repeated changes nothing.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstddef>

namespace divisi::server {

// Objects of the cluster are kept whole in many memories: reports beyond these bounds push the
// oldest ones out.
inline constexpr std::size_t kMaxReports = 1000;
inline constexpr std::size_t kMaxReportBytes = std::size_t{48} << 10;
inline constexpr std::size_t kMaxFiguresPerReport = 64;
// Of a result file; as base64 it has room in a body.
inline constexpr std::size_t kMaxTrialResult = std::size_t{32} << 10;
inline constexpr std::size_t kMaxTrouble = 1024;

// Whether the post is one. kInvalid: what in it is not, and what it should be.
Status check_trial_post(const json::Value& post);

// A merge patch of the status that adds the post to what the job has.
json::Value trial_patch(const json::Value& object, const json::Value& post);

}  // namespace divisi::server
