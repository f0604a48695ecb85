#include "server/profiling_writer.h"

#include "base/log.h"
#include "server/profilings.h"

#include <utility>

namespace divisi::server {
namespace {

// `second` came later; null stands for no report at all.
void add_report(json::Value& first, const json::Value& second) {
  if (!second.is_null()) merge_reports(first, second);
}

}  // namespace

Status ProfilingWriter::report(const JobId& id, const json::Value& object,
                               const json::Value& report) {
  const std::string key = id.key();
  const std::string_view uid = object.string_at({"metadata", "uid"});
  const auto found = jobs_.find(key);
  const bool known = found != jobs_.end() && found->second.uid == uid;

  json::Value all;  // that the job does not have yet
  if (known) {
    add_report(all, found->second.writing);
    add_report(all, found->second.waiting);
  }
  add_report(all, report);
  DIVISI_TRY_STATUS(check_size(object, all));

  Job& job = jobs_[key];
  if (!known) {
    job.id = id;
    job.uid = std::string(uid);
    job.waiting = {};
  }
  add_report(job.waiting, report);
  if (job.writing.is_null() && !job.timer) write(job);
  return {};
}

void ProfilingWriter::write(Job& job) {
  job.writing = std::exchange(job.waiting, {});
  const auto change = [report = job.writing,
                       uid = job.uid](const json::Value& object) -> Result<std::optional<Patch>> {
    if (object.string_at({"metadata", "uid"}) != uid) {
      return failure(Code::kNotFound, "the job was made anew");
    }
    // Other servers report too, and their caches did not show it.
    if (const Status fits = check_size(object, report); !fits.ok()) return failure(fits);
    Patch patch;
    patch.subresource = "status";
    patch.body["status"] = profilings_patch(report);
    return patch;
  };
  const auto done = [this, key = job.id.key(), uid = job.uid,
                     alive = std::weak_ptr(alive_)](const Status& status) {
    if (!alive.expired()) wrote(key, uid, status);
  };
  writer_.write(job.id, change, done);
}

void ProfilingWriter::wrote(const std::string& key, const std::string& uid, const Status& outcome) {
  Job& job = jobs_.at(key);
  json::Value report = std::exchange(job.writing, {});
  // A job that is gone, or has no room, will not take it later either.
  const bool for_good = outcome.code() == Code::kNotFound || outcome.code() == Code::kInvalid ||
                        job.uid != uid || drained_;
  if (!outcome.ok()) {
    log::warning("profilings of job {}{}: {}", key, for_good ? "" : " (will try again)",
                 outcome.message());
  }
  if (!outcome.ok() && !for_good) {
    add_report(report, job.waiting);
    job.waiting = std::move(report);
  }
  if (!drained_) {
    job.timer = reactor_.after(every_, [this, key] { due(key); });
  } else if (!job.waiting.is_null()) {
    write(job);
  } else {
    jobs_.erase(key);
    tell_if_drained();
  }
}

void ProfilingWriter::due(const std::string& key) {
  const auto found = jobs_.find(key);
  const std::unique_ptr<io::Timer> timer = std::move(found->second.timer);
  if (found->second.waiting.is_null()) {
    jobs_.erase(found);
  } else {
    write(found->second);
  }
}

void ProfilingWriter::drain(std::function<void()> done) {
  drained_ = std::move(done);
  for (auto entry = jobs_.begin(); entry != jobs_.end();) {
    Job& job = entry->second;
    job.timer.reset();
    if (!job.writing.is_null()) {
      ++entry;
    } else if (job.waiting.is_null()) {
      entry = jobs_.erase(entry);
    } else {
      write(job);
      ++entry;
    }
  }
  tell_if_drained();
}

void ProfilingWriter::tell_if_drained() {
  if (jobs_.empty() && drained_) reactor_.post(std::exchange(drained_, nullptr));
}

}  // namespace divisi::server
