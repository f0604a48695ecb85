#include "run/job_api.h"

#include "http/client.h"
#include "kube/blocking.h"
#include "kube/client.h"
#include "kube/resource.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>

namespace divisi::run {
namespace {

constexpr const char* kSocketName = "api";
constexpr int kMostTries = 20;

const kube::Resource& dijob_resource() {
  static const kube::Resource resource{.group = "diengine.opendilab.org",
                                       .version = "v2alpha1",
                                       .plural = "dijobs",
                                       .kind = "DIJob"};
  return resource;
}

class SocketTransport final : public kube::Transport {
 public:
  SocketTransport(io::Reactor& reactor, const io::Address& place) {
    http::ClientOptions options;
    options.server.host = "localhost";
    options.server.port = 80;
    options.place = place;
    client_ = http::Client::make(reactor, std::move(options));
  }
  std::unique_ptr<http::Call> send(kube::Lane, http::Request request, http::CallOptions options,
                                   std::shared_ptr<http::ResponseHandler> handler) override {
    return client_->send(std::move(request), options, std::move(handler));
  }

 private:
  std::unique_ptr<http::Client> client_;
};

class SocketApi final : public JobApi {
 public:
  explicit SocketApi(JobSocket socket) : socket_(std::move(socket)), reactor_(io::make_reactor()) {
    reactor_->run_on_loop([this] {
      transport_ = std::make_unique<SocketTransport>(*reactor_, socket_.address());
      client_ = std::make_unique<kube::Client>(*reactor_, *transport_);
    });
  }
  ~SocketApi() override {
    reactor_->run_on_loop([this] {
      client_.reset();
      transport_.reset();
    });
  }

  Status edit_job(const std::string& space, const std::string& name, const Edit& edit) override {
    Status status;
    for (int i = 0; i < kMostTries; ++i) {
      status = try_edit(space, name, edit);
      if (status.code() != Code::kConflict) break;
    }
    return status;
  }

 private:
  // A refusal without what was being done, which the reader knows.
  static Status plain(const Status& status) {
    const std::size_t end = status.message().find(": ");
    if (status.code() != Code::kInvalid || end == std::string::npos) return status;
    return {status.code(), status.message().substr(end + 2)};
  }

  Status try_edit(const std::string& space, const std::string& name, const Edit& edit) {
    auto job = kube::wait_for<json::Value>(*reactor_, [&](kube::Done done) {
      client_->get(dijob_resource(), space, name, {}, std::move(done));
    });
    if (!job) return job.error();
    auto changed = edit(*std::move(job));
    if (!changed) return changed.error();
    const auto written = kube::wait_for<json::Value>(*reactor_, [&](kube::Done done) {
      client_->update(dijob_resource(), *changed, {}, std::move(done));
    });
    return written ? Status() : plain(written.error());
  }

  const JobSocket socket_;
  std::unique_ptr<io::Reactor> reactor_;
  std::unique_ptr<SocketTransport> transport_;
  std::unique_ptr<kube::Client> client_;
};

}  // namespace

io::Address JobSocket::address() const {
  io::Address where;
  where.scheme = io::Address::Scheme::kIpc;
  where.path = fmt::format("/proc/self/fd/{}/{}", folder.get(), kSocketName);
  return where;
}

Result<JobSocket> job_socket(const std::string& folder) {
  JobSocket socket;
  socket.folder.reset(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (socket.folder) return socket;
  return failure(Code::kUnavailable, "opening {}: {}", folder, errno_text(errno));
}

Result<std::unique_ptr<JobApi>> JobApi::open(const std::string& folder) {
  DIVISI_TRY(JobSocket socket, job_socket(folder));
  return std::make_unique<SocketApi>(std::move(socket));
}

}  // namespace divisi::run
