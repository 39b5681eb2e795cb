#include <lockstep/simulate/extrapolation.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::simulate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExtrapolationTest : public ::testing::Test {
 protected:
  ExtrapolationTest() {
    profile_.backward_seconds = 0.1;
    profile_.processors = 4;
    profile_.threads_per_rank = 2;
    for (const double bytes : {1e6, 4e6}) {
      profile_.buckets.push_back({.bytes = bytes, .ready_seconds = 0.1});
    }
    network_.name = "gloo, measured";
    network_.wire = Wire::kNetwork;
    network_.measured = MeasuredNetwork{.ranks = 2, .backend = "gloo"};
    measure(1e3, 1e7);
  }
  void measure(double least, double most) {
    network_.measured->all_reduce.alone = MessageCost({{least, 1e-4}, {most, 1e-2}});
  }
  std::vector<std::string> found(const std::vector<int>& ranks) const {
    return extrapolations(profile_, network_, ranks, options_);
  }

  StepProfile profile_;
  Network network_;
  SimulationOptions options_;
};

TEST_F(ExtrapolationTest, SaysNothingOfWhatWasMeasured) {
  EXPECT_THAT(found({1, 2}), IsEmpty());
  network_.wire = Wire::kSharedMemory;
  network_.measured->backend = "shm";
  EXPECT_THAT(found({2}), IsEmpty());
}

TEST_F(ExtrapolationTest, NamesANetworkThatWasNeverMeasured) {
  network_ = named_network("--network", "10gbit");
  EXPECT_THAT(found({1, 8}), ElementsAre(AllOf(HasSubstr("the network 10gbit was never measured"),
                                               HasSubstr("no interval was checked"))));
  EXPECT_THAT(found({1}), IsEmpty()) << "one rank needs none";
}

TEST_F(ExtrapolationTest, NamesABackendThatNoPredictionWasCheckedOn) {
  network_.measured->backend = "nccl";
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("no prediction over nccl was ever compared")));
}

TEST_F(ExtrapolationTest, NamesRanksThatTheNetworkWasNotMeasuredOn) {
  EXPECT_THAT(found({1, 2, 4, 8}),
              ElementsAre(HasSubstr("measured on 2 ranks: what it takes on 4 to 8 is modelled")));
  EXPECT_THAT(found({2, 4}), ElementsAre(HasSubstr("what it takes on 4 is modelled, and")));
  network_.measured->all_reduce.taken = network_.measured->all_reduce.alone;
  EXPECT_THAT(found({2, 4}),
              ElementsAre(HasSubstr("is modelled without what it takes from computing, and")));
}

TEST_F(ExtrapolationTest, NamesSizesThatWereNotMeasured) {
  measure(1e3, 3.5e6);
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("buckets on 2 ranks of 1 MB to 4 MB are beyond the "
                                                "measured 1 kB to 3.5 MB")));
  options_.bytes_factor = 0.5;
  EXPECT_THAT(found({2}), IsEmpty());
  options_.bytes_factor = 1;
  options_.buckets = BucketSizes{.cap_bytes = 1e8, .first_cap_bytes = 1e8};
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("buckets on 2 ranks of 5 MB are beyond")));
  options_.buckets.reset();
  measure(1e4, 1e7);
  const std::vector<std::string> many = found({1024});
  ASSERT_EQ(many.size(), 2U);
  EXPECT_THAT(many[1], HasSubstr("messages on 1024 ranks of 977 B to 3.91 kB are beyond the "
                                 "measured 5 kB to 5 MB"));
}

TEST_F(ExtrapolationTest, CountsTheEndsOfARangeAsMeasured) {
  measure(1e6, 4e6);
  EXPECT_THAT(found({2}), IsEmpty());
  measure(1.01e6, 4e6);
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("beyond the measured 1.01 MB to 4 MB")));
  measure(1e6, 3.99e6);
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("beyond the measured 1 MB to 3.99 MB")));
  // Four ranks exchange quarters, and the network was measured with halves.
  measure(1e5, 2e6);
  EXPECT_THAT(found({4}), ElementsAre(HasSubstr("what it takes on 4 is modelled")));
  measure(1e5, 1.99e6);
  EXPECT_THAT(found({4}), ElementsAre(HasSubstr("what it takes on 4 is modelled"),
                                      HasSubstr("messages on 4 ranks of 250 kB to 1 MB are beyond "
                                                "the measured 50 kB to 995 kB")));
}

TEST_F(ExtrapolationTest, WritesSizesWithThreeDigits) {
  profile_.buckets = {{.bytes = 999.4, .ready_seconds = 0.1},
                      {.bytes = 12.34e9, .ready_seconds = 0.1}};
  measure(12.34e6, 123.4e6);
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("of 999 B to 12.3 GB are beyond the measured 12.3 "
                                                "MB to 123 MB")));
  profile_.buckets = {{.bytes = 999.6, .ready_seconds = 0.1},
                      {.bytes = 1.234e12, .ready_seconds = 0.1}};
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("of 1 kB to 1234 GB are")));
}

TEST_F(ExtrapolationTest, NamesAnAlgorithmThatWasNotMeasured) {
  options_.algorithm = "tree";
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("not measured with the algorithm tree: what it "
                                                "takes on 2 ranks is modelled from messages")));
  EXPECT_THAT(found({1}), IsEmpty());
  EXPECT_THAT(found({4}), ElementsAre(HasSubstr("what it takes on 4 is modelled")));
  // The messages of a chosen algorithm are compared with the measured ones, too.
  measure(1e3, 1e6);
  EXPECT_THAT(found({2}),
              ElementsAre(HasSubstr("is modelled from messages"),
                          HasSubstr("messages on 2 ranks of 500 kB to 2 MB are beyond")));
}

