// Profilings: what engines report about a job, as status.profilings and status.progress.
//
// Pure functions. A report is any JSON object; it is merged into what is there as a merge patch is
// (RFC 7396): objects key by key, everything else replaced, null removes.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <string>
#include <string_view>

namespace divisi::server {

// One report for two, to be merged at once. What it cannot say: an object that takes the place of
// something else between the two is merged into what was there before both.
void merge_reports(json::Value& first, const json::Value& second);

// Whether `report` may be added to what the job has: both stay within kMaxBodyBytes. kInvalid.
Status check_size(const json::Value& object, const json::Value& report);

// {"profilings": ..., "progress": ...} to merge into the status. The progress is that of the report
// ("progress", also inside "data"): env_steps_per_second, return and eta_seconds, as short texts
// for the columns of kubectl.
json::Value profilings_patch(const json::Value& report);

// "2h5m" of 7500.3; "" of what is no time to wait for.
std::string short_duration(double seconds);
// Four significant digits, without an exponent where people would not write one.
std::string short_number(double value);

}  // namespace divisi::server
