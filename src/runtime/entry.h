// Finding what a worker runs: the registrations of DIVISI_MAIN and exported C symbols.
#pragma once

#include "base/status.h"
#include "divisi/main.h"
#include "runtime/worker_config.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::runtime {

struct Entry {
  EntryRef ref;
  std::string object;  // path of the program or shared object it was compiled into
  std::function<int(const std::vector<std::string>&)> call;
};

// The registration of a function of this process. kInvalid, naming DIVISI_MAIN, when there is none.
Result<Entry> find_entry(detail::AnyFunction function);

// By name among the registrations of one loaded object (a path as given to load_library; empty:
// the whole process). `function` also finds `any::scope::function` if that is the only one.
// kNotFound lists the nearest names; kInvalid names both ABI versions when they differ.
Result<Entry> find_entry(std::string_view object, std::string_view name,
                         std::string_view where = {});

// dlopen (now, local), kept until the process ends. The error is the loader's own text.
Status load_library(const std::string& path);

// Loads what the reference names and finds it: what a worker does before it enters `main`.
Result<Entry> resolve_entry(const EntryRef& ref);

// Names registered in an object, sorted; for `ditask` messages.
std::vector<std::string> entry_names(std::string_view object);

// Candidates within a small edit distance of `wanted`, nearest first, at most three.
std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& candidates);

}  // namespace divisi::runtime
