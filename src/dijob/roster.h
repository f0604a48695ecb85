// Roster: which replicas a job should have, and their ranks, which stay.
//
// A rank belongs to a (task, index) for as long as that replica is wanted: who is replaced keeps
// it. What is no longer wanted keeps its line, so that the list of hosts has no hole, until a new
// replica takes the rank over. The record of it is status.ranks.
#pragma once

#include "dijob/pod.h"

#include <string>
#include <vector>

namespace divisi::dijob {

struct Roster {
  std::vector<Slot> slots{};  // wanted: tasks in their order, indexes ascending
  std::vector<Slot> all{};    // also those no longer wanted; by rank, without a hole
  json::Value record{};       // status.ranks
};

// `record` may be null: of a job that was just made, or made by another operator.
Roster make_roster(const Job& job, const json::Value* record, const std::vector<Pod>& pods);

// Edits that are not applied to a live job (the name or type of a task): `job` gets what the record
// says. One line for each.
std::vector<std::string> refuse_edits(Job& job, const json::Value* record);

}  // namespace divisi::dijob
