#include "dijob/pod_env.h"

#include "dijob/names.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr int kMasterPort = 10314;  // of distributed learners, since the first generation

class Writer {
 public:
  Writer(const Job& job, const PodPlace& place, const ClusterNames& names)
      : job_(job), place_(place), names_(names) {}

  std::vector<Variable> write() && {
    set("DI_JOB_ID", fmt::format("{}/{}", job_.space, job_.name));
    set("DI_SERVER_URL", names_.server_url);
    set("DI_RANK", std::to_string(place_.slot.rank));
    set("DI_JOB_GENERATION", std::to_string(place_.generation));
    write_nodes();
    write_arguments();
    write_learners();
    return std::move(variables_);
  }

 private:
  void set(std::string name, std::string value) {
    variables_.push_back({std::move(name), std::move(value)});
  }

  std::string host(const Slot& slot) const {
    return pod_host(job_, slot, place_.generation, names_);
  }

  // Every rank is in DI_NODES, also one that is not run at present: the position is the rank.
  // A task's own list has the replicas that there are.
  void write_nodes() {
    set("DI_NODES", list(place_.all, [this](const Slot& slot) { return host(slot); }));
    for (const Task& task : job_.tasks) {
      if (task.name.empty()) continue;
      std::vector<Slot> own;
      for (const Slot& slot : place_.all) {
        if (slot.task == task.name && slot.index < task.replicas) own.push_back(slot);
      }
      std::ranges::sort(own, {}, &Slot::index);
      set(nodes_variable(task.name), list(own, [this](const Slot& slot) { return host(slot); }));
    }
  }

  // The command line of an engine of the first v2alpha1 release, piece by piece.
  void write_arguments() {
    const int workers = job_.parallel_workers;
    const std::int64_t first_id = std::int64_t{workers} * place_.slot.rank;
    std::vector<int> numbers(static_cast<std::size_t>(workers));
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto port = [](int worker) { return std::to_string(kDefaultPort + worker); };
    const auto id = [first_id](int worker) { return std::to_string(first_id + worker); };
    set("DI_PARALLEL_WORKERS_ARG", fmt::format("--parallel-workers={}", workers));
    set("DI_PORTS_ARG", "--ports=" + list(numbers, port));
    set("DI_NODE_IDS_ARG", "--node-ids=" + list(numbers, id));
    set("DI_ATTACHED_NODES_ARG", attached_nodes(numbers));
  }

  std::string attached_nodes(const std::vector<int>& workers) const {
    if (place_.slot.rank == 0 || job_.topology == "alone") return {};
    std::vector<std::string> addresses;
    for (const Slot& slot : place_.all) {
      const bool dialled = job_.topology == "mesh" ? slot.rank < place_.slot.rank : slot.rank == 0;
      if (!dialled) continue;
      for (const int worker : workers) {
        if (job_.topology != "mesh" && worker > 0) break;
        addresses.push_back(fmt::format("tcp://{}.{}:{}", pod_name(job_, slot, place_.generation),
                                        service_name(job_), kDefaultPort + worker));
      }
    }
    return fmt::format("--attach-to={}", fmt::join(addresses, ","));
  }

  // What a distributed learner expects, within its own task.
  void write_learners() {
    const Task* task = job_.find_task(place_.slot.task);
    const int world =
        job_.form == Form::kTasks && task != nullptr ? task->replicas : place_.replicas;
    set("MASTER_ADDR", host({place_.slot.task, 0, 0}));
    set("MASTER_PORT", std::to_string(kMasterPort));
    set("WORLD_SIZE", std::to_string(world));
    set("RANK", std::to_string(place_.slot.index));
  }

  static std::string nodes_variable(std::string_view task) {
    std::string name = "DI_";
    for (const char c : task) {
      name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
    return name + "_NODES";
  }

  template <class T, class Text>
  static std::string list(const std::vector<T>& items, const Text& text) {
    std::string joined;
    for (const T& item : items) {
      if (!joined.empty()) joined += ',';
      joined += text(item);
    }
    return joined;
  }

  const Job& job_;
  const PodPlace& place_;
  const ClusterNames& names_;
  std::vector<Variable> variables_{};
};

}  // namespace

std::vector<Variable> pod_variables(const Job& job, const PodPlace& place,
                                    const ClusterNames& names) {
  return Writer(job, place, names).write();
}

}  // namespace divisi::dijob
