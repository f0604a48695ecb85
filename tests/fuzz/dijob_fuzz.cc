// Any object as a DIJob: it is read or refused with one line, and whatever passes the checks gives
// pods that are found again as what they were made for.
#include "dijob/allocator_input.h"
#include "dijob/job.h"
#include "dijob/pod.h"
#include "dijob/replica_resources.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace divisi;

void require(bool condition) {
  if (!condition) std::abort();
}

void require_one_line(const Status& status) {
  require(status.code() == Code::kInvalid && !status.message().empty());
}

std::vector<dijob::Slot> slots_of(const dijob::Job& job) {
  std::vector<dijob::Slot> slots;
  for (const dijob::Task& task : job.tasks) {
    for (int index = 0; index < task.replicas; ++index) {
      slots.push_back({task.name, index, static_cast<int>(slots.size())});
    }
  }
  return slots;
}

void make_and_read(const dijob::Job& job, const dijob::PodMaker& maker, const dijob::Slot& slot) {
  const json::Value made = maker.make({.slot = slot});
  const auto stored = json::parse(json::print(made));
  require(stored.has_value());
  require(dijob::belongs_to(*stored, job));
  const dijob::Pod pod = dijob::read_pod(*stored, job);
  require(pod.has_slot && pod.slot == slot);
  require(pod.name == dijob::pod_name(job, slot, 0) && pod.name.size() <= 63);
  require(pod.made_of == dijob::template_hash(job, *job.find_task(slot.task)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto object = json::parse({reinterpret_cast<const char*>(data), size});
  if (!object) return 0;
  const auto job = dijob::read_job(*object);
  if (!job) {
    require_one_line(job.error());
    require(job.error().message().starts_with("failed to convert type: "));
    return 0;
  }
  if (const Status bad = dijob::check(*job); !bad.ok()) {
    require_one_line(bad);
    return 0;
  }
  (void)dijob::make_service(*job);
  (void)dijob::make_secret(*job, "00");

  // The ends of a long list are made like its middle.
  constexpr std::size_t kTried = 4;
  const std::vector<dijob::Slot> all = slots_of(*job);
  const dijob::PodMaker maker(*job, {.all = all, .replicas = static_cast<int>(all.size())});
  for (std::size_t i = 0; i < std::min(all.size(), kTried); ++i) {
    make_and_read(*job, maker, all[i]);
    make_and_read(*job, maker, all[all.size() - 1 - i]);
  }

  const auto demand = dijob::read_demand(*object, *dijob::read_default_resources(""));
  if (!demand || demand->replicas.size() > 100) return 0;
  const json::Value allocatable = json::Object{{"cpu", 8}, {"memory", "16Gi"}, {"pods", 6}};
  const json::Value node = json::Object{{"metadata", json::Object{{"name", "n1"}}},
                                        {"status", json::Object{{"allocatable", allocatable}}}};
  const auto placements = dijob::allocate({*demand}, {dijob::read_node(node)});
  require(placements.size() == 1 && placements[0].placed <= 6 && !placements[0].message.empty());
  return 0;
}
