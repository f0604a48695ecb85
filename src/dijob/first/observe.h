// From the caches to what first::plan() looks at.
#pragma once

#include "dijob/first/plan.h"
#include "kube/object.h"

#include <vector>

namespace divisi::dijob::first {

// Leaves of a service what is looked at here: for caches.
void strip_service(json::Value& object);

// Notes in an object whether its spec.cleanPodPolicy belongs to who applies it from a file. Before
// managedFields are taken away.
void mark_policy(json::Value& object);

// Those that only have the labels of the job's are orphans, or left out.
Observed observe(const json::Value& object, const std::vector<kube::ObjectPtr>& pods,
                 const std::vector<kube::ObjectPtr>& services,
                 const std::vector<kube::ObjectPtr>& revisions);

}  // namespace divisi::dijob::first
