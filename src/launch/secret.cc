#include "launch/secret.h"

namespace divisi::launch {

Result<Secret> read_secret_file(const std::string& path) {
  return runtime::read_secret_file(path, "--secret-file");
}

}  // namespace divisi::launch
