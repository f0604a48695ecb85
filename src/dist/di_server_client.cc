#include "dist/di_server_client.h"

#include "dist/envelope.h"
#include "dist/peer_client.h"
#include "http/client.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

namespace divisi::dist {
namespace {

constexpr std::size_t kMostReplicas = 100'000;  // di-server's own bound
constexpr std::size_t kLongestReplicaUrl = 512;
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

json::Value to_json(const Size& size) {
  json::Object object{{"replicas", size.replicas}};
  if (!size.cpus.is_null()) object.emplace_back("cpus", size.cpus);
  if (!size.gpus.is_null()) object.emplace_back("gpus", size.gpus);
  if (!size.memory.is_null()) object.emplace_back("memory", size.memory);
  return object;
}

Result<std::vector<std::string>> read_urls(const json::Value& data, std::string_view key) {
  std::vector<std::string> urls;
  const auto add = [&](std::string_view url) {
    const bool good = !url.empty() && url.size() <= kLongestReplicaUrl &&
                      std::ranges::all_of(url, [](char c) { return c > ' ' && c < 127; });
    if (good) urls.emplace_back(url);
    return good && urls.size() <= kMostReplicas;
  };
  const json::Value* list = data.find(key);
  bool good = true;
  if (list == nullptr || list->is_null()) return urls;
  if (const json::Array* array = list->as_array()) {
    for (const json::Value& each : *array) {
      good = good && each.as_string() != nullptr && add(*each.as_string());
    }
  } else if (const json::Object* object = list->as_object()) {
    for (const auto& [url, unused] : *object) good = good && add(url);
  } else {
    good = false;
  }
  if (!good) {
    return failure(Code::kInvalid, "answer of di-server: '{}' must be a list of host:port", key);
  }
  return urls;
}

class HttpDiServerClient final : public DiServerClient {
 public:
  HttpDiServerClient(io::Reactor& reactor, DiServerOptions options, http::ClientOptions client)
      : options_(std::move(options)), client_(http::Client::make(reactor, std::move(client))) {}

  void post_demand(const Demand& demand, Done done) override {
    send("POST", route(), body_of(demand), std::move(done));
  }

  void get(Done done) override {
    const std::string target = fmt::format(
        "{}?namespace={}&{}={}", route(), http::encode_component(options_.space),
        options_.aggregator ? "aggregator" : "coordinator", http::encode_component(options_.pod));
    send("GET", target, json::Object{}, std::move(done));
  }

  void remove(const Demand& demand, Done done) override {
    send("DELETE", route(), body_of(demand), std::move(done));
  }

  void report_failed(const std::vector<std::string>& collectors,
                     const std::vector<std::string>& learners, Done done) override {
    json::Value body = who();
    body["collectors"] = json::Array(collectors.begin(), collectors.end());
    body["learners"] = json::Array(learners.begin(), learners.end());
    send("POST", route() + "/failed", body, std::move(done));
  }

 private:
  std::string route() const { return options_.api_version + "/replicas"; }
  json::Value who() const {
    return json::Object{{"namespace", options_.space}, {"coordinator", options_.pod}};
  }
  json::Value body_of(const Demand& demand) const {
    json::Value body = who();
    body["collectors"] = to_json(demand.collectors);
    body["learners"] = to_json(demand.learners);
    return body;
  }

  void send(std::string method, std::string target, const json::Value& body, Done done) {
    http::CallOptions call;
    call.deadline = options_.connect_timeout + options_.answer_timeout;
    call.limits.max_body_bytes = kMaxAnswerBytes;
    const std::uint64_t id = next_++;
    const std::string name = fmt::format("{} {}", method, target);
    calls_[id] = client_->fetch(
        {std::move(method),
         std::move(target),
         {{"Content-Type", "application/json"}},
         json::print(body)},
        call, [this, id, name, done = std::move(done)](const Result<http::Response>& answer) {
          const auto over = calls_.extract(id);
          done(read(name, answer));
        });
  }

  Result<Replicas> read(std::string_view name, const Result<http::Response>& answer) const {
    if (!answer) return failure(answer.error());
    const PeerReply reply = read_reply(*answer);
    if (!reply.success) {
      const Code code = answer->status == 404 ? Code::kNotFound : Code::kUnavailable;
      return failure(code, "di-server {}: {}: {}", options_.url, name, reply.text());
    }
    return parse_replicas(reply.data);
  }

  const DiServerOptions options_;
  std::map<std::uint64_t, std::unique_ptr<http::Call>> calls_;
  std::uint64_t next_ = 0;
  std::unique_ptr<http::Client> client_;  // last: it ends its calls first
};

}  // namespace

Result<DiServerOptions> di_server_from_environment(std::string_view url,
                                                   std::string_view api_version) {
  DiServerOptions options;
  options.url = variable("KUBERNETES_SERVER_URL");
  if (options.url.empty()) options.url = url;
  if (options.url.empty()) {
    return failure(Code::kInvalid,
                   "the address of di-server is unknown: set KUBERNETES_SERVER_URL "
                   "or system_addr in the configuration");
  }
  if (const auto parsed = parse_peer_url(options.url); !parsed) {
    return failure(parsed.error().with_context("address of di-server"));
  }
  if (std::string version = variable("KUBERNETES_SERVER_API_VERSION"); !version.empty()) {
    options.api_version = std::move(version);
  } else if (!api_version.empty()) {
    options.api_version = api_version;
  }
  if (!options.api_version.starts_with('/')) options.api_version.insert(0, "/");
  while (options.api_version.ends_with('/')) options.api_version.pop_back();
  if (std::string space = variable("KUBERNETES_POD_NAMESPACE"); !space.empty()) {
    options.space = std::move(space);
  }
  options.pod = variable("KUBERNETES_POD_NAME");
  return options;
}

Result<Replicas> parse_replicas(const json::Value& data) {
  if (data.as_object() == nullptr) {
    return failure(Code::kInvalid, "answer of di-server: 'data' must be an object, not {}",
                   data.kind());
  }
  Replicas replicas;
  DIVISI_TRY(replicas.collectors, read_urls(data, "collectors"));
  DIVISI_TRY(replicas.learners, read_urls(data, "learners"));
  replicas.data = data;
  return replicas;
}

std::string pod_of_url(std::string_view url) {
  if (const auto scheme = url.find("://"); scheme != std::string_view::npos) {
    url.remove_prefix(scheme + 3);
  }
  const std::string_view host = url.substr(0, url.find(':'));
  const auto dot = host.rfind('.');
  return std::string(dot == std::string_view::npos ? host : host.substr(0, dot));
}

Result<std::unique_ptr<DiServerClient>> DiServerClient::make(io::Reactor& reactor,
                                                             DiServerOptions options) {
  http::ClientOptions client;
  DIVISI_TRY(client.server, parse_peer_url(options.url));
  client.connect_timeout = options.connect_timeout;
  client.max_connections = 4;
  client.keep_alive = std::chrono::seconds(15);
  return std::make_unique<HttpDiServerClient>(reactor, std::move(options), std::move(client));
}

}  // namespace divisi::dist
