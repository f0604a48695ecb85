#include "run/supervisor_process.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

namespace divisi::run {
namespace {

constexpr std::string_view kReady = "ok";

// The caller's own mistakes keep their code; all else is that the job could not be started.
void answer(io::Descriptor ready, const Status& status) {
  const Code code = status.code() == Code::kInvalid ? Code::kInvalid : Code::kUnavailable;
  const std::string line = status.ok()
                               ? std::string(kReady)
                               : fmt::format("{} {}", static_cast<int>(code), status.message());
  [[maybe_unused]] const ssize_t written = ::write(ready.get(), line.data(), line.size());
}

Status read_answer(const std::string& line) {
  if (line == kReady) return {};
  int code = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), code);
  if (error != std::errc() || end == line.data() + line.size()) {
    return {Code::kUnavailable, "the supervisor ended before it began"};
  }
  return {static_cast<Code>(code), std::string(end + 1)};
}

}  // namespace

int supervisor_main(const char* command, const std::vector<std::string>& arguments,
                    const MakeSupervision& make) {
  constexpr std::size_t kArguments = 4;
  if (arguments.size() != kArguments) {
    std::fprintf(stderr, "divisi %s is started by divisi run\n", command);
    return 2;
  }
  io::Descriptor ready(std::atoi(arguments[2].c_str()));
  io::Descriptor tie(std::atoi(arguments[3].c_str()));
  const pid_t child = ::fork();
  if (child != 0) {
    if (child > 0) return 0;
    answer(std::move(ready),
           make_status(Code::kUnavailable, "starting a process: {}", errno_text(errno)));
    return 1;
  }
  ::setsid();
  if (tie) ::fcntl(tie.get(), F_SETFL, O_NONBLOCK);
  for (const io::Descriptor* descriptor : {&ready, &tie}) {
    if (*descriptor) ::fcntl(descriptor->get(), F_SETFD, FD_CLOEXEC);
  }
  const JobRecords records(arguments[0]);
  auto made = make(records, arguments[1], std::move(tie));
  const Status status = made ? (*made)->start() : made.error();
  answer(std::move(ready), status);
  if (!status.ok()) return 1;
  (*made)->run();
  return 0;
}

Status start_supervisor(const char* command, const JobRecords& records, const std::string& name,
                        std::vector<int> inherited, int attached_fd) {
  auto ready = io::make_pipe();
  if (!ready) return ready.error();
  io::SpawnOptions options;
  options.program = io::current_program();
  options.arguments = {command, records.folder(), name, std::to_string(ready->write.get()),
                       std::to_string(attached_fd)};
  options.standard_input = io::Stdio::kNull;
  options.standard_output = io::Stdio::kNull;
  options.standard_error = io::Stdio::kNull;
  options.inherited = std::move(inherited);
  options.inherited.push_back(ready->write.get());
  if (attached_fd >= 0) options.inherited.push_back(attached_fd);
  auto process = io::Process::spawn(options);
  if (!process) return process.error().with_context("starting the supervisor");
  ready->write.reset();
  const auto said = io::read_all(ready->read.get());
  if (const auto ended = process->wait(); !ended) return ended.error();
  return read_answer(said.value_or(""));
}

bool tie_is_cut(const io::Descriptor& tie) {
  if (!tie) return false;
  unsigned char byte = 0;
  const ssize_t got = ::read(tie.get(), &byte, 1);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace divisi::run
