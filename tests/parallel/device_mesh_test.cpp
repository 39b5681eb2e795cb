#include <lockstep/parallel/device_mesh.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

TEST(DeviceMesh, IsRowMajor) {
  struct Seen {
    std::vector<int> coordinate;
    std::vector<int> data;
    std::vector<int> pipeline;
  };
  std::vector<Seen> seen(4);
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 2}});
    Seen& mine = seen[static_cast<std::size_t>(group.rank())];
    mine.coordinate = mesh.coordinate();
    mine.data = mesh.group("data").world_ranks();
    mine.pipeline = mesh.group("pipeline").world_ranks();
    LOCKSTEP_CHECK(mesh.size() == 4 && mesh.size("data") == 2 && mesh.dimensions().size() == 2);
    for (const char* name : {"data", "pipeline"}) {
      LOCKSTEP_CHECK(mesh.group(name).rank() == mesh.local_rank(name));
    }
    group.barrier();  // rank 0 hosts the store, which the others may still need
  });
  ASSERT_EQ(errors, no_errors(4));
  for (int rank = 0; rank < 4; ++rank) {
    const Seen& mine = seen[static_cast<std::size_t>(rank)];
    EXPECT_THAT(mine.coordinate, ElementsAre(rank / 2, rank % 2));
    EXPECT_THAT(mine.data, ElementsAre(rank % 2, rank % 2 + 2));
    EXPECT_THAT(mine.pipeline, ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
  }
}

TEST(DeviceMesh, GroupsAddUpAlongTheirDimension) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(4, backend, [](ProcessGroup group) {
      DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 2}});
      const auto value = static_cast<double>(1 << group.rank());  // 1, 2, 4, 8
      auto along_data = torch::full({3}, value);
      auto along_pipeline = torch::full({3}, value);
      mesh.group("data").all_reduce(along_data);
      mesh.group("pipeline").all_reduce(along_pipeline);
      const double of_data = mesh.local_rank("pipeline") == 0 ? 1 + 4 : 2 + 8;
      const double of_pipeline = mesh.local_rank("data") == 0 ? 1 + 2 : 4 + 8;
      LOCKSTEP_CHECK(along_data.eq(of_data).all().item<bool>(), along_data);
      LOCKSTEP_CHECK(along_pipeline.eq(of_pipeline).all().item<bool>(), along_pipeline);
    });
    EXPECT_EQ(errors, no_errors(4)) << backend;
  }
}

TEST(DeviceMesh, MayHaveDimensionsOfOneRank) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    DeviceMesh mesh(group, {{"data", 1}, {"pipeline", 2}, {"tensor", 1}});
    LOCKSTEP_CHECK(mesh.group("data").size() == 1 && mesh.local_rank("tensor") == 0);
    LOCKSTEP_CHECK(mesh.group("pipeline").world_ranks() == (std::vector<int>{0, 1}));
  });
  EXPECT_EQ(errors, no_errors(2));
  DeviceMesh alone(init_process_group({.environment = WorkerEnvironment{}}), {{"data", 1}});
  EXPECT_EQ(alone.group("data").size(), 1);
}

TEST(DeviceMesh, RefusesInOneLineWhatIsNoMesh) {
  struct Case {
    std::vector<MeshDimension> dimensions;
    const char* text;
  };
  const Case cases[] = {
      {{}, "a mesh needs a dimension at least"},
      {{{"", 2}}, "a dimension has no name"},
      {{{"data", 1}, {"data", 2}}, "there are two dimensions 'data'"},
      {{{"data", 2}, {"pipeline", 0}},
       "dimension 'pipeline' must have a size of at least 1, got 0"},
      {{{"data", 2}, {"pipeline", 3}},
       "data 2 x pipeline 3 cannot be the shape of a group of 2 ranks"},
      {{{"data", 1}}, "data 1 cannot be the shape of a group of 2 ranks"},
      {{{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}, "cannot be the shape of a group"},
  };
  for (const Case& c : cases) {
    const auto errors =
        run_group(2, "shm", [&](ProcessGroup group) { DeviceMesh(group, c.dimensions); });
    EXPECT_THAT(errors, Each(HasSubstr(c.text)));
    EXPECT_THAT(errors, Each(Not(HasSubstr("\n"))));
  }
}

TEST(DeviceMesh, TellsAllRanksWhenTheyDiffer) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    DeviceMesh(group, group.rank() == 0 ? std::vector<MeshDimension>{{"data", 2}}
                                        : std::vector<MeshDimension>{{"pipeline", 2}});
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 gave pipeline 2, rank 0 gave data 2")));
}

// The other ranks hear of it and do not wait for the rank that is wrong.
TEST(DeviceMesh, TellsAllRanksWhichOfThemIsWrong) {
  struct Case {
    int rank;
    std::vector<MeshDimension> dimensions;  // the others give data 3
    const char* text;
  };
  const Case cases[] = {
      {0, {{"data", 2}}, "DeviceMesh: rank 0: data 2 cannot be the shape of a group of 3 ranks"},
      {1, {}, "DeviceMesh: rank 1: a mesh needs a dimension at least"},
      {2, {{"", 3}}, "DeviceMesh: rank 2: a dimension has no name"},
      {2,
       {{"data", 3}, {"pipeline", 1}},
       "DeviceMesh: rank 2 gave data 3 x pipeline 1, rank 0 gave data 3; give all ranks the same"},
      {1, {{"pipeline", 1}, {"data", 3}}, "rank 1 gave pipeline 1 x data 3, rank 0 gave data 3"},
      {0, {{"all", 3}}, "DeviceMesh: rank 1 gave data 3, rank 0 gave all 3"},
  };
  for (const Case& c : cases) {
    const auto errors = run_group(3, "shm", [&](ProcessGroup group) {
      DeviceMesh(group,
                 group.rank() == c.rank ? c.dimensions : std::vector<MeshDimension>{{"data", 3}});
    });
    EXPECT_THAT(errors, Each(HasSubstr(c.text)));
  }
}

TEST(DeviceMesh, NamesADimensionThatItDoesNotHave) {
  DeviceMesh mesh(init_process_group({.environment = WorkerEnvironment{}}), {{"data", 1}});
  EXPECT_THAT(message_of<ConfigError>([&] { mesh.group("tensor"); }),
              HasSubstr("there is no dimension 'tensor' in data 1"));
  EXPECT_THROW(mesh.size("tensor"), ConfigError);
  EXPECT_THROW(mesh.local_rank("tensor"), ConfigError);
}

}  // namespace
}  // namespace lockstep
