#include "launch/secret.h"

#include "launch/text.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <sys/stat.h>

namespace divisi::launch {

Result<Secret> read_secret_file(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (file == nullptr) {
    return failure(Code::kInvalid, "--secret-file: cannot read '{}': {}", shown(path),
                   errno_text(errno));
  }
  struct stat info{};
  if (::fstat(::fileno(file.get()), &info) != 0 || S_ISDIR(info.st_mode)) {
    return failure(Code::kInvalid, "--secret-file: '{}' is not a file", shown(path));
  }
  std::array<char, kMost + 1> bytes{};
  const std::size_t size = std::fread(bytes.data(), 1, bytes.size(), file.get());
  const std::string_view value = trimmed({bytes.data(), size});
  if (value.empty()) return failure(Code::kInvalid, "--secret-file: '{}' is empty", shown(path));
  if (size > kMost) {
    return failure(Code::kInvalid, "--secret-file: '{}' is longer than {} bytes", shown(path),
                   kMost);
  }
  Secret secret;
  secret.value = std::string(value);
  if (S_ISREG(info.st_mode) && (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    secret.warning = fmt::format("the secret file {} can be read by others; chmod 600 it", path);
  }
  return secret;
}

}  // namespace divisi::launch
