#include "pair.h"

#include "ours_node.h"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>

namespace divisi::bench {
namespace {

constexpr std::uint64_t kHello = ~std::uint64_t{1};

void run_server(Endpoint& endpoint, const Control& control, const Role& role) {
  control.get<char>();  // the client listens
  endpoint.listen([](std::uint64_t number, Bytes) { return number != kHello; });
  endpoint.send(kHello);
  endpoint.flush();
  endpoint.run();
  role(endpoint, control);
  control.put('.');  // everything is here: the client may close
}

void run_client(Endpoint& endpoint, const Control& control, const Role& role) {
  endpoint.listen([](std::uint64_t number, Bytes) { return number != kHello; });
  control.put('.');
  endpoint.run();
  endpoint.send(kHello);
  endpoint.flush();
  role(endpoint, control);
  control.get<char>();
}

}  // namespace

int guarded(const char* who, const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", who, error.what());
    return 1;
  }
}

Child fork_role(const std::function<void(const Control& parent)>& role) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  const pid_t pid = ::fork();
  if (pid < 0) fail("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    std::exit(guarded("child", [&] { role(Control(ends[1])); }));
  }
  ::close(ends[1]);
  return {pid, Control(ends[0])};
}

int reap(const std::vector<pid_t>& children, bool kill_first) {
  int code = 0;
  for (const pid_t child : children) {
    if (kill_first) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) code = 1;
  }
  return code;
}

int run_pair(const std::string& transport, std::size_t size, const Role& server,
             const Role& client) {
  const std::string address = std::to_string(::getpid());
  const auto [child, control] = fork_role([&](const Control& parent) {
    const auto endpoint = open_endpoint(transport, Side::kClient, size, address);
    run_client(*endpoint, parent, client);
  });
  const int code = guarded("server", [&, line = control] {
    const auto endpoint = open_endpoint(transport, Side::kServer, size, address);
    run_server(*endpoint, line, server);
  });
  const int child_code = reap({child}, code != 0);
  for (const char* suffix : {"raw", "down", "up", "nng"}) {
    std::error_code ignored;
    std::filesystem::remove(ipc_path(address, suffix), ignored);
  }
  for (const int id : {0, 1}) remove_traces(address, id);
  return code != 0 ? code : child_code;
}

}  // namespace divisi::bench
