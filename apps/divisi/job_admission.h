// What the API of a local DIJob refuses to write: a job that the operator would not apply. On a
// cluster an edit like that is taken and refused later, by a condition; here somebody waits for the
// answer.
#pragma once

#include "base/status.h"
#include "http/message.h"

namespace divisi::apps {

// In the operator's own words. Requests that write no whole DIJob are not its business.
Status check_job_write(const http::Request& request);

}  // namespace divisi::apps
