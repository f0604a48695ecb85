#include "server/job_writer.h"

#include "dijob/names.h"
#include "json/patch.h"
#include "server/envelope.h"

#include <utility>

namespace divisi::server {
namespace {

// A client waits for its answer: longer than any storm of conflicts, shorter than its patience.
constexpr auto kGiveUpAfter = std::chrono::seconds(20);

}  // namespace

// Queues stay where they are until they are empty, and callbacks run only while a queue is not.
template <class Function>
auto JobWriter::guarded(Queue& queue, Function function) {
  return [this, &queue, function, alive = std::weak_ptr(alive_)](auto&&... outcome) {
    if (!alive.expired()) (this->*function)(queue, std::forward<decltype(outcome)>(outcome)...);
  };
}

void JobWriter::write(const JobId& id, Change change, std::function<void(Status)> done) {
  const auto [entry, fresh] = queues_.try_emplace(id.key(), id);
  Queue& queue = entry->second;
  queue.operations.push_back(
      {std::move(change), std::move(done), client_.reactor().now() + kGiveUpAfter});
  if (fresh) later(queue);
}

void JobWriter::later(Queue& queue) {
  client_.reactor().post(guarded(queue, &JobWriter::run));
}

void JobWriter::run(Queue& queue) {
  queue.pause.reset();
  if (auto newest = std::exchange(queue.newest, std::nullopt)) {
    return apply(queue, {*std::move(newest), true});
  }
  const auto read = [this, &queue, alive = std::weak_ptr(alive_)](const Result<JobView>& job) {
    if (alive.expired()) return;
    if (!job) return finish(queue, job.error());
    apply(queue, *job);
  };
  if (queue.behind) return source_.read_job_live(queue.id, read);
  source_.find_job(queue.id, read);
}

void JobWriter::apply(Queue& queue, const JobView& job) {
  const json::Value& object = job.object;
  auto change = queue.operations.front().change(object);
  if (!change && !job.live) {  // nobody is refused on the word of a cache
    queue.behind = true;
    return later(queue);
  }
  if (!change) return finish(queue, std::move(change).error());
  std::optional<Patch> patch = *std::move(change);
  if (!patch) return finish(queue, {});
  patch->body["metadata"]["resourceVersion"] = object.string_at({"metadata", "resourceVersion"});
  kube::WriteOptions options;
  options.subresource = patch->subresource;
  // A merge patch would lose `backoffLimit: null` of a task.
  const bool of_spec = patch->subresource.empty();
  if (of_spec) patch->body = json::as_json_patch(object, patch->body);
  client_.patch(dijob::dijobs(), queue.id.space, queue.id.name,
                of_spec ? kube::PatchType::kJson : kube::PatchType::kMerge, patch->body, options,
                guarded(queue, &JobWriter::wrote));
}

void JobWriter::wrote(Queue& queue, Result<json::Value> answer) {
  if (answer) {
    queue.newest = *std::move(answer);
    queue.backoff.reset();
    return finish(queue, {});
  }
  if (answer.error().code() != Code::kConflict ||
      client_.reactor().now() >= queue.operations.front().give_up) {
    return finish(queue, of_cluster(answer.error()));
  }
  queue.behind = true;
  queue.pause = client_.reactor().after(queue.backoff.next(), [this, &queue] { run(queue); });
}

void JobWriter::finish(Queue& queue, Status outcome) {
  const auto done = std::move(queue.operations.front().done);
  queue.operations.pop_front();
  if (queue.operations.empty()) {
    queues_.erase(queue.id.key());
  } else {
    later(queue);  // not from here: the operations that wait may be many
  }
  done(std::move(outcome));
}

}  // namespace divisi::server
