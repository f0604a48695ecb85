// Jobs as text for people: a table of all, a page of one.
#pragma once

#include "run/record.h"

#include <chrono>
#include <string>
#include <vector>

namespace divisi::run {

// Aligned columns, two blanks apart; the last one is not filled.
std::string columns(const std::vector<std::vector<std::string>>& rows);

// "45s", "12m", "3h", "5d".
std::string age_text(std::chrono::system_clock::duration age);

std::string job_table(const std::vector<JobRecord>& jobs, bool wide);
std::string describe_job(const JobRecord& job, const std::string& folder);

}  // namespace divisi::run
