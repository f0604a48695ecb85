#include "runtime/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace divisi::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

TEST(PaddingTest, FollowsTheTableOfTheSpecification) {
  EXPECT_THAT(padding_param({}, 3, 50515), ElementsAre(50515, 50516, 50517));
  EXPECT_THAT(padding_param({50515}, 3, 7), ElementsAre(50515, 50516, 50517));
  EXPECT_THAT(padding_param({5, 9, 7}, 3, 0), ElementsAre(5, 9, 7));
  EXPECT_THAT(padding_param({5, 9}, 3, 0), ElementsAre(5, 9));
  EXPECT_THAT(padding_param({}, 0, 0), IsEmpty());
}

TEST(PaddingTest, A064WrongNumberOfPortsNamesBothNumbers) {
  const auto ports = pad_ports({50515, 50516, 50517}, 2);
  ASSERT_FALSE(ports.has_value());
  EXPECT_EQ(ports.error().code(), Code::kInvalid);
  EXPECT_EQ(ports.error().message(), "3 ports were given for 2 workers");
}

TEST(PaddingTest, A127PortsMayBeListedOneByOne) {
  EXPECT_THAT(pad_ports({50515, 50517}, 2).value(), ElementsAre(50515, 50517));
}

TEST(PaddingTest, PortsMustExistAndDiffer) {
  EXPECT_FALSE(pad_ports({65536}, 1).has_value());
  EXPECT_FALSE(pad_ports({65535}, 2).has_value());
  EXPECT_FALSE(pad_ports({-1}, 1).has_value());
  EXPECT_FALSE(pad_ports({7000, 7000}, 2).has_value());
  EXPECT_THAT(pad_ports({0, 0}, 2).value(), ElementsAre(0, 0));
}

TEST(PaddingTest, NodeIdsMustBeComplete) {
  EXPECT_THAT(pad_node_ids({}, 2).value(), ElementsAre(0, 1));
  EXPECT_THAT(pad_node_ids({5}, 2).value(), ElementsAre(5, 6));
  EXPECT_EQ(pad_node_ids({5, 9}, 3).error().message(), "2 node ids were given for 3 workers");
  EXPECT_EQ(pad_node_ids({4, 4}, 2).error().message(), "node id 4 was given to two workers");
  EXPECT_FALSE(pad_node_ids({-2}, 1).has_value());
}

TEST(TopologyTest, NamesAreParsedAndPrinted) {
  for (const char* const name : {"mesh", "star", "alone"}) {
    EXPECT_EQ(topology_name(parse_topology(name).value()), name);
  }
  for (const char* const name : {"ipc", "tcp"}) {
    EXPECT_EQ(protocol_name(parse_protocol(name).value()), name);
  }
  EXPECT_THAT(parse_protocol("udp").error().message(), HasSubstr("unknown protocol 'udp'"));
}

TEST(TopologyTest, A064AnUnknownTopologyIsAUsageError) {
  const auto ring = parse_topology("ring");
  ASSERT_FALSE(ring.has_value());
  EXPECT_EQ(ring.error().code(), Code::kInvalid);
  EXPECT_THAT(ring.error().message(), AllOf(HasSubstr("ring"), HasSubstr("mesh, star or alone")));
}

