#include "ding/prepare_config.h"

#include "ding/config_script.h"
#include "io/process.h"
#include "pickle/reader.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

namespace divisi::ding {

namespace {

std::string python_program() {
  const char* chosen = std::getenv("DIVISI_PYTHON");  // NOLINT(concurrency-mt-unsafe): never set
  return chosen != nullptr && *chosen != '\0' ? chosen : "python3";
}

json::Value places_of(const Options& options) {
  const auto place = [](const std::string& host, const std::optional<std::uint16_t>& port,
                        int otherwise) {
    return json::Object{{"host", host}, {"port", port ? int{*port} : otherwise}};
  };
  return json::Object{
      {"seed", options.seed},
      {"platform", options.platform},
      {"coordinator", place(options.coordinator_host, options.coordinator_port, 22'273)},
      {"collector", place(options.collector_host, options.collector_port, 22'270)},
      {"learner", place(options.learner_host, options.learner_port, 22'271)},
  };
}

// The last line of what the script said, without what a terminal would act on.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t before = text.rfind('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  std::string line = text.substr(begin, end + 1 - begin);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line;
}

}  // namespace

Result<std::string> prepare_config(const Options& options) {
  const std::string& path = options.config;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return failure(Code::kInvalid, "{}: there is no such configuration", path);
  }
  const std::string output = path + ".pkl";
  auto child = io::Process::spawn({.program = python_program(),
                                   .arguments = {"-c", std::string(kConfigScript), path, output,
                                                 json::print(places_of(options))},
                                   .standard_error = io::Stdio::kPipe});
  if (!child) {
    return failure(
        child.error().with_context(fmt::format("running {} with {}", path, python_program())));
  }
  DIVISI_TRY(const std::string said, io::read_all(child->error().get()));
  DIVISI_TRY(const io::ExitStatus status, child->wait());
  if (!status.ok()) {
    const std::string line = last_line(said);
    if (!line.empty()) return failure(Code::kInvalid, "{}", line);
    return failure(Code::kInternal, "{}: {} ended with {}", path, python_program(),
                   status.signal != 0 ? io::signal_name(status.signal)
                                      : fmt::format("exit code {}", status.code));
  }
  if (!said.empty()) std::fputs(said.c_str(), stderr);  // warnings of the file
  // What was written must be readable where it is used.
  DIVISI_TRY([[maybe_unused]] const json::Value config, read_config(output));
  return output;
}

Result<json::Value> read_config(const std::string& path) {
  const io::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return failure(Code::kInvalid, "{}: {}; --module config -c FILE.py writes FILE.py.pkl", path,
                   errno_text(errno));
  }
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return failure(Code::kInvalid, "{}: not a file", path);
  }
  const pickle::Limits limits;
  if (static_cast<std::size_t>(facts.st_size) > limits.max_bytes) {
    return failure(Code::kInvalid, "{}: {} bytes, more than {}", path, facts.st_size,
                   limits.max_bytes);
  }
  DIVISI_TRY(const std::string bytes, io::read_all(file.get()));
  auto value = pickle::load(bytes, limits);
  // Whatever is wrong with it, it is the wrong file to give.
  if (!value) return failure(Code::kInvalid, "{}: {}", path, value.error().message());
  auto document = pickle::to_json(*value);
  if (!document) return failure(document.error().with_context(path));
  for (const char* part : {"main", "system"}) {
    const json::Value* found = document->find(part);
    if (found == nullptr || found->as_object() == nullptr) {
      return failure(Code::kInvalid, "{}: it has no '{}': is it the .pkl of --module config?", path,
                     part);
    }
  }
  return document;
}

}  // namespace divisi::ding
