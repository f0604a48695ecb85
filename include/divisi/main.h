// DIVISI_MAIN: names a function that worker processes may enter.
//
//   int greet() { ... return 0; }
//   DIVISI_MAIN(greet)
//
//   int main() { return divisi::Parallel::runner({.n_parallel_workers = 2}).run(greet); }
//
// A worker is a fresh process of the same program. It runs all static constructors, then enters
// the registered function in place of main(). `ditask --main module.function` finds the function
// among the registrations of module.so. The function may be
//   int f()   void f()   int f(int argc, char** argv)
//   int or void f(std::vector<std::string> args), also by const reference.
// A returned int other than 0, or an exception, means that the worker failed.
#pragma once

#include "divisi/export.h"

#include <string>
#include <type_traits>
#include <vector>

namespace divisi::detail {

using AnyFunction = void (*)();
using EntryCall = int (*)(const std::vector<std::string>& args);

// `args[0]` of an argc/argv function is the function's own name, as a program's is its path.
template <class Function>
int call_main(Function& function, const char* name, const std::vector<std::string>& args) {
  if constexpr (std::is_invocable_r_v<int, Function&, int, char**>) {
    std::vector<std::string> copies{name};
    copies.insert(copies.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (auto& copy : copies) argv.push_back(copy.data());
    argv.push_back(nullptr);
    return function(static_cast<int>(copies.size()), argv.data());
  } else if constexpr (std::is_invocable_v<Function&>) {
    if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
      function();
      return 0;
    } else {
      static_assert(std::is_invocable_r_v<int, Function&>,
                    "a DIVISI_MAIN function returns int or void");
      return function();
    }
  } else {
    static_assert(std::is_invocable_v<Function&, const std::vector<std::string>&>,
                  "a DIVISI_MAIN function takes nothing, (int, char**), or "
                  "std::vector<std::string>");
    if constexpr (std::is_void_v<
                      std::invoke_result_t<Function&, const std::vector<std::string>&>>) {
      function(args);
      return 0;
    } else {
      return function(args);
    }
  }
}

// One registered function; a static constant of the user's own object. The first two fields never
// move: they are what makes a record of another version recognisable.
struct EntryRecord {
  int abi_version;
  const char* name;  // as written in the macro
  const char* file;
  int line;
  AnyFunction function;
  EntryCall call;
};

// A package that is unloaded takes its entries with it.
class DIVISI_API EntryRegistrar {
 public:
  explicit EntryRegistrar(const EntryRecord* record);
  ~EntryRegistrar();
  EntryRegistrar(const EntryRegistrar&) = delete;
  EntryRegistrar& operator=(const EntryRegistrar&) = delete;

 private:
  const EntryRecord* record_;
};

}  // namespace divisi::detail

#define DIVISI_MAIN_NUMBERED(number, function_name, text)                       \
  static const ::divisi::detail::EntryRecord divisi_main_record_##number{       \
      DIVISI_ABI_VERSION,                                                       \
      (text),                                                                   \
      __FILE__,                                                                 \
      __LINE__,                                                                 \
      reinterpret_cast<::divisi::detail::AnyFunction>(&(function_name)),        \
      [](const std::vector<std::string>& args) -> int {                         \
        return ::divisi::detail::call_main((function_name), (text), args);      \
      }};                                                                       \
  static const ::divisi::detail::EntryRegistrar divisi_main_registrar_##number( \
      &divisi_main_record_##number);
#define DIVISI_MAIN_EXPANDED(number, function_name, text) \
  DIVISI_MAIN_NUMBERED(number, function_name, text)

#define DIVISI_MAIN(function_name) DIVISI_MAIN_EXPANDED(__COUNTER__, function_name, #function_name)

// Under another name: DIVISI_MAIN_AS("main", run_collector). C++ does not let a program take the
// address of its ::main, and `--main module.main` is what people type.
#define DIVISI_MAIN_AS(name, function_name) DIVISI_MAIN_EXPANDED(__COUNTER__, function_name, name)
