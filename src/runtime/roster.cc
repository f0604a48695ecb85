#include "runtime/roster.h"

#include "json/value.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace divisi::runtime {

namespace {

constexpr std::size_t kMostMembers = 65'536;
constexpr int kLargestRank = 1 << 20;

// Names and addresses of either kind.
bool is_host(std::string_view text) {
  constexpr std::size_t kLongest = 253;
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':';
  });
}

Result<Member> parse_member(const json::Value& value, std::size_t index) {
  const auto wrong = [&](std::string_view what) {
    return failure(Code::kInvalid, "members[{}]: {}", index, what);
  };
  Member member;
  const auto rank = value.int_at({"rank"});
  if (!rank || *rank < 0 || *rank > kLargestRank) return wrong("no rank");
  member.rank = static_cast<int>(*rank);
  member.pod = value.string_at({"pod"});
  member.host = value.string_at({"host"});
  member.ip = value.string_at({"ip"});
  member.ready = value.bool_at({"ready"}).value_or(false);
  if (!is_host(member.host)) return wrong("'host' is not the name of a host");
  if (!member.ip.empty() && !is_host(member.ip)) return wrong("'ip' is not an address");
  return member;
}

io::Address tcp(std::string host, int port) {
  io::Address address;
  address.host = std::move(host);
  address.port = static_cast<std::uint16_t>(port);
  return address;
}

}  // namespace

Result<std::vector<Member>> parse_members(std::string_view text) {
  DIVISI_TRY(const json::Value document, json::parse(text));
  const json::Value* const found = document.find("members");
  const json::Array* const list = found == nullptr ? nullptr : found->as_array();
  if (list == nullptr) return failure(Code::kInvalid, "there is no list 'members'");
  if (list->size() > kMostMembers) {
    return failure(Code::kInvalid, "more than {} members", kMostMembers);
  }
  std::vector<Member> members;
  members.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    DIVISI_TRY(Member member, parse_member((*list)[i], i));
    members.push_back(std::move(member));
  }
  return members;
}

Roster::Roster(const JobLinks& links) : links_(links) {
  for (std::size_t i = 0; i < links.hosts.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!is_linked(rank)) continue;
    hosts_[rank] = links.hosts[i];
    absent_.insert(rank);
  }
}

bool Roster::is_linked(int rank) const {
  if (rank == links_.rank) return false;
  return links_.topology == Topology::kMesh ||
         (links_.topology == Topology::kStar && (rank == 0 || links_.rank == 0));
}

bool Roster::dials(int rank) const {
  return links_.topology == Topology::kStar ? rank == 0 : rank < links_.rank;
}

void Roster::add_places(int rank, const Member* member,
                        std::vector<mesh::PeerPlace>& places) const {
  const int workers = static_cast<int>(links_.ports.size());
  for (int i = 0; i < workers; ++i) {
    const int port = links_.ports[static_cast<std::size_t>(i)];
    mesh::PeerPlace place;
    place.node = rank * workers + i;
    place.address = tcp(hosts_.at(rank), port);
    if (member != nullptr && !member->ip.empty()) place.at = tcp(member->ip, port);
    place.dial = dials(rank);
    places.push_back(std::move(place));
  }
}

std::optional<Roster::Change> Roster::update(const std::vector<Member>& members) {
  std::map<int, Member> now;
  bool knows_us = false;
  for (const Member& member : members) {
    knows_us = knows_us || member.rank == links_.rank;
    if (is_linked(member.rank)) now[member.rank] = member;
  }
  if (!knows_us) return std::nullopt;
  Change change;
  for (const auto& [rank, before] : present_) {
    if (!now.contains(rank)) add_places(rank, nullptr, change.gone);
  }
  for (const auto& [rank, member] : now) {
    const auto before = present_.find(rank);
    if (before != present_.end() && before->second == member) continue;
    hosts_.emplace(rank, member.host);  // one that DI_NODES names keeps that name
    absent_.erase(rank);
    add_places(rank, &member, change.come);
  }
  present_ = std::move(now);
  return change;
}

std::vector<mesh::PeerPlace> Roster::give_up_absent() {
  std::vector<mesh::PeerPlace> gone;
  for (const int rank : std::exchange(absent_, {})) add_places(rank, nullptr, gone);
  return gone;
}

}  // namespace divisi::runtime
