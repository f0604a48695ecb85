#include "acceptance/job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace jobs {

namespace fs = std::filesystem;

namespace {

std::map<std::string, Launcher>& launchers() {
  static std::map<std::string, Launcher> all;
  return all;
}

std::string read_file(const fs::path& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr const char* kOutput = "output";

}  // namespace

bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "divisi_test_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void note(const std::string& folder, std::string_view name, std::string_view text) {
  const fs::path path = fs::path(folder) / name;
  const fs::path draft = path.string() + ".draft." + std::to_string(::getpid());
  std::ofstream(draft) << text;
  fs::rename(draft, path);
}

std::optional<std::string> read_note(const std::string& folder, std::string_view name) {
  const fs::path path = fs::path(folder) / name;
  if (!fs::exists(path)) return std::nullopt;
  return read_file(path);
}

std::string wait_for_note(const std::string& folder, std::string_view name,
                          std::chrono::milliseconds deadline) {
  std::optional<std::string> text;
  const bool came =
      eventually([&] { return (text = read_note(folder, name)).has_value(); }, deadline);
  demand(came, "a note '" + std::string(name) + "' comes in time");
  return *text;
}

void append_line(const std::string& folder, std::string_view name, std::string_view line) {
  const std::string path = (fs::path(folder) / name).string();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string text = std::string(line) + "\n";
  const ssize_t n = ::write(fd, text.data(), text.size());
  ::close(fd);
  demand(n == static_cast<ssize_t>(text.size()), "a line can be written to " + path);
}

std::size_t count_lines(const std::string& folder, std::string_view name) {
  const std::string text = read_file(fs::path(folder) / name);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::vector<int> free_ports(int n) {
  static std::mt19937 random(std::random_device{}());
  std::vector<int> ports;
  std::vector<int> sockets;
  while (ports.size() < static_cast<std::size_t>(n)) {
    const int port = std::uniform_int_distribution(12'000, 32'000)(random);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    sockets.push_back(fd);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      ports.push_back(port);
    }
  }
  for (const int fd : sockets) ::close(fd);
  return ports;
}

std::string loopback(int port) {
  return "tcp://127.0.0.1:" + std::to_string(port);
}

Failure failure_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const divisi::WorkerError& error) {
    return {error.what(), error.exit_code(), error.node_id(), false};
  } catch (const divisi::UsageError& error) {
    return {error.what(), 2, -1, true};
  } catch (const std::exception& error) {
    return {error.what(), 1, -1, false};
  }
  return {};
}

bool register_launcher(const std::string& name, Launcher launcher) {
  return launchers().emplace(name, launcher).second;
}

Launched::Launched(const std::string& name, Arguments args) {
  const std::string output = (fs::path(folder_.path()) / kOutput).string();
  std::vector<std::string> words{"/proc/self/exe", "--launch", name};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execv(argv.front(), argv.data());
    ::_exit(127);
  }
  ::close(fd);
  demand(pid_ > 0, "a process can be started");
}

Launched::~Launched() {
  if (!exit_code_) {
    kill(SIGCONT);
    kill(SIGKILL);
    wait();
  }
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "--- process %d said:\n%s---\n", pid_, output().c_str());
  }
}

void Launched::kill(int signal) const {
  if (!exit_code_) ::kill(pid_, signal);
}

std::optional<int> Launched::wait(std::chrono::milliseconds deadline) {
  eventually(
      [this] {
        int status = 0;
        if (!exit_code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
          exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        return exit_code_.has_value();
      },
      deadline);
  return exit_code_;
}

std::string Launched::output() const {
  return read_file(fs::path(folder_.path()) / kOutput);
}

Leftovers leftovers(const std::string& socket_folder) {
  Leftovers found;
  const std::string children = "/proc/self/task/" + std::to_string(::getpid()) + "/children";
  std::istringstream pids(read_file(children));
  for (std::string pid; pids >> pid;) ++found.processes;
  for (const auto& entry : fs::directory_iterator(socket_folder)) {
    if (entry.is_socket()) ++found.sockets;
  }
  return found;
}

}  // namespace jobs

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--launch") {
    const auto found = jobs::launchers().find(argv[2]);
    if (found == jobs::launchers().end()) return 127;
    return found->second(jobs::Arguments(argv + 3, argv + argc));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