TEST_F(ExtrapolationTest, NamesAnotherSpeed) {
  options_.speed = 0.5;
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("measured at its own speed: at 0.5 times that")));
  options_.communicates = false;
  EXPECT_THAT(found({2, 1024}), IsEmpty()) << "nothing travels";
}

TEST_F(ExtrapolationTest, NamesTheCollectivesOfZeroThatWereNotMeasured) {
  options_.strategy = "zero1";
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("reduce_scatter and all_gather on 2 ranks were not "
                                                "measured: half of the all-reduce's time")));
  options_.shares_parameters = true;
  options_.ranks_per_host = 2;
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("reduce_scatter on 2 ranks was not measured")));
  options_.shares_parameters = false;
  options_.ranks_per_host = 1;
  MeasuredNetwork& measured = *network_.measured;
  measured.reduce_scatter = measured.all_gather = measured.all_reduce;
  EXPECT_THAT(found({2}), IsEmpty());
  measured.reduce_scatter->alone = MessageCost({{1e6, 1e-3}, {2e6, 2e-3}});
  EXPECT_THAT(found({2}),
              ElementsAre(HasSubstr("buckets on 2 ranks of 1 MB to 4 MB are beyond the measured 1 "
                                    "MB to 2 MB")));
  options_.bytes_factor = 0.25;  // the parameters keep their size
  measured.reduce_scatter = measured.all_reduce;
  measured.all_gather->alone = MessageCost({{1e3, 1e-3}, {2e6, 2e-3}});
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("parameters on 2 ranks of 1 MB to 4 MB are")));
  options_.shares_parameters = true;
  options_.ranks_per_host = 2;
  EXPECT_THAT(found({2}), IsEmpty()) << "nothing is gathered";
  options_.shares_parameters = false;
  options_.ranks_per_host = 1;
  measured.all_gather.reset();
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("all_gather on 2 ranks was not measured")));
  measure(1e3, 2e6);  // what is gathered is taken from the all-reduce
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("all_gather on 2 ranks was not measured"),
                                      HasSubstr("parameters on 2 ranks of 1 MB to 4 MB are")));
  options_.strategy = "ddp";
  options_.bytes_factor = 1;
  EXPECT_THAT(found({2}), ElementsAre(HasSubstr("buckets on 2 ranks of 1 MB to 4 MB are")));
}

TEST_F(ExtrapolationTest, NamesParametersThatOnlyHostsGather) {
  MeasuredNetwork& measured = *network_.measured;
  measured.ranks = 4;
  measured.reduce_scatter = measured.all_reduce;
  options_.strategy = "zero1";
  options_.shares_parameters = true;
  options_.ranks_per_host = 2;
  EXPECT_THAT(found({4}), ElementsAre(HasSubstr("the parameters that 2 hosts gather from each "
                                                "other are not a collective that was measured")));
  profile_.processors = 8;  // enough for all ranks
  network_.wire = Wire::kOneHost;
  EXPECT_THAT(found({4}), IsEmpty());
}

TEST_F(ExtrapolationTest, NamesRanksThatWaitForTheSlowest) {
  profile_.ranks = 2;
  profile_.straggler_seconds = 0.001;
  EXPECT_THAT(found({1, 2}), IsEmpty());
  EXPECT_THAT(found({2, 8}),
              ElementsAre(HasSubstr("the run had 2 ranks: how long up to 8 ranks wait for the "
                                    "slowest of them is modelled"),
                          HasSubstr("what it takes on 8 is modelled")));
  options_.has_stragglers = false;
  EXPECT_THAT(found({2, 8}), ElementsAre(HasSubstr("what it takes on 8 is modelled")));
}

TEST_F(ExtrapolationTest, NamesRanksThatShareProcessors) {
  options_.ranks_per_host = 3;
  EXPECT_THAT(found({2}), IsEmpty());
  EXPECT_THAT(found({6}),
              ElementsAre(HasSubstr("3 ranks of one host compute with 6 threads, and the host of "
                                    "the run has 4 processors"),
                          HasSubstr("is modelled")));
  options_.ranks_per_host = 1;
  EXPECT_THAT(found({6}), ElementsAre(HasSubstr("is modelled"))) << "each rank has a host";
  network_.wire = Wire::kOneHost;  // all ranks on one host
  EXPECT_THAT(found({6}), ElementsAre(HasSubstr("6 ranks of one host compute with 12 threads"),
                                      HasSubstr("is modelled")));
  network_.wire = Wire::kSharedMemory;
  EXPECT_THAT(found({6}), ElementsAre(HasSubstr("6 ranks of one host compute with 12 threads"),
                                      HasSubstr("is modelled")));
  profile_.processors = 1;
  EXPECT_THAT(found({1}), ElementsAre(HasSubstr("1 rank of one host compute with 2 threads, and "
                                                "the host of the run has 1 processor:")));
  profile_.processors = 0;
  EXPECT_THAT(found({6}), ElementsAre(HasSubstr("is modelled"))) << "not known";
}

}  // namespace
}  // namespace lockstep::simulate
