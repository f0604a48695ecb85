#include "ours_node.h"

#include "endpoint.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace divisi::bench {
namespace {

constexpr std::chrono::seconds kDeadline{30};
constexpr std::string_view kIpcScheme = "ipc://";

// An ipc node chooses its own address, so it is told to the others through a file.
std::string address_file(const std::string& run, int id) {
  return ipc_path(run, "node-" + std::to_string(id));
}

void publish(const std::string& run, int id, const std::string& address) {
  const std::string path = address_file(run, id);
  std::ofstream(path + ".new") << address;
  std::filesystem::rename(path + ".new", path);
}

std::string published(const std::string& run, int id) {
  std::string address;
  std::ifstream(address_file(run, id)) >> address;
  return address;
}

std::string wait_for_address(const OursNodeOptions& options, int id) {
  if (options.tcp) return "tcp://127.0.0.1:" + std::to_string(tcp_port(options.run, id));
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  for (;;) {
    std::string address = published(options.run, id);
    if (!address.empty()) return address;
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("node " + std::to_string(id) + " did not come up");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ParallelOptions parallel_options(const OursNodeOptions& options) {
  ParallelOptions parallel;
  parallel.n_parallel_workers = 1;
  parallel.protocol = options.tcp ? "tcp" : "ipc";
  if (options.tcp) {
    parallel.address = "127.0.0.1";
    parallel.ports = {tcp_port(options.run, options.id)};
  }
  for (const int id : options.dial) parallel.attach_to.push_back(wait_for_address(options, id));
  parallel.node_ids = {options.id};
  parallel.job_id = "bench-" + options.run;
  parallel.secret = options.run;
  parallel.log_level = "error";
  return parallel;
}

}  // namespace

OursNode::OursNode(OursNodeOptions options) {
  runner_ = std::thread([this, parallel = parallel_options(options)] {
    bool entered = false;
    try {
      Parallel::runner(parallel)([&] {
        entered = true;
        up_.set_value();
        down_.get_future().wait();
      });
    } catch (...) {
      if (!entered) up_.set_exception(std::current_exception());
    }
  });
  try {
    up_.get_future().get();
  } catch (...) {
    runner_.join();
    throw;
  }
  if (!options.tcp) publish(options.run, options.id, router().address());
}

OursNode::~OursNode() {
  down_.set_value();
  runner_.join();
}

void remove_traces(const std::string& run, int id) {
  std::error_code ignored;
  const std::string address = published(run, id);
  if (address.starts_with(kIpcScheme)) {
    std::filesystem::remove(address.substr(kIpcScheme.size()), ignored);
  }
  std::filesystem::remove(address_file(run, id), ignored);
}

}  // namespace divisi::bench
