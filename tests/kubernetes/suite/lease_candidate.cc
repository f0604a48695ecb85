// lease_candidate NAMESPACE NAME IDENTITY: takes part in a leader election until it is killed; says
// "leads" when it does and ends with 1 when it has lost the lease.

#include "kube/lease.h"
#include "kube/session.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: lease_candidate NAMESPACE NAME IDENTITY\n");
    return 2;
  }
  auto session = divisi::kube::Session::open({});
  if (!session) {
    std::fprintf(stderr, "lease_candidate: %s\n", session.error().message().c_str());
    return 1;
  }
  divisi::kube::Client& client = (*session)->client();
  divisi::kube::LeaseOptions options;
  options.space = argv[1];
  options.name = argv[2];
  options.identity = argv[3];
  options.duration = std::chrono::seconds(4);
  options.renew_within = std::chrono::seconds(3);
  options.retry_every = std::chrono::seconds(1);
  std::unique_ptr<divisi::kube::LeaderElection> election;
  (*session)->reactor().run_on_loop([&] {
    client.use_lane(divisi::kube::Lane::kLease);
    election = std::make_unique<divisi::kube::LeaderElection>(
        client, options,
        divisi::kube::LeaseHandlers{.on_started =
                                        [] {
                                          std::puts("leads");
                                          std::fflush(stdout);
                                        },
                                    .on_lost = [] { std::_Exit(1); }});
    election->start();
  });
  for (;;) ::pause();
}
