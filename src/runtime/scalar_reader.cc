#include "divisi/scalar_reader.h"

#include "base/status.h"
#include "runtime/event_parser.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace divisi {

struct ScalarReader::State {
  explicit State(std::string file_path) : path(std::move(file_path)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (file >= 0) ::close(file);
  }

  // False: it is not there yet.
  bool open() {
    if (file >= 0) return true;
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno != ENOENT) fail(errno);
    return file >= 0;
  }

  [[noreturn]] void fail(int code) const {
    throw Error(Code::kUnavailable, fmt::format("could not read {}: {}", path, errno_text(code)));
  }

  std::string path;
  int file = -1;
  bool ended = false;  // what follows is not an event file
  std::string error;   // why; empty once it was told
  runtime::EventParser parser;
};

ScalarReader::ScalarReader(std::string path) : state_(std::make_unique<State>(std::move(path))) {}
ScalarReader::ScalarReader(ScalarReader&&) noexcept = default;
ScalarReader& ScalarReader::operator=(ScalarReader&&) noexcept = default;
ScalarReader::~ScalarReader() = default;

std::vector<Scalar> ScalarReader::read() {
  constexpr int kMostBlocks = 64;  // in one call: 16 MiB of a file with scalars
  std::vector<Scalar> found;
  State& state = *state_;
  if (!state.error.empty()) throw Error(Code::kInvalid, std::exchange(state.error, {}));
  if (state.ended || !state.open()) return found;
  std::string block(std::size_t{256} << 10, '\0');
  for (int i = 0; i < kMostBlocks || found.empty(); ++i) {
    const ssize_t size = ::read(state.file, block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) state.fail(errno);
    if (size == 0) break;
    const Status fed =
        state.parser.feed(std::string_view(block).substr(0, static_cast<std::size_t>(size)), found);
    if (fed.ok()) continue;
    state.ended = true;
    state.error = fmt::format("{}: {}", state.path, fed.message());
    // What was good comes first.
    if (found.empty()) throw Error(Code::kInvalid, std::exchange(state.error, {}));
    break;
  }
  return found;
}

}  // namespace divisi
