#include "ding/replicas.h"

#include "http/client.h"
#include "io/reactor.h"
#include "json/value.h"

#include <cstdlib>
#include <future>
#include <memory>

namespace divisi::ding {

namespace {

constexpr std::size_t kMostAnswer = std::size_t{4} << 20;  // thousands of replicas

std::string chosen(const std::string& flag, const char* variable,
                   const std::string& otherwise = "") {
  if (!flag.empty()) return flag;
  const char* text =
      std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return text != nullptr && *text != '\0' ? text : otherwise;
}

json::Value size_of(const Options& options) {
  json::Object size{{"replicas", options.replicas}};
  if (options.action == Action::kAdd) {
    if (options.cpus > 0) size.emplace_back("cpus", options.cpus);
    if (options.gpus > 0) size.emplace_back("gpus", options.gpus);
    if (!options.memory.empty()) size.emplace_back("memory", options.memory);
  }
  return size;
}

Result<http::Url> server_of(const Options& options) {
  const std::string text = chosen(options.server, "KUBERNETES_SERVER_URL");
  if (text.empty()) {
    return failure(Code::kInvalid,
                   "where is di-server? give --server URL or set KUBERNETES_SERVER_URL "
                   "(in a cluster http://di-server.di-system:8080)");
  }
  auto url = http::Url::parse(text.find("://") == std::string::npos ? "http://" + text : text);
  if (!url) return failure(url.error().with_context("the URL of di-server"));
  if (url->tls) {
    return failure(Code::kInvalid, "the URL of di-server, {}: it speaks http, not https", text);
  }
  return url;
}

Result<http::Response> fetch(const http::Url& server, http::Request request) {
  const auto reactor = io::make_reactor();
  std::promise<Result<http::Response>> promise;
  auto answer = promise.get_future();
  std::unique_ptr<http::Client> client;
  std::unique_ptr<http::Call> call;
  reactor->run_on_loop([&] {
    client = http::Client::make(*reactor, {.server = server});
    call = client->fetch(
        std::move(request), {.limits = {.max_body_bytes = kMostAnswer}},
        [&promise](Result<http::Response> response) { promise.set_value(std::move(response)); });
  });
  Result<http::Response> response = answer.get();
  reactor->run_on_loop([&] {
    call.reset();
    client.reset();
  });
  return response;
}

}  // namespace

Result<http::Request> replicas_request(const Options& options) {
  const std::string coordinator = chosen(options.coordinator_name, "KUBERNETES_POD_NAME");
  if (coordinator.empty()) {
    return failure(Code::kInvalid, "of which job? give its coordinator: -cdn POD");
  }
  json::Value body;
  body["namespace"] = chosen(options.space, "KUBERNETES_POD_NAMESPACE", "default");
  body["coordinator"] = coordinator;
  const std::string key = options.role + "s";
  const std::string api = chosen("", "KUBERNETES_SERVER_API_VERSION", "/v1alpha1");
  http::Request request;
  request.headers.add("Content-Type", "application/json");
  request.method = options.action == Action::kDelete ? "DELETE" : "POST";
  request.target = api + (options.action == Action::kRestart ? "/replicas/failed" : "/replicas");
  if (options.action == Action::kRestart) {
    body[key] = json::Array{json::Value(options.restart_pod)};
  } else {
    body[key] = size_of(options);
  }
  request.body = json::print(body);
  return request;
}

Result<std::string> change_replicas(const Options& options) {
  DIVISI_TRY(const http::Url server, server_of(options));
  DIVISI_TRY(http::Request request, replicas_request(options));
  DIVISI_TRY(const http::Response response, fetch(server, std::move(request)));
  const auto answer = json::parse(response.body);
  if (!answer || answer->as_object() == nullptr) {
    return failure(Code::kUnavailable, "{} answered {} without a document: is it di-server?",
                   server.origin(), response.status);
  }
  if (!answer->bool_at({"success"}).value_or(false)) {
    return failure(Code::kUnavailable, "di-server refused (HTTP {}): {}", response.status,
                   answer->string_at({"message"}));
  }
  return json::print(*answer);
}

}  // namespace divisi::ding
