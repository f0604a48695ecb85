// AppendFile: a file to which records are added, each as a whole.
#pragma once

#include <string>
#include <string_view>

namespace divisi::runtime {

// Not thread-safe. Errors are thrown as Error, with the path and the text of errno.
class AppendFile {
 public:
  enum class Open {
    kNew,     // it must not be there yet
    kAppend,  // it may
  };
  // Makes the folder where it is missing.
  AppendFile(std::string path, Open how);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  // One write. If only a part fits, the file is cut back to where it was: what follows later can
  // still be read.
  void append(std::string_view record) const;
  void sync() const;

 private:
  std::string path_;
  int fd_;
};

}  // namespace divisi::runtime
