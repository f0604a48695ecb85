// PodWriter: creates, deletes and marks pods of workers, and finds out what became of a request
// whose answer was lost.
//
//   writer.create(pod, "u-17/collector/0", [](Result<json::Value> made) {...});
//
// Loop only. Every pod carries in an annotation for what it was made. Creating it again, by another
// try or by another server, leads to the same pod and not to a second one.
#pragma once

#include "kube/client.h"
#include "server/first/source.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace divisi::server::first {

// On a worker: what it was made for. Unique within its job.
inline constexpr std::string_view kMadeFor = "divisi/made-for";

class PodWriter {
 public:
  PodWriter(kube::Client& client, Source& source) : client_(client), source_(source) {}

  // kAlreadyExists: the name belongs to another pod. Other failures are those of of_cluster(), in
  // the words of the API server.
  void create(json::Value pod, std::string made_for, std::function<void(Result<json::Value>)> done);

  // Ends well when it is gone, or on its way, whoever did it; the value says whether this call did.
  // `at_once`: with a grace period of 0 in place of the pod's own.
  void remove(const json::Value& pod, bool at_once, std::function<void(Result<bool>)> done);

  // Sets an annotation. kConflict: the pod is gone or, with `unchanged`, somebody has changed it
  // since it was read.
  void annotate(const json::Value& pod, std::string_view key, std::string value, bool unchanged,
                std::function<void(Status)> done);

 private:
  struct Try;
  void create_again(const std::shared_ptr<Try>& one);
  void create_ended(const std::shared_ptr<Try>& one, Result<json::Value> answer);
  void remove_again(const std::shared_ptr<Try>& one);
  void remove_ended(const std::shared_ptr<Try>& one, const Result<json::Value>& answer);
  void annotate_again(const std::shared_ptr<Try>& one);
  void annotate_ended(const std::shared_ptr<Try>& one, const Result<json::Value>& answer);
  // Looks at the pod as it is now; nothing: it is not there.
  void look(const std::shared_ptr<Try>& one,
            std::function<void(const Result<json::Value>& found)> then);
  bool retry(const std::shared_ptr<Try>& one, const Status& why,
             void (PodWriter::*again)(const std::shared_ptr<Try>&));
  kube::Done guarded(std::function<void(Result<json::Value>)> done) const;

  kube::Client& client_;
  Source& source_;
  std::uint64_t next_timer_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<io::Timer>> timers_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server::first
