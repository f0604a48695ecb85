// SharedFiles: where the processes of a job find each other's files.
//
//   path_data/<job>/<buffer_id>/<data_id>       transitions of a collector
//   path_policy/<job>/<policy_id>               the newest weights of a learner
//   path_policy/<job>/checkpoint_<run>          what a learner goes on from
//   path_policy/<job>/state.json                what a coordinator goes on from
//
// Names that come from another process are checked: each is one part of a path, of letters,
// digits and "_.-", and does not begin with a dot. So no record can name a file elsewhere.
#pragma once

#include "base/status.h"
#include "divisi/tensor.h"
#include "rl/network.h"
#include "rl/replay_wire.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::dist_rl {

bool is_plain_name(std::string_view name);

// The path of a file, for names that are plain; kInvalid with the name otherwise.
Result<std::string> data_path(const std::string& root, std::string_view job,
                              std::string_view buffer_id, std::string_view data_id);
Result<std::string> policy_path(const std::string& root, std::string_view job,
                                std::string_view name);

struct PolicyFile {
  std::int64_t train_iter = 0;
  rl::StateDict weights{};
};

// Whole or not at all, but not to the disk: a machine that falls loses what it can make again.
// kUnavailable with the path when it cannot be written.
Status write_policy(const std::string& path, std::int64_t train_iter, const rl::QNetwork& network);
// Nothing when there is no such file; kInvalid for one that is damaged.
Result<std::optional<PolicyFile>> read_policy(const std::string& path);

Status write_data(const std::string& path, const rl::TransitionBatch& batch);
Result<std::optional<rl::Transitions>> read_data(const std::string& path, int observation_size,
                                                 int action_count);

// With fsync: a checkpoint survives the machine.
struct Checkpoint {
  std::string shape{};  // of the network, NetworkShape::to_string()
  rl::StateDict state{};
};
Status write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Result<std::optional<Checkpoint>> read_checkpoint(const std::string& path);

// Changes whenever a file of that name is replaced; 0 when there is none.
std::uint64_t file_version(const std::string& path);

Status make_folder_of(const std::string& path);

}  // namespace divisi::dist_rl
