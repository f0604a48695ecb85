// Who listens where and who dials whom: the rules of Parallel (spec 3.2-3.4) as functions of
// their arguments. Only detect_address(), make_ipc_addresses() and temp_directory() look at the
// machine.
#pragma once

#include "base/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::runtime {

enum class Topology { kMesh, kStar, kAlone };
enum class Protocol { kIpc, kTcp };

constexpr int kFirstPort = 50515;

Result<Topology> parse_topology(std::string_view text);  // "mesh", "star", "alone"
Result<Protocol> parse_protocol(std::string_view text);  // "ipc", "tcp"
std::string_view topology_name(Topology topology);
std::string_view protocol_name(Protocol protocol);

// The padding rule for ports and node ids: nothing counts up from `start`, one value counts up
// from itself, anything else stays as it is.
std::vector<int> padding_param(const std::vector<int>& values, int n, int start);

// Padded, and checked: exactly `n`, in range, no id twice.
Result<std::vector<int>> pad_ports(const std::vector<int>& ports, int n);
Result<std::vector<int>> pad_node_ids(const std::vector<int>& node_ids, int n);

// The source address towards 10.255.255.255 (nothing is sent). On a host without a route there:
// the first address of an interface that is up, at last 127.0.0.1.
std::string detect_address();

// $TMPDIR, or /tmp.
std::string temp_directory();

// `n` names ipc://<temp>/ditask_<4 random characters>_<i>.ipc that no file has yet.
Result<std::vector<std::string>> make_ipc_addresses(int n);

// The listen addresses of `n` workers. `address` empty: detected (tcp) or meaningless (ipc).
Result<std::vector<std::string>> node_addresses(int n, Protocol protocol,
                                                const std::string& address,
                                                const std::vector<int>& ports);

// `host:port` becomes `tcp://host:port`; ipc:// and tcp:// pass after a check of their parts.
Result<std::string> normalise_address(std::string_view text);
// The same of one to dial: port 0 is none.
Result<std::string> peer_address(std::string_view text);

// The file behind an ipc:// address; empty for anything else and for abstract names (ipc://@x).
std::string ipc_path(std::string_view address);

// Indices of the workers that worker `i` dials, and of all it is linked to (both directions).
std::vector<int> dialled_workers(Topology topology, int i);
std::vector<int> linked_workers(Topology topology, int n, int i);

}  // namespace divisi::runtime
