// ckpt_saver, latest_checkpoint, final_ctx_saver.
#include "divisi/checkpoint.h"

#include "divisi/error.h"
#include "runtime/context_fields.h"
#include "runtime/exchange_gate.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

namespace divisi {
namespace {

namespace fs = std::filesystem;
using runtime::counter_of;
using runtime::value_of;

constexpr std::string_view kEnding = ".pth.tar";
constexpr std::string_view kIteration = "iteration_";

fs::path folder_of(const std::string& save_dir) {
  fs::path folder = save_dir;
  if (!folder.has_filename()) folder = folder.parent_path();  // "exp/ckpt/"
  return folder.filename() == "ckpt" ? folder : folder / "ckpt";
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error && !fs::is_directory(folder)) {
    throw Error(Code::kUnavailable,
                fmt::format("cannot make the folder '{}': {}", folder.string(), error.message()));
  }
}

class CkptSaver {
 public:
  CkptSaver(std::function<void(const std::string&)> save, const std::string& save_dir,
            CkptSaverOptions options, Task& owner)
      : task_(owner), save_(std::move(save)), folder_(folder_of(save_dir)), options_(options) {}

  void operator()(Context& ctx) {
    const std::int64_t train_iter = counter_of(ctx, "train_iter");
    if (options_.train_freq && is_due(train_iter)) {
      save(fmt::format("{}{}", kIteration, train_iter));
      last_saved_ = train_iter;
    }
    const double value = value_of(ctx, "eval_value");
    if (value > best_) {
      save("eval");
      best_ = value;
    }
    if (options_.save_finish && task_.finish()) save("final");
  }

 private:
  bool is_due(std::int64_t train_iter) const {
    if (train_iter == 0) return !last_saved_;
    return train_iter - last_saved_.value_or(0) >= *options_.train_freq;
  }

  void save(const std::string& name) {
    make_folder(folder_);
    write_file_atomically((folder_ / (name + std::string(kEnding))).string(), save_);
  }

  Task& task_;
  std::function<void(const std::string&)> save_;
  fs::path folder_;
  CkptSaverOptions options_;
  std::optional<std::int64_t> last_saved_;  // train_iter
  double best_ = -std::numeric_limits<double>::infinity();
};

// The number in iteration_<n>.pth.tar.
std::optional<std::int64_t> iteration_of(const std::string& name) {
  if (!name.starts_with(kIteration) || !name.ends_with(kEnding)) return std::nullopt;
  const char* const begin = name.data() + kIteration.size();
  const char* const end = name.data() + name.size() - kEnding.size();
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string result_of(Context& ctx) {
  std::string json = fmt::format("{{\n  \"total_step\": {}", ctx.total_step);
  for (const char* const name :
       {"train_iter", "last_eval_iter", "env_step", "env_episode", "trained_env_step"}) {
    if (ctx.has_attr(name)) json += fmt::format(",\n  \"{}\": {}", name, counter_of(ctx, name));
  }
  if (ctx.has_attr("last_eval_value")) {
    json += fmt::format(",\n  \"eval_value\": {}", json_number(value_of(ctx, "last_eval_value")));
  }
  return json + "\n}\n";
}

}  // namespace

Middleware ckpt_saver(std::function<void(const std::string& path)> save,
                      const std::string& save_dir, CkptSaverOptions options, Task& owner) {
  if (options.train_freq && *options.train_freq < 1) {
    throw UsageError(
        fmt::format("ckpt_saver: train_freq is 1 or more, not {}", *options.train_freq));
  }
  if (runtime::in_job(owner) && !owner.has_role(Role::kLearner) &&
      !owner.has_role(Role::kEvaluator)) {
    return VoidMiddleware{};
  }
  return named("ckpt_saver", CkptSaver(std::move(save), save_dir, options, owner));
}

std::optional<std::string> latest_checkpoint(const std::string& save_dir) {
  const fs::path folder = folder_of(save_dir);
  std::error_code error;
  std::optional<std::int64_t> highest;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto number = iteration_of(entry.path().filename().string());
    if (number && number > highest) highest = number;
  }
  const fs::path final = folder / ("final" + std::string(kEnding));
  if (!highest) {
    return fs::exists(final, error) ? std::optional(final.string()) : std::nullopt;
  }
  const fs::path iteration = folder / fmt::format("{}{}{}", kIteration, *highest, kEnding);
  const auto final_time = fs::last_write_time(final, error);
  if (!error && final_time >= fs::last_write_time(iteration, error)) return final.string();
  return iteration.string();
}

Middleware final_ctx_saver(const std::string& dir, Task& owner) {
  return named("final_ctx_saver", [dir, &owner](Context& ctx) {
    if (!owner.finish()) return;
    make_folder(dir);
    write_file_atomically((fs::path(dir) / "result.json").string(), result_of(ctx));
  });
}

}  // namespace divisi
