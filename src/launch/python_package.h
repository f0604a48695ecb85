// Packages written in Python: where their module is, and how a worker for it is started.
#pragma once

#include "launch/entry_name.h"

#include <string>
#include <vector>

namespace divisi::launch {

// The folders in which `entry` is looked for before anywhere else, as in candidate_files().
std::vector<std::string> search_folders(const EntryName& entry, const std::string& package,
                                        const std::string& parent);

// True if one of the folders has the module: a file, a package, or a folder on the way to them.
bool has_python_module(const EntryName& entry, const std::vector<std::string>& folders);

// The interpreter and its arguments that run one worker: DIVISI_PYTHON, or python3. The divisi
// package beside the running program, in a build tree or a wheel, is the one it imports.
std::vector<std::string> python_worker_command();

// Asks the interpreter whether it would find the module among what is installed.
bool is_installed_python_module(const EntryName& entry);

}  // namespace divisi::launch
