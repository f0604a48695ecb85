// Roll: how many workers a coordinator was given. It is kept in an annotation of the coordinator's
// pod, so a server knows that a worker is missing whose end it did not see.
#pragma once

#include "server/first/operation.h"

#include <functional>
#include <optional>
#include <string>

namespace divisi::server::first {

// On a coordinator: its first demand is met, another one adds to it. The value is its roll; "true"
// is that of a server that kept none.
inline constexpr std::string_view kServed = "divisi/demand-served";

struct Roll {
  Size collectors{};
  Size learners{};
  Size groups{};  // logical learners: aggregators, with the GPUs of each

  // Of collectors, learners and aggregators; null for other roles.
  Size* find(Role role);
  // One that asks for this has been given so many more.
  void add(const Demand& demand, int more_collectors, int more_learners);
};

std::string print_roll(const Roll& roll);
// Nothing: the pod has none.
std::optional<Roll> read_roll(const json::Value& coordinator);

// Gets the roll as it is, or nothing, and gives what it shall be; nothing leaves it.
using RollChange = std::function<std::optional<Roll>(std::optional<Roll>)>;

// Reads the coordinator's pod as it is now, and changes its roll. Ends well when that pod is gone.
void change_roll(const Parts& parts, const json::Value& coordinator, RollChange change,
                 std::function<void(Status)> done);

}  // namespace divisi::server::first
