// divisi scale, suspend and resume: for jobs of backends that can. Exit codes as of
// job_commands.h.
#pragma once

#include <string>
#include <vector>

namespace divisi::run {

int scale_main(std::vector<std::string> words);
int suspend_main(std::vector<std::string> words);
int resume_main(std::vector<std::string> words);

}  // namespace divisi::run
