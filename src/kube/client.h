// Client: the verbs of the Kubernetes API.
//
//   client.get(resources::pods(), "default", "web-0", {}, [](Result<json::Value> pod) {...});
//
// Loop only; every callback runs on the loop, never inside the call that was given it. Destroying
// the client ends what runs, without callbacks. Reads that fail for a moment are repeated;
// any request is when the server says that it did not handle it (429, or 5xx with Retry-After).
// Error messages are the server's own, behind what was being done: "creating pods default/web-0:
// pods "web-0" already exists".
#pragma once

#include "base/status.h"
#include "http/client.h"
#include "io/reactor.h"
#include "json/value.h"
#include "kube/resource.h"
#include "kube/transport.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::kube {

struct ListOptions {
  std::string label_selector{};
  std::string field_selector{};
  std::string resource_version{};  // empty: the newest state
  std::int64_t limit = 0;          // of one page; 0: all at once
  std::string continue_token{};
};

enum class PatchType { kMerge, kJson, kStrategic, kApply };

// What of the object the server answers a write with: less to write for it, and to read for us.
enum class Answer { kWhole, kMetadata, kNone };

struct WriteOptions {
  std::string subresource{};  // "status", "scale"
  std::string field_manager{};
  bool force = false;  // kApply: take over fields that others own
  bool dry_run = false;
  Answer answer = Answer::kWhole;
};

struct DeleteOptions {
  std::optional<std::int64_t> grace_seconds{};
  std::string propagation{};  // "Background", "Foreground", "Orphan"; empty: the server's default
  std::string uid{};          // deletes only this very object: kConflict otherwise
  std::string resource_version{};
  bool dry_run = false;
  Answer answer = Answer::kWhole;
};

struct ClientOptions {
  io::Duration deadline = std::chrono::seconds(30);  // of a call with all its repetitions
  int max_tries = 8;
  std::size_t max_answer_bytes = std::size_t{256} << 20;  // a list in one piece
};

using Done = std::function<void(Result<json::Value>)>;
using Query = std::vector<std::pair<std::string, std::string>>;

class Client {
 public:
  Client(io::Reactor& reactor, Transport& transport, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void get(const Resource& resource, std::string_view space, std::string_view name,
           std::string_view subresource, Done done);
  // One page; the list object, whose items lack kind and apiVersion as the server sends them.
  void list(const Resource& resource, std::string_view space, const ListOptions& options,
            Done done);
  // `object` goes to the name space and name that its metadata say (`space` where they say none).
  void create(const Resource& resource, std::string_view space, const json::Value& object,
              const WriteOptions& options, Done done);
  // Replaces it; kConflict when it carries a resourceVersion that is no longer the newest.
  void update(const Resource& resource, const json::Value& object, const WriteOptions& options,
              Done done);
  void patch(const Resource& resource, std::string_view space, std::string_view name,
             PatchType type, const json::Value& patch, const WriteOptions& options, Done done);
  void remove(const Resource& resource, std::string_view space, std::string_view name,
              const DeleteOptions& options, Done done);
  // Any path of the API that answers with JSON: "/version". `accept`: another form of the answer.
  void get_path(std::string target, Done done, std::string_view accept = {});
  // The same over connections that nothing else uses: for leases.
  void use_lane(Lane lane) { lane_ = lane; }

  // `tell` hears what a Reflector of this client may not list, at each of its tries; null: nobody.
  void on_refused(std::function<void(const Status&)> tell) { on_refused_ = std::move(tell); }
  void refused(const Status& why) const {
    if (on_refused_) on_refused_(why);
  }

  // A stream of the server (watch, log), as it comes, without repetition: what answers with an
  // error status ends with that error. Destroying the call ends it.
  [[nodiscard]] std::unique_ptr<http::Call> stream(
      std::string what, std::string target, http::CallOptions options,
      std::function<void(std::string_view piece)> on_piece, std::function<void(Status)> on_done);

  io::Reactor& reactor() noexcept { return reactor_; }
  Transport& transport() noexcept { return transport_; }

 private:
  class Attempt;
  struct Request;
  void start(const std::shared_ptr<Request>& request);
  void attempt(const std::shared_ptr<Request>& request);
  void ended(const std::shared_ptr<Request>& request, Result<http::Response> outcome,
             Result<json::Value> value);
  void finish(const std::shared_ptr<Request>& request, Result<json::Value> outcome);

  io::Reactor& reactor_;
  Transport& transport_;
  const ClientOptions options_;
  Lane lane_ = Lane::kCall;
  std::function<void(const Status&)> on_refused_;
  std::vector<std::shared_ptr<Request>> running_;
};

// "?a=b&c=d" of those that have a value; "" for none.
std::string query_text(const Query& query);

// What an answer that is no success means. `what` says what was being done.
Status status_of_answer(std::string_view what, int http_status, std::string_view content_type,
                        std::string_view body);
// The same for the Status object that a watch sends as ERROR.
Status status_of_object(std::string_view what, const json::Value& object);

}  // namespace divisi::kube
