// Makes the objects of a job in a cluster, and removes them.
//
// The owner (the DIJob, or the first Job) comes first, everything else with an owner reference to
// it, last what the pods wait for (the package, the secret): no worker begins before all is there,
// and whatever is deleted or killed in between, the owner takes the rest with it.
#pragma once

#include "base/status.h"
#include "run/cluster_link.h"
#include "run/job.h"
#include "run/package.h"

#include <chrono>

namespace divisi::run {

// `job` has its name space. Keeps uids in `record.data` and saves it. After a failure nothing was
// left. kAlreadyExists: somebody else's job has the name; it is left alone.
Status create_job(ClusterLink& link, const RunJob& job, const PackageCut* package,
                  const JobRecords& records, JobRecord& record);

// Deletes what the record's run has made, at once where `grace_seconds` is 0. Does not wait.
Status delete_objects(ClusterLink& link, BackendKind kind, const JobRecord& record,
                      std::optional<std::int64_t> grace_seconds = std::nullopt);

// Until none of it, pods included, is there. kTimeout names what stays.
Status wait_until_gone(ClusterLink& link, BackendKind kind, const JobRecord& record,
                       std::chrono::seconds within);

// The DIJob or the Jobs of the record that are there.
Result<std::vector<json::Value>> find_owners(ClusterLink& link, BackendKind kind,
                                             const JobRecord& record);

}  // namespace divisi::run
