#include "runtime/job_server.h"

#include "base/log.h"
#include "io/tls.h"
#include "runtime/secret_file.h"

#include <charconv>
#include <cstdlib>
#include <utility>

namespace divisi::runtime {

namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// The names of Kubernetes objects have at most 253 characters.
constexpr std::size_t kLongestName = 253;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && text.find('/') == std::string_view::npos;
}

}  // namespace

std::unique_ptr<http::Client> JobServer::connect(io::Reactor& reactor) const {
  http::ClientOptions options;
  options.server = url;
  options.tls = [] { return io::TlsContext::client({}); };
  options.max_connections = 1;
  return http::Client::make(reactor, std::move(options));
}

http::Request JobServer::request(std::string method, std::string_view target) const {
  http::Request request{.method = std::move(method), .target = job + std::string(target)};
  if (!token.empty()) request.headers.add("Authorization", "Bearer " + token);
  return request;
}

Result<std::optional<JobServer>> job_server_of_environment() {
  const std::string_view url = variable("DI_SERVER_URL");
  const std::string_view job = variable("DI_JOB_ID");
  if (url.empty() || job.empty()) return std::optional<JobServer>();
  JobServer server;
  auto parsed = http::Url::parse(url);
  if (!parsed) return failure(parsed.error().with_context("DI_SERVER_URL"));
  server.url = *std::move(parsed);
  const std::size_t slash = std::min(job.find('/'), job.size());
  const std::string_view space = job.substr(0, slash);
  const std::string_view name = job.substr(std::min(slash + 1, job.size()));
  if (!is_name(space) || !is_name(name)) {
    return failure(Code::kInvalid, "DI_JOB_ID: '{}' is not namespace/name",
                   log::printable(std::string(job.substr(0, kLongestName))));
  }
  server.job = fmt::format("/v2alpha1/job/{}/{}", http::encode_component(space),
                           http::encode_component(name));
  if (const std::string_view rank = variable("DI_RANK"); !rank.empty()) {
    const char* const begin = rank.data();
    const char* const end = begin + rank.size();
    const auto read = std::from_chars(begin, end, server.rank);
    if (read.ec != std::errc() || read.ptr != end || server.rank < 0) {
      return failure(Code::kInvalid, "DI_RANK: '{}' is not a rank",
                     log::printable(std::string(rank.substr(0, 40))));
    }
  }
  if (const std::string_view path = variable("DIVISI_SECRET_FILE"); !path.empty()) {
    DIVISI_TRY(Secret secret, read_secret_file(std::string(path), "DIVISI_SECRET_FILE"));
    server.token = std::move(secret.value);
  }
  return std::optional(std::move(server));
}

}  // namespace divisi::runtime
