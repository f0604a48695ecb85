// From the caches to what plan() looks at.
#pragma once

#include "dijob/plan.h"
#include "kube/object.h"

#include <string>
#include <vector>

namespace divisi::dijob {

// "space/job" of a pod or service, from its labels. Of one in a cache without making values of its
// text: it is asked for at every event.
std::string owner_key(const json::Value& object);
std::string owner_key(const kube::Object& object);
bool is_being_deleted(const kube::Object& object);

// Leaves of a pod or service what is looked at here: a cache of thousands stays small.
void strip_owned(json::Value& object);

// Pods and services that only look like the job's are left out.
Observed observe(const json::Value& job, const std::vector<kube::ObjectPtr>& pods,
                 const std::vector<kube::ObjectPtr>& services);

}  // namespace divisi::dijob
