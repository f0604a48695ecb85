#include "kube/client.h"

#include "kube/retry.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {
namespace {

constexpr std::string_view kJson = "application/json";

std::string_view content_type(PatchType type) {
  switch (type) {
    case PatchType::kMerge: return "application/merge-patch+json";
    case PatchType::kJson: return "application/json-patch+json";
    case PatchType::kStrategic: return "application/strategic-merge-patch+json";
    case PatchType::kApply: return "application/apply-patch+yaml";
  }
  DIVISI_CHECK(false, "every patch type has its content type");
}

std::string named(const Resource& resource, std::string_view space, std::string_view name) {
  if (name.empty() && space.empty()) return resource.plural;
  return resource.plural + " " + object_key(space, name.empty() ? "*" : name);
}

Query write_query(const WriteOptions& options) {
  return {{"fieldManager", options.field_manager},
          {"force", options.force ? "true" : ""},
          {"dryRun", options.dry_run ? "All" : ""}};
}

bool is_success(int status) {
  return status >= 200 && status <= 299;
}

// The metadata of an answer, from a server that can; the whole from any other.
constexpr std::string_view kBrief =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

http::Request json_request(std::string method, std::string target, std::string_view type,
                           const json::Value* body, Answer answer = Answer::kWhole) {
  http::Request request{std::move(method), std::move(target), {}, {}};
  request.headers.add("Accept", std::string(answer == Answer::kWhole ? kJson : kBrief));
  if (body != nullptr) {
    request.headers.add("Content-Type", std::string(type));
    request.body = json::print(*body);
  }
  return request;
}

}  // namespace

std::string query_text(const Query& query) {
  std::string text;
  for (const auto& [name, value] : query) {
    if (value.empty()) continue;
    text += text.empty() ? '?' : '&';
    text += name + "=" + http::encode_component(value);
  }
  return text;
}

// One call with all its repetitions.
struct Client::Request {
  std::string what;
  http::Request message;
  Done done;
  bool unread = false;  // a good answer is all that counts
  io::TimePoint deadline;
  RetryPolicy retry;
  std::unique_ptr<http::Call> call;
  std::unique_ptr<io::Timer> pause;
};

// Takes one answer: a good one becomes values while it arrives, of a bad one the text is kept.
class Client::Attempt final : public http::ResponseHandler {
 public:
  Attempt(Client& client, std::shared_ptr<Request> request)
      : client_(client),
        request_(std::move(request)),
        parser_({.max_bytes = client.options_.max_answer_bytes}) {}

  void on_head(http::ResponseHead head) override {
    answer_.status = head.status;
    answer_.headers = std::move(head.headers);
  }
  bool on_body(std::string_view piece) override {
    if (is_success(answer_.status)) {
      if (request_->unread) return true;
      empty_ = empty_ && piece.empty();
      return parser_.write(piece).ok();
    }
    // Enough for any Status; of a page of somebody else only the beginning is shown.
    constexpr std::size_t kErrorBytes = 256 << 10;
    answer_.body.append(piece.substr(0, kErrorBytes - std::min(answer_.body.size(), kErrorBytes)));
    return true;
  }
  void on_done(Status status) override {
    const std::shared_ptr<Request> request = std::move(request_);
    Result<json::Value> value = json::Value();
    if (is_success(answer_.status) && !empty_) {
      // What is no JSON ended the call: that is the error, not its end.
      if (!parser_.write({}).ok()) status = {};
      if (status.ok()) value = parser_.finish();
    }
    if (status.ok()) {
      client_.ended(request, std::move(answer_), std::move(value));
    } else {
      client_.ended(request, failure(std::move(status)), std::move(value));
    }
  }

 private:
  Client& client_;
  std::shared_ptr<Request> request_;
  http::Response answer_;
  json::Parser parser_;
  bool empty_ = true;
};

