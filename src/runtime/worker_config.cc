#include "runtime/worker_config.h"

#include "divisi/export.h"
#include "io/crypto.h"
#include "mesh/node_labels.h"
#include "runtime/secret_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace divisi::runtime {

namespace {

constexpr std::string_view kMagic = "divisi worker configuration";

// The one list of fields that encode and decode share, so that they cannot drift apart.
template <class Archive, class Config>
void visit_fields(Archive& archive, Config& config) {
  archive(config.node_id, config.local_id, config.n_workers, config.topology);
  archive(config.listen, config.listen_on_loopback, config.dial, config.attach_to,
          config.linked_nodes);
  archive(config.job_links.topology, config.job_links.rank, config.job_links.ports,
          config.job_links.hosts);
  archive(config.expected_nodes, config.labels, config.job_id, config.secret, config.allow_pickle);
  archive(config.join_timeout, config.send_timeout, config.startup_delay, config.finish_grace);
  archive(config.queue_bytes, config.memory_bytes, config.max_message_bytes, config.send_policy);
  archive(config.codec, config.relay, config.finish_on_hub_lost, config.ignore_lost);
  archive(config.auto_recover, config.max_retries, config.restarts);
  archive(config.entry.library, config.entry.name, config.entry.where, config.entry.is_symbol,
          config.entry.foreign, config.entry.module, config.entry.search_path);
  archive(config.args, config.log_level, config.log_json, config.trace);
}

// Both ends run on one machine, so numbers travel in its own byte order.
class Writer {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (write(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void write(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void write(std::chrono::milliseconds value) { write(std::int64_t{value.count()}); }
  void write(const std::string& text) {
    write(std::uint64_t{text.size()});
    bytes_ += text;
  }
  template <class Container>
    requires requires(const Container& c) {
      typename Container::value_type;
      c.begin();
    }
  void write(const Container& items) {
    write(std::uint64_t{items.size()});
    for (const auto& item : items) write(item);
  }

  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (read(values), ...);
  }
  bool complete() const { return ok_ && bytes_.empty(); }

 private:
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void read(T& value) {
    if (!take(sizeof(value))) return;
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): bytes, as many as were taken
    std::memcpy(&value, taken_.data(), sizeof(value));
  }
  void read(std::chrono::milliseconds& value) {
    std::int64_t count = 0;
    read(count);
    value = std::chrono::milliseconds(count);
  }
  void read(std::string& text) {
    std::uint64_t size = 0;
    read(size);
    if (take(size)) text = taken_;
  }
  template <class Container>
    requires requires(const Container& c) {
      typename Container::value_type;
      c.begin();
    }
  void read(Container& items) {
    std::uint64_t count = 0;
    read(count);
    items.clear();
    for (std::uint64_t i = 0; i < count && ok_; ++i) {
      typename Container::value_type item{};
      read(item);
      items.insert(items.end(), std::move(item));
    }
  }
  bool take(std::uint64_t size) {
    ok_ = ok_ && size <= bytes_.size();
    if (!ok_) return false;
    taken_ = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_;
  std::string_view taken_;
  bool ok_ = true;
};

std::string random_hex(std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  io::fill_random(bytes);
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

template <class Container>
std::string join_with_commas(const Container& items) {
  return fmt::format("{}", fmt::join(items, ","));
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<int> whole_number(const char* name, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return failure(Code::kInvalid, "the variable {}: '{}' is not a whole number", name, text);
  }
  return value;
}

Result<int> int_variable(const char* name, int fallback) {
  const std::string text = variable(name);
  return text.empty() ? fallback : whole_number(name, text);
}

// Of two that are not negative; the longest there is where the sum, or the product, is longer.
std::chrono::milliseconds sum(std::chrono::milliseconds a, std::chrono::milliseconds b) {
  return a > std::chrono::milliseconds::max() - b ? std::chrono::milliseconds::max() : a + b;
}

std::chrono::milliseconds product(std::chrono::milliseconds time, int n) {
  const bool fits = n == 0 || time <= std::chrono::milliseconds::max() / n;
  return fits ? time * n : std::chrono::milliseconds::max();
}

constexpr std::size_t kLongestJobId = 1024;  // what the greeting takes

bool is_loopback(std::string_view address) {
  return address.starts_with("tcp://127.") || address.starts_with("tcp://localhost:") ||
         address.starts_with("tcp://[::1]:");
}

Status check_common(const PlanOptions& options) {
  const WorkerConfig& common = options.common;
  if (options.n_parallel_workers <= 0) {
    return make_status(Code::kInvalid, "n_parallel_workers is {}; it must be at least 1",
                       options.n_parallel_workers);
  }
  if (common.max_retries < 0 && common.max_retries != kUnlimitedRetries) {
    return make_status(Code::kInvalid, "max_retries is {}; it must be 0 or more, or -1: no limit",
                       common.max_retries);
  }
  if (common.queue_bytes == 0) return {Code::kInvalid, "queue_bytes is 0; it must be positive"};
  if (common.memory_bytes == 0) return {Code::kInvalid, "memory_bytes is 0; it must be positive"};
  if (common.max_message_bytes == 0) {
    return {Code::kInvalid, "max_message_bytes is 0; it must be positive"};
  }
  if (common.join_timeout.count() <= 0) {
    return {Code::kInvalid, "join_timeout must be longer than 0"};
  }
  if (common.send_timeout.count() < 0) return {Code::kInvalid, "send_timeout is negative"};
  if (common.finish_grace.count() < 0) return {Code::kInvalid, "grace is negative"};
  if (common.expected_nodes < 0) {
    return make_status(Code::kInvalid, "expected_nodes is {}; it must be 0 or more",
                       common.expected_nodes);
  }
  if (options.startup_interval.count() < 0) {
    return {Code::kInvalid, "startup_interval is negative"};
  }
  if (common.job_id.size() > kLongestJobId) {
    return make_status(Code::kInvalid, "job_id has {} bytes; it may have at most {}",
                       common.job_id.size(), kLongestJobId);
  }
  return mesh::check_labels(common.labels);
}

}  // namespace

std::string encode(const WorkerConfig& config) {
  Writer writer;
  writer(std::string(kMagic), DIVISI_ABI_VERSION);
  visit_fields(writer, config);
  return writer.take();
}

Result<WorkerConfig> decode_worker_config(std::string_view bytes) {
  Reader reader(bytes);
  std::string magic;
  int version = 0;
  reader(magic, version);
  if (magic != kMagic) {
    return failure(Code::kInvalid, "the inherited descriptor holds no worker configuration");
  }
  if (version != DIVISI_ABI_VERSION) {
    return failure(Code::kInvalid,
                   "the launcher speaks ABI version {}, this worker's libdivisi has {}", version,
                   DIVISI_ABI_VERSION);
  }
  WorkerConfig config;
  visit_fields(reader, config);
  if (!reader.complete()) {
    return failure(Code::kInvalid, "the worker configuration is cut off or too long");
  }
  return config;
}

std::vector<std::string> worker_environment(const WorkerConfig& config) {
  std::vector<std::string> attach_to = config.dial;
  attach_to.insert(attach_to.end(), config.attach_to.begin(), config.attach_to.end());
  std::vector<std::string> variables = {
      fmt::format("DITASK_NODE_ID={}", config.node_id),
      fmt::format("DITASK_LOCAL_ID={}", config.local_id),
      fmt::format("DITASK_N_WORKERS={}", config.n_workers),
      "DITASK_LISTEN=" + config.listen,
      "DITASK_ATTACH_TO=" + join_with_commas(attach_to),
      fmt::format("DITASK_LINKED_NODES={}", fmt::join(config.linked_nodes, ",")),
      "DITASK_LABELS=" + join_with_commas(config.labels),
      "DITASK_JOB_ID=" + config.job_id,
  };
  if (config.ignore_lost) variables.emplace_back("DITASK_WORKER_LOST=ignore");
  return variables;
}

Result<WorkerConfig> worker_config_from_environment() {
  if (std::getenv("DITASK_NODE_ID") == nullptr) {
    return failure(Code::kNotFound, "DITASK_NODE_ID is not set: ditask did not start this program");
  }
  WorkerConfig config;
  DIVISI_TRY(config.node_id, int_variable("DITASK_NODE_ID", 0));
  DIVISI_TRY(config.local_id, int_variable("DITASK_LOCAL_ID", 0));
  DIVISI_TRY(config.n_workers, int_variable("DITASK_N_WORKERS", 1));
  config.topology = Topology::kAlone;  // the links are already spelled out as addresses
  config.listen = variable("DITASK_LISTEN");
  config.attach_to = split_at_commas(variable("DITASK_ATTACH_TO"));
  for (const auto& id : split_at_commas(variable("DITASK_LINKED_NODES"))) {
    DIVISI_TRY(const int node, whole_number("DITASK_LINKED_NODES", id));
    config.linked_nodes.push_back(node);
  }
  for (auto& label : split_at_commas(variable("DITASK_LABELS"))) config.labels.insert(label);
  config.job_id = variable("DITASK_JOB_ID");
  config.ignore_lost = variable("DITASK_WORKER_LOST") == "ignore";
  if (const std::string path = variable("DIVISI_SECRET_FILE"); !path.empty()) {
    DIVISI_TRY(Secret secret, read_secret_file(path, "DIVISI_SECRET_FILE"));
    config.secret = std::move(secret.value);
  }
  return config;
}

Result<Plan> plan_workers(const PlanOptions& options) {
  if (Status status = check_common(options); !status.ok()) return failure(std::move(status));
  const int n = options.n_parallel_workers;
  DIVISI_TRY(const std::vector<int> ids, pad_node_ids(options.node_ids, n));
  if (options.protocol == Protocol::kIpc && !options.ports.empty()) {
    DIVISI_TRY([[maybe_unused]] const std::vector<int> checked, pad_ports(options.ports, n));
  }
  DIVISI_TRY(const std::vector<std::string> addresses,
             node_addresses(n, options.protocol, options.address, options.ports));
  std::vector<std::string> attach_to;
  for (const std::string& text : options.attach_to) {
    DIVISI_TRY(std::string address, peer_address(text));
    attach_to.push_back(std::move(address));
  }

  Plan plan;
  WorkerConfig common = options.common;
  const bool private_job = options.protocol == Protocol::kIpc && attach_to.empty();
  if (private_job && common.job_id.empty()) common.job_id = random_hex(8);
  if (private_job && common.secret.empty()) common.secret = random_hex(32);
  if (options.protocol == Protocol::kTcp && options.address.empty() &&
      is_loopback(addresses.front())) {
    plan.warnings.push_back(
        fmt::format("no network interface is up: listening on {}, which no other host reaches; "
                    "name an address (--address, or the runner's address)",
                    addresses.front()));
  }
  if (common.secret.empty() && options.protocol == Protocol::kTcp &&
      !std::ranges::all_of(addresses, is_loopback)) {
    plan.warnings.push_back(
        fmt::format("listening on {} without a secret: anyone who reaches it can join. To keep "
                    "strangers out: (umask 077; openssl rand -hex 32 > secret.txt), copy the file "
                    "to every host, and start each launcher with --secret-file secret.txt, or with "
                    "DIVISI_SECRET_FILE=secret.txt",
                    addresses.front()));
  }

  constexpr std::size_t kShortSecret = 16;
  if (!common.secret.empty() && common.secret.size() < kShortSecret) {
    plan.warnings.push_back(
        fmt::format("the job secret has only {} bytes: who sees a greeting can guess it; use {} or "
                    "more random bytes (head -c 32 /dev/urandom | base64)",
                    common.secret.size(), kShortSecret));
  }

  for (int i = 0; i < n; ++i) {
    const auto index = [](int k) { return static_cast<std::size_t>(k); };
    WorkerConfig config = common;
    config.node_id = ids[index(i)];
    config.local_id = i;
    config.n_workers = n;
    config.topology = options.topology;
    config.listen = addresses[index(i)];
    config.listen_on_loopback = common.listen_on_loopback && !is_loopback(config.listen);
    config.attach_to = attach_to;
    config.startup_delay = product(options.startup_interval, i);
    // Those that start earlier have to wait for the last one.
    config.join_timeout = sum(common.join_timeout, product(options.startup_interval, n - 1 - i));
    config.dial.clear();
    config.linked_nodes.clear();
    for (const int k : dialled_workers(options.topology, i))
      config.dial.push_back(addresses[index(k)]);
    for (const int k : linked_workers(options.topology, n, i))
      config.linked_nodes.push_back(ids[index(k)]);
    plan.workers.push_back(std::move(config));
  }
  return plan;
}

}  // namespace divisi::runtime
