// CoordinatorLog: the lines that users of the first generation know, word for word (and letter for
// letter: some words are misspelt there). Everything else goes to the ordinary log.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace divisi::dist {

class CoordinatorLog {
 public:
  // Null: standard output.
  CoordinatorLog(std::function<void(std::string_view)> print, std::string id);

  const std::string& id() const { return id_; }

  template <class... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) const {
    write(fmt::format(text, std::forward<Args>(args)...));
  }
  // With "[Coordinator(<id>)]: " in front.
  template <class... Args>
  void named(fmt::format_string<Args...> text, Args&&... args) const {
    write(
        fmt::format("[Coordinator({})]: {}", id_, fmt::format(text, std::forward<Args>(args)...)));
  }

 private:
  void write(std::string line) const;

  const std::function<void(std::string_view)> print_;
  const std::string id_;
};

}  // namespace divisi::dist
