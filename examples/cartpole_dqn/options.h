// What the program was asked to do.
#pragma once

#include "rl/config.h"

#include <string>
#include <vector>

namespace cartpole {

enum class Mode {
  kJob,    // several processes, started by this one
  kAlone,  // one process
  kNode,   // one process of a job whose others are started elsewhere
};

struct Options {
  divisi::rl::DqnConfig config;
  Mode mode = Mode::kJob;
  std::vector<std::string> roles = {"replay", "learner", "collector", "collector", "evaluator"};
  int parallel_workers = 0;  // instead of roles: node 0 learns, node 1 evaluates, others collect

  // kNode
  std::string role;
  int node_id = 0;
  std::string address = "127.0.0.1";
  int port = 50'515;
  std::vector<std::string> attach_to;

  std::string runs = "runs";  // where run folders are made
  std::string run_folder;     // empty: a new one in `runs`
  bool resume = false;        // go on with a run that is over
  bool config_saved = false;  // by the process that started this one
  bool display = true;        // show progress; false: only the log
  bool show_config = false;
  bool help = false;
};

std::string usage();

// What the arguments change of `base`. Throws UsageError with one line that says what is wrong.
Options parse(const std::vector<std::string>& args, Options base = {});

// The value of --run-folder, or nothing.
std::string run_folder_of(const std::vector<std::string>& args);

// How many processes of a job collect.
int collectors(const Options& options);

// Those that say which processes there are; none for one of a job that others start.
std::vector<std::string> process_arguments(const Options& options);

// The arguments that make parse() give the same options: what workers are started with.
std::vector<std::string> to_arguments(const Options& options);

}  // namespace cartpole