Client::Client(io::Reactor& reactor, Transport& transport, ClientOptions options)
    : reactor_(reactor), transport_(transport), options_(options) {}

Client::~Client() {
  // A call holds its request and the other way round.
  for (const auto& request : running_) {
    request->call.reset();
    request->pause.reset();
  }
}

void Client::start(const std::shared_ptr<Request>& request) {
  request->deadline = reactor_.now() + options_.deadline;
  request->retry = RetryPolicy(options_.max_tries);
  running_.push_back(request);
  attempt(request);
}

void Client::attempt(const std::shared_ptr<Request>& request) {
  const io::Duration left = request->deadline - reactor_.now();
  http::CallOptions options{.deadline = std::max(left, io::Duration(1))};
  options.limits.max_body_bytes = options_.max_answer_bytes;
  request->call =
      transport_.send(lane_, request->message, options, std::make_shared<Attempt>(*this, request));
}

void Client::ended(const std::shared_ptr<Request>& request, Result<http::Response> outcome,
                   Result<json::Value> value) {
  if (const auto delay = request->retry.delay_after(request->message.method, outcome);
      delay && reactor_.now() + *delay < request->deadline) {
    request->pause = reactor_.after(*delay, [this, request] { attempt(request); });
    return;
  }
  if (!outcome) return finish(request, failure(outcome.error().with_context(request->what)));
  const std::string_view type = outcome->headers.get("Content-Type");
  if (!is_success(outcome->status)) {
    return finish(request,
                  failure(status_of_answer(request->what, outcome->status, type, outcome->body)));
  }
  if (!value) {
    return finish(
        request,
        failure(value.error().code(),
                "{}: the server's answer ({}) cannot be read as JSON: {}; is it a "
                "Kubernetes API server?",
                request->what, type.empty() ? "of no type" : type, value.error().message()));
  }
  finish(request, std::move(value));
}

void Client::finish(const std::shared_ptr<Request>& request, Result<json::Value> outcome) {
  std::erase(running_, request);
  const Done done = std::move(request->done);
  request->call.reset();
  done(std::move(outcome));
}

void Client::get(const Resource& resource, std::string_view space, std::string_view name,
                 std::string_view subresource, Done done) {
  auto request = std::make_shared<Request>();
  request->what = "getting " + named(resource, space, name);
  request->message = json_request("GET", resource.path(space, name, subresource), kJson, nullptr);
  request->done = std::move(done);
  start(request);
}

void Client::get_path(std::string target, Done done, std::string_view accept) {
  auto request = std::make_shared<Request>();
  request->what = "getting " + target;
  request->message = json_request("GET", std::move(target), kJson, nullptr);
  if (!accept.empty()) request->message.headers.set("Accept", std::string(accept));
  request->done = std::move(done);
  start(request);
}

void Client::list(const Resource& resource, std::string_view space, const ListOptions& options,
                  Done done) {
  auto request = std::make_shared<Request>();
  request->what = "listing " + named(resource, space, {});
  const Query query{{"labelSelector", options.label_selector},
                    {"fieldSelector", options.field_selector},
                    {"resourceVersion", options.resource_version},
                    {"limit", options.limit > 0 ? std::to_string(options.limit) : ""},
                    {"continue", options.continue_token}};
  request->message = json_request("GET", resource.path(space) + query_text(query), kJson, nullptr);
  request->done = std::move(done);
  start(request);
}

void Client::create(const Resource& resource, std::string_view space, const json::Value& object,
                    const WriteOptions& options, Done done) {
  const std::string_view own = object.string_at({"metadata", "namespace"});
  if (!own.empty()) space = own;
  std::string_view name = object.string_at({"metadata", "name"});
  auto request = std::make_shared<Request>();
  request->what =
      "creating " +
      named(resource, space, name.empty() ? object.string_at({"metadata", "generateName"}) : name);
  // Only a subresource (a binding, a token) is created below the object's name.
  if (options.subresource.empty()) name = {};
  request->message = json_request(
      "POST", resource.path(space, name, options.subresource) + query_text(write_query(options)),
      kJson, &object, options.answer);
  request->unread = options.answer == Answer::kNone;
  request->done = std::move(done);
  start(request);
}

