#include "run/ssh_worker.h"

#include "io/process.h"
#include "run/local_supervisor.h"
#include "run/signal_pipe.h"
#include "run/ssh_link.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <unistd.h>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLost = 125;  // the host, not the worker
constexpr int kBySignal = 128;
constexpr std::chrono::seconds kStillHere{15};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class SshWorker {
 public:
  SshWorker(const json::Value& plan, std::size_t rank) : plan_(plan), rank_(rank) {}

  // The worker's exit code, or why there is none.
  Result<int> run() {
    DIVISI_TRY(const json::Value wanted, request());
    SshTarget target;
    target.host = hosts()[rank_].as_string() != nullptr ? *hosts()[rank_].as_string() : "";
    target.ditask = plan_.string_at({"ditask"});
    target.of_this_thread = false;
    DIVISI_TRY(SshLink link, SshLink::open(target));
    if (signals_.next()) return kBySignal + SIGTERM;  // it was ended before it began
    if (const Status status = link.send('R', json::print(wanted)); !status.ok()) {
      return failure(status);
    }
    return attend(link);
  }

 private:
  const json::Array& hosts() const {
    static const json::Array none;
    const json::Value* const found = plan_.find("hosts");
    return found != nullptr && found->as_array() != nullptr ? *found->as_array() : none;
  }

  Result<json::Value> request() const {
    const json::Value* const workers = plan_.find("workers");
    if (workers == nullptr || workers->as_array() == nullptr ||
        rank_ >= workers->as_array()->size() || rank_ >= hosts().size()) {
      return failure(Code::kInvalid, "the plan has no worker {}", rank_);
    }
    json::Value wanted = (*workers->as_array())[rank_];
    for (const char* const key : {"folder", "root", "archive"}) {
      wanted[key] = plan_.string_at({key});
    }
    wanted["name"] = fmt::format("{}-{}", plan_.string_at({"job"}), rank_);
    wanted["graceMilliseconds"] = plan_.int_at({"graceMilliseconds"}).value_or(0);
    std::string secret = text_of(std::string(plan_.string_at({"secretFile"})));
    while (secret.ends_with('\n')) secret.pop_back();
    wanted["secret"] = secret;
    return wanted;
  }

  Result<int> attend(SshLink& link) {
    auto next_word = Clock::now() + kStillHere;
    while (true) {
      DIVISI_TRY(const std::optional<Frame> said, link.take());
      if (said) {
        if (said->type == 'x') return code_of(*said);
        if (said->type == 'o') (void)write_bytes(STDOUT_FILENO, said->payload);
        if (said->type == 'e') (void)write_bytes(STDERR_FILENO, said->payload);
        continue;
      }
      std::array<pollfd, 3> watched{pollfd{signals_.fd(), POLLIN, 0},
                                    pollfd{link.output_fd(), POLLIN, 0},
                                    pollfd{link.error_fd(), POLLIN, 0}};
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next_word - Clock::now());
      ::poll(watched.data(), watched.size(),
             static_cast<int>(std::max<std::int64_t>(rest.count(), 0)));
      Status status = link.pump();
      while (const auto signal = signals_.next()) {
        if (*signal == SIGPIPE || !status.ok()) continue;
        status = link.send(*signal == SIGQUIT ? 'Q' : 'T');
      }
      if (status.ok() && Clock::now() >= next_word) {
        next_word += kStillHere;
        status = link.send('H');
      }
      if (!status.ok()) return failure(status);
    }
  }

  static Result<int> code_of(const Frame& said) {
    DIVISI_TRY(const json::Value end, json::parse(said.payload));
    const auto signal = static_cast<int>(end.int_at({"signal"}).value_or(0));
    if (signal != 0) return kBySignal + signal;
    return static_cast<int>(end.int_at({"code"}).value_or(1));
  }

  const SignalPipe signals_;
  const json::Value& plan_;
  const std::size_t rank_;
};

}  // namespace

json::Value to_json(const SshPlan& plan) {
  // Workers as the supervisor's plan has them.
  LocalPlan same;
  same.ditask = "ditask";
  same.workers = plan.workers;
  same.grace = plan.grace;
  json::Value value = to_json(same);
  for (const char* const key : {"guard", "ditask"}) value.erase(key);
  value["job"] = plan.job;
  value["secretFile"] = plan.secret_file;
  value["ditask"] = plan.ditask;
  value["folder"] = plan.folder;
  value["root"] = plan.root;
  value["archive"] = plan.archive;
  json::Array hosts;
  for (const std::string& host : plan.hosts) hosts.emplace_back(host);
  value["hosts"] = std::move(hosts);
  return value;
}

int ssh_worker_main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2) {
    std::fprintf(stderr, "divisi %s is started by divisi run\n", kSshWorkerCommand);
    return 2;
  }
  try {
    const auto plan = json::parse(text_of(arguments[0]));
    const auto rank = static_cast<std::size_t>(std::atoi(arguments[1].c_str()));
    const Result<int> code =
        plan ? SshWorker(*plan, rank).run() : Result<int>(failure(plan.error()));
    if (code) return *code;
    // The supervisor puts it into the record.
    const std::filesystem::path folder = std::filesystem::path(arguments[0]).parent_path();
    std::ofstream(reason_file(folder.string(), static_cast<int>(rank))) << code.error().message();
    std::fprintf(stderr, "divisi run: %s\n", code.error().message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divisi run: %s\n", error.what());
  }
  return kLost;
}

}  // namespace divisi::run
