// Child processes: start, watch and end them without SIGCHLD, and without leaving one behind.
//
//   DIVISI_TRY(Process child, Process::spawn({.program = path, .arguments = {"--fast"}}));
//   poll(child.pidfd()) ... DIVISI_TRY(ExitStatus status, child.wait());
#pragma once

#include "base/status.h"

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace divisi::io {

// A descriptor that closes itself. Everything this module opens is close-on-exec.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

struct PipePair {
  Descriptor read;
  Descriptor write;
};
Result<PipePair> make_pipe();

// A file in memory that holds `bytes`, positioned at its start: how a child gets what must not be
// seen in its arguments or environment.
Result<Descriptor> make_memory_file(const std::string& name, std::string_view bytes);
Result<std::string> read_all(int fd);
Result<std::string> read_from_start(int fd);  // of a file, wherever it is positioned

enum class Stdio { kInherit, kNull, kPipe };

struct SpawnOptions {
  std::string program{};  // a path; looked up in PATH when it has no slash
  std::string argv0{};    // empty: `program`
  std::vector<std::string> arguments{};
  std::map<std::string, std::optional<std::string>> environment{};  // nullopt removes a variable

  Stdio standard_input = Stdio::kInherit;
  Stdio standard_output = Stdio::kInherit;
  Stdio standard_error = Stdio::kInherit;
  // Descriptors of the caller that become the child's instead; -1: as above.
  int input_from = -1;
  int output_to = -1;
  int error_to = -1;
  std::string folder{};  // the child's working directory; empty: the caller's
  // These keep their number in the child; nothing else above 2 gets there.
  std::vector<int> inherited{};

  bool new_process_group = false;  // then kill_group() reaches what the child started, too
  // The kernel kills the child (SIGKILL) when the thread that called spawn() ends, however it
  // ends. That thread must therefore live as long as the child shall.
  bool die_with_parent = false;
  // The child blocks no signal, whatever the calling thread blocks.
  bool clear_signal_mask = false;
};

struct ExitStatus {
  int code = 0;          // of exit(), if `signal` is 0
  int signal = 0;        // that killed it
  bool unknown = false;  // somebody else in this process has reaped it
  bool ok() const { return code == 0 && signal == 0 && !unknown; }
};

// One child. Movable; not thread-safe. The destructor kills and reaps a child that still runs.
class Process {
 public:
  // Costs one vfork: the parent's memory is not copied. Fails with the errno of exec itself.
  static Result<Process> spawn(const SpawnOptions& options);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const noexcept { return pid_; }
  int pidfd() const noexcept { return pidfd_.get(); }  // readable when the child has ended
  Descriptor& output() noexcept { return output_; }    // read ends of Stdio::kPipe
  Descriptor& error() noexcept { return error_; }
  Descriptor& input() noexcept { return input_; }

  // Never reaches another process, even when the number is in use again.
  Status kill(int signal);
  // The child's process group (new_process_group), as long as the child was not reaped.
  void kill_group(int signal) noexcept;

  Result<ExitStatus> wait();  // blocks; afterwards the child is reaped
  std::optional<ExitStatus> try_wait();
  bool reaped() const noexcept { return reaped_; }

 private:
  Process() = default;
  std::optional<ExitStatus> reap(int flags);
  void end() noexcept;

  pid_t pid_ = -1;
  bool reaped_ = true;
  bool own_group_ = false;
  Descriptor pidfd_;
  Descriptor input_;
  Descriptor output_;
  Descriptor error_;
};

// Where stdin, stdout or stderr is closed it becomes /dev/null, so that no descriptor that is
// opened later takes its number. For the first line of a main().
void open_standard_descriptors() noexcept;

// The path of the running program, also after its file was replaced.
std::string current_program();

// "SIGSEGV (Segmentation fault)".
std::string signal_name(int signal);

}  // namespace divisi::io
