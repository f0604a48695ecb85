// FakeApi: an API server in memory, with faults from a seed; the Transport of simulations.
//
//   SimLoop loop;  FakeApi api(loop, seed);  Client client(loop, api);
//   api.faults.cut_stream = 0.1;
//
// It has the verbs, paging, conflicts, watches with bookmarks and initial events, and 410s of the
// real one, for any resource, and its collector of garbage; no schemas, no admission. What the real
// server does is shown by tests/kubernetes; this is for the orders of events that nobody can make
// there.
#pragma once

#include "kube/memory/store.h"
#include "kube/memory/verbs.h"
#include "kube/testing/sim_loop.h"
#include "kube/transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace divisi::kube::testing {

// Each is a chance between 0 and 1.
struct Faults {
  double refuse = 0;        // 429 with Retry-After, 500 or 503: the request was not handled
  double lose_answer = 0;   // handled, but nobody hears of it
  double lose_request = 0;  // neither handled nor answered
  double cut_stream = 0;    // of a watch, before an event; sometimes inside one
  double repeat_event = 0;  // sent twice
  double go_back = 0;       // an old event is sent again
  double garbage = 0;       // a frame that is none
  double compact = 0;       // after a write: older versions are gone
  double silence = 0;       // of a watch: it stays open and tells nothing more
  double late_events = 0;   // of a watch: it tells seconds later
  double conflict = 0;      // 409 for a PUT or PATCH that was not handled
};

class FakeApi final : public Transport {
 public:
  FakeApi(SimLoop& loop, std::uint64_t seed);
  ~FakeApi() override;

  std::unique_ptr<http::Call> send(Lane lane, http::Request request, http::CallOptions options,
                                   std::shared_ptr<http::ResponseHandler> handler) override;

  Faults faults{};
  MemoryStore store{};
  MemoryVerbs verbs;
  bool can_stream_lists = true;
  // Sees every request that is handled; may answer in its place.
  std::function<std::optional<http::Response>(const http::Request&)> intercept{};

  // How much later than usual a request that was handled is answered.
  std::function<io::Duration(const http::Request&)> answers_late{};

  std::uint64_t requests() const noexcept { return requests_; }
  // After a change of the store that no request made: the watches learn of it.
  void changed();
  // Deletes what is owned by nothing that exists, some seconds later.
  void look_for_orphans();
  // Tells every watch of the newest version.
  void bookmark();
  void cut_all_streams();
  bool chance(double probability);

 private:
  struct Watch;
  class CallHandle;

  void handle(const http::Request& request, const http::CallOptions& options,
              const std::shared_ptr<http::ResponseHandler>& handler,
              const std::shared_ptr<CallHandle*>& call);
  void start_watch(const ApiPath& path, const http::CallOptions& options,
                   std::shared_ptr<http::ResponseHandler> handler,
                   const std::shared_ptr<CallHandle*>& call);
  void pump(const std::shared_ptr<Watch>& watch);
  void end(const std::shared_ptr<Watch>& watch, Status status);
  io::Duration delay();

  SimLoop& loop_;
  std::mt19937_64 random_;
  std::uint64_t requests_ = 0;
  std::vector<std::shared_ptr<Watch>> watches_;
  std::unique_ptr<io::Timer> orphans_timer_;
};

}  // namespace divisi::kube::testing
