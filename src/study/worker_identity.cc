#include "study/worker_identity.h"

#include "study/study_spec.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace divisi::tune {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A process id means the same to all who share the kernel and the namespace of process ids.
std::string this_machine() {
  std::array<char, 64> space{};
  const ssize_t n = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  return first_line("/proc/sys/kernel/random/boot_id") + " " +
         std::string(space.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
}

// When a process was started; 0: there is none, or it is hidden.
std::int64_t begin_of(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  // The name, field 2, is in parentheses and may hold blanks and newlines; the start is field 22.
  std::size_t at = line.rfind(')');
  if (at == std::string::npos) return 0;
  const char state = at + 2 < line.size() ? line[at + 2] : 'X';
  if (state == 'Z' || state == 'X') return 0;  // it has ended; its parent has not asked yet
  for (int field = 2; field < 22; ++field) {
    at = line.find(' ', at + 1);
    if (at == std::string::npos) return 0;
  }
  std::int64_t ticks = 0;
  std::from_chars(line.data() + at + 1, line.data() + line.size(), ticks);
  return ticks;
}

// Whether there is such a process although /proc does not show it.
bool is_hidden(std::int64_t process) {
  const bool shown = ::access(("/proc/" + std::to_string(process)).c_str(), F_OK) == 0;
  return !shown && ::kill(static_cast<pid_t>(process), 0) != 0 && errno == EPERM;
}

}  // namespace

WorkerIdentity WorkerIdentity::own(double heartbeat) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::int64_t process = ::getpid();
  return {.host = name.data(),
          .machine = this_machine(),
          .process = process,
          .begun = begin_of(process),
          .heartbeat = heartbeat};
}

std::string WorkerIdentity::text() const {
  return json::print(json::Object{{"host", host},
                                  {"machine", machine},
                                  {"process", process},
                                  {"begun", begun},
                                  {"heartbeat", heartbeat}});
}

WorkerIdentity WorkerIdentity::parse(std::string_view text) {
  const Result<json::Value> value = json::parse(text);
  if (!value) return {};
  WorkerIdentity read{.host = std::string(value->string_at({"host"})),
                      .machine = std::string(value->string_at({"machine"})),
                      .process = value->int_at({"process"}).value_or(0),
                      .begun = value->int_at({"begun"}).value_or(0)};
  // A whole number of seconds is printed as such.
  if (const json::Value* heartbeat = value->find("heartbeat")) {
    read.heartbeat = number_from_json(*heartbeat).value_or(read.heartbeat);
  }
  return read;
}

bool WorkerIdentity::lives(double seen, double now) const {
  const bool beats = now - seen < 4 * heartbeat;
  if (machine != this_machine()) return beats;
  const std::int64_t found = begin_of(process);
  // Of another user, behind a /proc that is mounted with hidepid.
  if (found == 0 && is_hidden(process)) return beats;
  return begun != 0 && found == begun;
}

}  // namespace divisi::tune
