// Bodies and answers between the workers of first-generation jobs, and of di-server: whatever they
// are, what is understood keeps its promises.

#include "dist/aggregate.h"
#include "dist/di_server_client.h"
#include "dist/envelope.h"
#include "dist/peer_client.h"
#include "dist/python_repr.h"

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace divisi;
using namespace divisi::dist;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_answer(const std::string& text) {
  const PeerReply reply = read_reply({.status = 200, .body = text});
  require(!reply.text().empty());
  require(!reply.success || reply.http == 200);
  require(!read_reply({.status = 403, .body = text}).success);
  const auto replicas = parse_replicas(reply.data);
  if (!replicas) return require(replicas.error().code() == Code::kInvalid);
  for (const auto* list : {&replicas->collectors, &replicas->learners}) {
    for (const std::string& url : *list) {
      require(!url.empty() && url.size() <= 512);
      require(pod_of_url(url).size() <= url.size());
      (void)parse_peer_url(url);
    }
  }
}

void check_request(const std::string& text) {
  const auto body = read_body(text);
  if (!body) return;
  const std::string shown = python_repr(*body);
  require(shown.find('\n') == std::string::npos);
  http::Request request;
  request.headers.add("Channel", text.substr(0, 20));
  if (!check_channel(request, 7)) require(std::atoi(text.c_str()) == 7);
}

// A list of answers of learners.
void check_aggregate(const json::Value& value) {
  const json::Array* list = value.as_array();
  if (list == nullptr) return;
  const std::vector<json::Value> answers(list->begin(), list->end());
  (void)json::print(merge_learned(answers));
  const auto demand = merge_demands(answers);
  if (!demand) return;
  const std::int64_t sum =
      std::accumulate(demand->sizes.begin(), demand->sizes.end(), std::int64_t{0});
  require(demand->demand.int_at({"batch_size"}) == sum);
  if (sum > 1000) return;
  const json::Value records = json::Array(static_cast<std::size_t>(sum));
  const auto parts = split_records(&records, demand->sizes);
  require(parts.has_value() && parts->size() == answers.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_answer(text);
  check_request(text);
  if (const auto value = json::parse(text)) check_aggregate(*value);
  return 0;
}
