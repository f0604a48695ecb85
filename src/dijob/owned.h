// What every object of a job has in common: its name space, its labels, its owner.
#pragma once

#include "dijob/job.h"

#include <string>

namespace divisi::dijob {

// Name, name space, the labels of membership and the reference to the job; what else `metadata`
// has is kept.
void set_owned_metadata(json::Value& metadata, const Job& job, const std::string& name);

// The two labels by which pods of a job are found.
void add_membership(json::Value& map, const Job& job);

}  // namespace divisi::dijob
