// Which files a .gitignore leaves out, by git's own rules.
//
//   Gitignore rules;
//   rules.add("sub", text_of_sub_gitignore);     // outer folders first
//   rules.ignores("sub/build/a.o", false)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi::run {

class Gitignore {
 public:
  // The text of the .gitignore in `folder` ("" is the root). The last rule that fits decides.
  void add(std::string_view folder, std::string_view text);
  // Of a path below the root. What is in an ignored folder is not asked for: git does not look
  // there either.
  bool ignores(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder{};   // with a slash at its end, or empty
    std::string pattern{};  // without the marks below
    bool negated = false;
    bool only_folders = false;
    bool anchored = false;  // of the whole path below `folder`; otherwise of the last part
  };
  static bool fits(const Rule& rule, std::string_view path, bool is_folder);

  std::vector<Rule> rules_;
};

// A pattern with *, ?, [..] that do not match '/', and ** that does.
bool path_match(std::string_view pattern, std::string_view path);

}  // namespace divisi::run
