// From the caches to what plan() looks at.
#pragma once

#include "dijob/generation.h"
#include "dijob/plan.h"
#include "kube/informer.h"
#include "kube/object.h"

#include <string>
#include <vector>

namespace divisi::dijob {

// "space/job" of a pod or service, from its labels. Of one in a cache without making values of its
// text: it is asked for at every event.
std::string owner_key(Generation generation, const json::Value& object);
std::string owner_key(Generation generation, const kube::Object& object);
bool is_being_deleted(const kube::Object& object);

// Leaves of a pod or service what is looked at here: a cache of thousands stays small.
void strip_owned(json::Value& object);

// Leaves of a saved spec what is looked at here.
SavedSpec read_saved_spec(const json::Value& revision);

// Those that only look like the job's are orphans, or left out.
Observed observe(const json::Value& job, const std::vector<kube::ObjectPtr>& pods,
                 const std::vector<kube::ObjectPtr>& services,
                 const std::vector<kube::ObjectPtr>& revisions);

// Where an older job may be whose pods have the names of this one's: keys of jobs.
std::vector<std::string> possible_collisions(const Job& job);
// Whether some pod of one has the name of a pod of the other.
bool collide(const Job& a, const Job& b);
// The name of an older job that lives, and some of whose pods have the names of this one's; "" for
// none.
std::string older_collision(const Job& job, const kube::Informer& jobs);

}  // namespace divisi::dijob
