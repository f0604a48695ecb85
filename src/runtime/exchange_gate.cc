#include "runtime/exchange_gate.h"

#include "base/log.h"

namespace divisi::runtime {

bool in_job(const Task& owner) {
  return owner.labels().contains("distributed");
}

bool has_exchange(const Task& owner, std::string_view name) {
  if (!in_job(owner)) return false;
  const auto roles = owner.roles();
  if (roles.empty()) {
    log::warning("{}: the task has no role, so it is void; call add_role first", name);
    return false;
  }
  if (roles.size() > 1) {
    log::warning("{}: the task has {} roles at once; events of its own roles do not reach it", name,
                 roles.size());
  }
  return true;
}

}  // namespace divisi::runtime