void Client::update(const Resource& resource, const json::Value& object,
                    const WriteOptions& options, Done done) {
  const std::string_view space = object.string_at({"metadata", "namespace"});
  const std::string_view name = object.string_at({"metadata", "name"});
  auto request = std::make_shared<Request>();
  request->what = "updating " + named(resource, space, name);
  request->message = json_request(
      "PUT", resource.path(space, name, options.subresource) + query_text(write_query(options)),
      kJson, &object, options.answer);
  request->unread = options.answer == Answer::kNone;
  request->done = std::move(done);
  start(request);
}

void Client::patch(const Resource& resource, std::string_view space, std::string_view name,
                   PatchType type, const json::Value& patch, const WriteOptions& options,
                   Done done) {
  auto request = std::make_shared<Request>();
  request->what =
      (type == PatchType::kApply ? "applying " : "patching ") + named(resource, space, name);
  request->message = json_request(
      "PATCH", resource.path(space, name, options.subresource) + query_text(write_query(options)),
      content_type(type), &patch, options.answer);
  request->unread = options.answer == Answer::kNone;
  request->done = std::move(done);
  start(request);
}

void Client::remove(const Resource& resource, std::string_view space, std::string_view name,
                    const DeleteOptions& options, Done done) {
  json::Value body(json::Object{});
  body["kind"] = "DeleteOptions";
  body["apiVersion"] = "v1";
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.dry_run) body["dryRun"] = json::Array{json::Value("All")};
  auto request = std::make_shared<Request>();
  request->what = "deleting " + named(resource, space, name);
  request->message =
      json_request("DELETE", resource.path(space, name), kJson, &body, options.answer);
  request->unread = options.answer == Answer::kNone;
  request->done = std::move(done);
  start(request);
}

namespace {

// Passes a body on as it comes; collects the text of an error.
class StreamHandler final : public http::ResponseHandler {
 public:
  StreamHandler(std::string what, std::function<void(std::string_view)> on_piece,
                std::function<void(Status)> on_done)
      : what_(std::move(what)), on_piece_(std::move(on_piece)), on_done_(std::move(on_done)) {}

  void on_head(http::ResponseHead head) override { head_ = std::move(head); }
  bool on_body(std::string_view piece) override {
    if (good()) {
      on_piece_(piece);
      return true;
    }
    // Enough for any Status; of a page of somebody else only the beginning is shown.
    constexpr std::size_t kErrorBytes = 64 << 10;
    error_.append(piece.substr(0, kErrorBytes - std::min(error_.size(), kErrorBytes)));
    return true;
  }
  void on_done(Status status) override {
    if (status.ok() && !good()) {
      status = status_of_answer(what_, head_.status, head_.headers.get("Content-Type"), error_);
    } else {
      status = status.with_context(what_);
    }
    const auto done = std::move(on_done_);
    done(std::move(status));
  }

 private:
  bool good() const { return is_success(head_.status); }

  const std::string what_;
  const std::function<void(std::string_view)> on_piece_;
  std::function<void(Status)> on_done_;
  http::ResponseHead head_;
  std::string error_;
};

}  // namespace

std::unique_ptr<http::Call> Client::stream(std::string what, std::string target,
                                           http::CallOptions options,
                                           std::function<void(std::string_view)> on_piece,
                                           std::function<void(Status)> on_done) {
  return transport_.send(
      Lane::kWatch, json_request("GET", std::move(target), kJson, nullptr), options,
      std::make_shared<StreamHandler>(std::move(what), std::move(on_piece), std::move(on_done)));
}

}  // namespace divisi::kube