TEST(TopologyTest, MeshDialsEveryLowerWorker) {
  EXPECT_THAT(dialled_workers(Topology::kMesh, 0), IsEmpty());
  EXPECT_THAT(dialled_workers(Topology::kMesh, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(linked_workers(Topology::kMesh, 4, 1), ElementsAre(0, 2, 3));
}

TEST(TopologyTest, StarDialsTheHubOnly) {
  EXPECT_THAT(dialled_workers(Topology::kStar, 0), IsEmpty());
  EXPECT_THAT(dialled_workers(Topology::kStar, 3), ElementsAre(0));
  EXPECT_THAT(linked_workers(Topology::kStar, 4, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(linked_workers(Topology::kStar, 4, 2), ElementsAre(0));
}

TEST(TopologyTest, AloneDialsNobody) {
  EXPECT_THAT(dialled_workers(Topology::kAlone, 3), IsEmpty());
  EXPECT_THAT(linked_workers(Topology::kAlone, 4, 0), IsEmpty());
}

TEST(AddressTest, IpcNamesHaveARandomTagAndTheWorkerNumber) {
  const auto addresses = node_addresses(3, Protocol::kIpc, "ignored", {}).value();
  ASSERT_EQ(addresses.size(), 3u);
  const std::string start = "ipc://" + temp_directory() + "/ditask_";
  EXPECT_THAT(addresses[2].substr(start.size()), MatchesRegex("[a-z0-9]{4}_2\\.ipc"));
  EXPECT_EQ(addresses[0].substr(0, start.size() + 4), addresses[2].substr(0, start.size() + 4));
}

TEST(AddressTest, LaunchersWithTheSameSeedDrawDifferentNames) {
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    std::srand(1);
    names.insert(make_ipc_addresses(1).value().front());
  }
  EXPECT_GT(names.size(), 40u);  // 36^4 names: a repeat among 50 is rare, ten do not happen
}

TEST(AddressTest, OldSocketFilesOfKilledProcessesAreRemoved) {
  const auto make_socket = [](const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd, 1), 0);
    return fd;
  };
  const auto make_old = [](const std::string& path) {
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  const std::string stem = fmt::format("{}/ditask_t{}", temp_directory(), ::getpid());
  const std::string stale = stem + "a_0.ipc";
  const std::string young = stem + "b_0.ipc";
  const std::string alive = stem + "c_0.ipc";
  ::close(make_socket(stale));
  ::close(make_socket(young));
  const int listening = make_socket(alive);
  make_old(stale);
  make_old(alive);
  ASSERT_TRUE(make_ipc_addresses(1).has_value());
  struct stat file{};
  EXPECT_NE(::lstat(stale.c_str(), &file), 0);
  EXPECT_EQ(::lstat(young.c_str(), &file), 0);
  EXPECT_EQ(::lstat(alive.c_str(), &file), 0);
  ::close(listening);
  ::unlink(young.c_str());
  ::unlink(alive.c_str());
}

TEST(AddressTest, APathLongerThanASocketMayHaveIsAnError) {
  const char* const kept = std::getenv("TMPDIR");
  const std::string previous = kept == nullptr ? "" : kept;
  ::setenv("TMPDIR", ("/tmp/" + std::string(100, 'x')).c_str(), 1);
  const auto addresses = make_ipc_addresses(1);
  if (kept == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", previous.c_str(), 1);
  }
  ASSERT_FALSE(addresses.has_value());
  EXPECT_THAT(addresses.error().message(), HasSubstr("TMPDIR"));
}

TEST(AddressTest, TcpAddressesCarryTheirPorts) {
  EXPECT_THAT(node_addresses(2, Protocol::kTcp, "127.0.0.2", {6000}).value(),
              ElementsAre("tcp://127.0.0.2:6000", "tcp://127.0.0.2:6001"));
  EXPECT_THAT(node_addresses(1, Protocol::kTcp, "::1", {6000}).value(),
              ElementsAre("tcp://[::1]:6000"));
  EXPECT_THAT(node_addresses(1, Protocol::kTcp, "", {}).value(),
              ElementsAre(fmt::format("tcp://{}:50515", detect_address())));
}

TEST(AddressTest, TheDetectedAddressIsAnIpv4Address) {
  EXPECT_THAT(detect_address(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(AddressTest, A125AnAddressWithoutSchemeMeansTcp) {
  EXPECT_EQ(normalise_address("127.0.0.1:50515").value(), "tcp://127.0.0.1:50515");
  EXPECT_EQ(normalise_address("tcp://SH-0:50515").value(), "tcp://SH-0:50515");
  EXPECT_EQ(normalise_address("ipc:///tmp/a.ipc").value(), "ipc:///tmp/a.ipc");
  EXPECT_FALSE(normalise_address("127.0.0.1").has_value());
  EXPECT_FALSE(normalise_address("http://a:1").has_value());
  EXPECT_FALSE(normalise_address("a:99999").has_value());
}

TEST(AddressTest, OnlyIpcAddressesHaveAFile) {
  EXPECT_EQ(ipc_path("ipc:///tmp/a.ipc"), "/tmp/a.ipc");
  EXPECT_EQ(ipc_path("ipc://@abstract"), "");
  EXPECT_EQ(ipc_path("tcp://a:1"), "");
}

}  // namespace
}  // namespace divisi::runtime
