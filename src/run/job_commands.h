// The commands around `divisi run`: jobs, logs, describe, delete, restart, completion, version.
// Each takes the words behind its name, prints, and has the exit code: 0, 2 for a mistake in the
// call, 125 when a backend failed.
#pragma once

#include <string>
#include <vector>

namespace divisi::run {

using Words = std::vector<std::string>;

int jobs_main(Words words);
int logs_main(Words words);
int describe_main(Words words);
int delete_main(Words words);
int restart_main(Words words);
int completion_main(Words words);
int version_main(Words words);

}  // namespace divisi::run
