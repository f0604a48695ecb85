#include "runtime/secret_file.h"

#include "base/log.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <sys/stat.h>

namespace divisi::runtime {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path, std::string_view option) {
  constexpr std::size_t kMost = 4096;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (file == nullptr) {
    return failure(Code::kInvalid, "{}: cannot read '{}': {}", option, log::printable(path),
                   errno_text(errno));
  }
  struct stat info{};
  if (::fstat(::fileno(file.get()), &info) != 0 || S_ISDIR(info.st_mode)) {
    return failure(Code::kInvalid, "{}: '{}' is not a file", option, log::printable(path));
  }
  std::array<char, kMost + 1> bytes{};
  const std::size_t size = std::fread(bytes.data(), 1, bytes.size(), file.get());
  const std::string_view value = trimmed({bytes.data(), size});
  if (value.empty())
    return failure(Code::kInvalid, "{}: '{}' is empty", option, log::printable(path));
  if (size > kMost) {
    return failure(Code::kInvalid, "{}: '{}' is longer than {} bytes", option, log::printable(path),
                   kMost);
  }
  Secret secret;
  secret.value = std::string(value);
  // In a pod the file is the cluster's to protect: nobody else is there, and a chmod is not
  // possible.
  const bool in_pod = std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
  if (!in_pod && S_ISREG(info.st_mode) && (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    secret.warning = fmt::format("the secret file {} can be read by others; chmod 600 it", path);
  }
  return secret;
}

}  // namespace divisi::runtime
