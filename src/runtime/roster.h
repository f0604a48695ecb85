// Roster: who is in the job at present, by the lists of the di-server, and what changes for this
// node when a new list comes. No sockets here: lists in, changes out.
#pragma once

#include "base/status.h"
#include "mesh/options.h"
#include "runtime/worker_config.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::runtime {

// One pod, as the di-server tells of it.
struct Member {
  int rank = 0;
  std::string pod{};
  std::string host{};
  std::string ip{};  // empty: the pod is not on the network yet
  bool ready = false;

  friend bool operator==(const Member&, const Member&) = default;
};

// {"members": [{"rank": 0, "host": "...", ...}, ...]}. Fails naming the first entry that is wrong.
Result<std::vector<Member>> parse_members(std::string_view text);

class Roster {
 public:
  // `links` as the launcher has computed them from DI_NODES.
  explicit Roster(const JobLinks& links);

  struct Change {
    std::vector<mesh::PeerPlace> come{};  // new, or at a new place
    std::vector<mesh::PeerPlace> gone{};
    bool empty() const { return come.empty() && gone.empty(); }
  };
  // Nothing for a list without ourselves: it is not about the job as it is now.
  std::optional<Change> update(const std::vector<Member>& members);

  // Nodes that DI_NODES names and no list ever had. Their pods may be about to be made, so that
  // the caller decides when to ask; afterwards they count as gone.
  std::vector<mesh::PeerPlace> give_up_absent();
  bool has_absent() const { return !absent_.empty(); }

 private:
  bool is_linked(int rank) const;
  bool dials(int rank) const;
  void add_places(int rank, const Member* member, std::vector<mesh::PeerPlace>& places) const;

  const JobLinks links_;
  std::map<int, Member> present_;     // by rank, without ourselves
  std::map<int, std::string> hosts_;  // by rank: the name it is dialled by
  std::set<int> absent_;              // ranks
};

}  // namespace divisi::runtime
