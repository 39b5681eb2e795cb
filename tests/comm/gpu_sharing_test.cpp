// How NCCL is made to accept ranks that share a GPU. The versions are given, so that no test needs
// NCCL.
#include <lockstep/comm/backends/nccl/gpu_sharing.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include <tests/support/scoped_environment.h>

namespace lockstep::nccl {
namespace {

using testing_support::ScopedEnvironment;
using SharingVariables = std::map<std::string, std::string>;

SharingVariables variables_of_rank(GpuSharing sharing, int rank, bool one_host) {
  const auto all = sharing_variables(sharing, rank, one_host);
  return {all.begin(), all.end()};
}

// Unsets all variables of both ways, and restores them at the end of a test.
void forget_sharing(ScopedEnvironment& environment) {
  for (const GpuSharing sharing : {GpuSharing::kOwnHosts, GpuSharing::kOnRequest}) {
    for (const auto& [name, value] : sharing_variables(sharing, 0, true)) {
      environment.set(name, std::nullopt);
    }
  }
}

TEST(GpuSharing, FollowsFromTheVersion) {
  struct Case {
    std::optional<int> version;
    std::optional<GpuSharing> expected;
  };
  const Case cases[] = {
      {std::nullopt, std::nullopt},    {2803, std::nullopt},  // 2.8.3
      {22706, std::nullopt},           {22800, GpuSharing::kOwnHosts},
      {22809, GpuSharing::kOwnHosts},  {22907, GpuSharing::kOwnHosts},
      {23000, GpuSharing::kOnRequest}, {23007, GpuSharing::kOnRequest},
      {30000, GpuSharing::kOnRequest},
  };
  for (const Case& c : cases)
    EXPECT_EQ(gpu_sharing(c.version), c.expected) << c.version.value_or(0);
}

TEST(GpuSharing, WritesVersionsAsNcclDoes) {
  EXPECT_EQ(version_text(2803), "2.8.3");
  EXPECT_EQ(version_text(20908), "2.9.8");
  EXPECT_EQ(version_text(22809), "2.28.9");
  EXPECT_EQ(version_text(23007), "2.30.7");
}

TEST(GpuSharing, MakesEachRankAHostOfItsOwn) {
  const SharingVariables first = variables_of_rank(GpuSharing::kOwnHosts, 0, true);
  EXPECT_EQ(first.at("NCCL_SOCKET_IFNAME"), "=lo");
  EXPECT_EQ(first.at("NCCL_NET"), "Socket");
  EXPECT_EQ(first.count("NCCL_MULTI_RANK_GPU_ENABLE"), 0U) << "NCCL 2.28 does not know it";
  std::set<std::string> hosts;
  for (int rank = 0; rank < 16; ++rank) {
    hosts.insert(variables_of_rank(GpuSharing::kOwnHosts, rank, rank % 2 == 0).at("NCCL_HOSTID"));
  }
  EXPECT_EQ(hosts.size(), 16U) << "also those of the ranks on other machines";
  // The loopback interface does not lead to other machines.
  const SharingVariables on_two_hosts = variables_of_rank(GpuSharing::kOwnHosts, 0, false);
  EXPECT_EQ(on_two_hosts.count("NCCL_SOCKET_IFNAME"), 0U);
  EXPECT_EQ(on_two_hosts.count("NCCL_NET"), 0U);
}

TEST(GpuSharing, AsksNcclWhereItCan) {
  const SharingVariables expected = {
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "2"}};
  EXPECT_EQ(variables_of_rank(GpuSharing::kOnRequest, 3, true), expected);
  EXPECT_EQ(variables_of_rank(GpuSharing::kOnRequest, 0, false), expected);
}

TEST(GpuSharing, LeavesTheUsersValues) {
  ScopedEnvironment environment;
  forget_sharing(environment);
  environment.set("NCCL_SOCKET_IFNAME", "eth0");
  EXPECT_FALSE(may_share_gpu());
  share_gpu(GpuSharing::kOwnHosts, 3, true);
  EXPECT_TRUE(may_share_gpu());
  for (const auto& [name, value] : sharing_variables(GpuSharing::kOwnHosts, 3, true)) {
    const char* const found = std::getenv(name.c_str());
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(std::string(found), name == "NCCL_SOCKET_IFNAME" ? "eth0" : value) << name;
  }
}

TEST(GpuSharing, IsOffWhereTheUserHasTurnedItOff) {
  ScopedEnvironment environment;
  forget_sharing(environment);
  environment.set("NCCL_MULTI_RANK_GPU_ENABLE", "0");
  share_gpu(GpuSharing::kOnRequest, 0, true);
  EXPECT_FALSE(may_share_gpu());
  environment.set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  EXPECT_TRUE(may_share_gpu());
}

TEST(GpuSharing, FindsNoNcclInAProgramWithoutLibTorch) {
  EXPECT_EQ(loaded_version(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::nccl
