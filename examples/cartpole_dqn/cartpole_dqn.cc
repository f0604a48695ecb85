// A distributed DQN that learns CartPole-v1.
//
//   build/release/bin/cartpole_dqn                  # five processes, until a mean return of 195
//   build/release/bin/cartpole_dqn --help
//   ditask --package build/release/examples --main cartpole_dqn.main --parallel-workers 4
//
// The pipeline is in train.cc, what it is made of in src/rl.
#include "divisi/divisi.h"
#include "follow.h"
#include "options.h"
#include "rl/pace.h"
#include "run_folder.h"
#include "saved_config.h"
#include "train.h"

#include <fmt/format.h>

#include <cstdio>

namespace {

void train_node(const std::vector<std::string>& args) {
  cartpole::train(args);
}
DIVISI_MAIN(train_node)
DIVISI_MAIN_AS("main", train_node)

using cartpole::Mode;
using cartpole::Options;

divisi::ParallelOptions parallel_options(const Options& options) {
  divisi::ParallelOptions parallel{.log_level = "warning"};
  if (options.mode == Mode::kNode) {
    parallel.n_parallel_workers = 1;
    parallel.topology = "alone";
    parallel.protocol = "tcp";
    parallel.address = options.address;
    parallel.ports = {options.port};
    parallel.node_ids = {options.node_id};
    parallel.attach_to = options.attach_to;
    parallel.labels = {options.role};  // how nodes of the Python example find each other
    return parallel;
  }
  if (options.mode == Mode::kAlone) {
    // A job of one, so that a signal ends it as it ends any other.
    parallel.n_parallel_workers = 1;
    parallel.topology = "alone";
    return parallel;
  }
  parallel.n_parallel_workers = options.parallel_workers > 0
                                    ? options.parallel_workers
                                    : static_cast<int>(options.roles.size());
  // A process that dies comes back and goes on from its checkpoint.
  parallel.worker_lost = "restart";
  parallel.max_restarts = 1000;
  return parallel;
}

// Not fmt::print: that throws when the disk of the log is full.
void complain(const std::exception& error) {
  std::fputs(fmt::format("cartpole_dqn: {}\n", error.what()).c_str(), stderr);
}

int run(const Options& options) {
  const auto args = cartpole::to_arguments(options);
  try {
    divisi::Parallel::runner(parallel_options(options))(train_node, args);
  } catch (const divisi::WorkerError& error) {
    complain(error);
    return error.exit_code();
  }
  return 0;
}

// Of the saved ones, if there are: what the command line changes.
void print_differences(const Options& saved, const Options& options) {
  fmt::print("going on with {} as its config.json says\n", options.run_folder);
  for (const auto& line : cartpole::differences(saved.config, options.config)) {
    fmt::print("  {}\n", line);
  }
}

int run_program(const std::vector<std::string>& args, const std::string& program) {
  const std::string there = cartpole::run_folder_of(args);
  const auto saved = there.empty() ? std::nullopt : cartpole::saved_options({there});
  Options options = cartpole::parse(args, saved.value_or(Options{}));
  if (options.help) {
    fmt::print("{}", cartpole::usage());
    return 0;
  }
  if (options.show_config) {
    for (const auto& [key, value] : options.config.entries()) fmt::print("{}={}\n", key, value);
    return 0;
  }
  if (options.mode != Mode::kAlone) {
    const bool is_one_of_many = options.mode == Mode::kNode;
    divisi::rl::check_pace(options.config, is_one_of_many ? 1 : cartpole::collectors(options));
  }
  const auto folder = options.run_folder.empty()
                          ? cartpole::new_run_folder(options.runs, options.config.exp_name)
                          : cartpole::open_run_folder(options.run_folder, options.resume);
  options.run_folder = folder.path;
  if (!options.config_saved && (options.mode != Mode::kNode || !saved)) {
    cartpole::save_config(folder, options, cartpole::command_line(program, args));
  }
  options.config_saved = true;
  if (options.mode != Mode::kNode) cartpole::remove_leftovers(folder);  // nobody else is here yet
  // A node of a job is one of many: it shows nothing, the launcher of the others does.
  const bool display = options.display && options.mode != Mode::kNode;
  if (display && saved) print_differences(*saved, options);
  return display ? cartpole::follow(program, options, folder) : run(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_program({argv + 1, argv + argc}, argv[0]);
  } catch (const divisi::UsageError& error) {
    complain(error);
    return 2;
  } catch (const std::exception& error) {
    complain(error);
    return 1;
  }
}
