#include <lockstep/simulate/network.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::simulate {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

TEST(Network, HasNames) {
  double before = 1;
  for (const char* name : {"1gbit", "10gbit", "25gbit", "100gbit", "nvlink"}) {
    const double seconds = named_network("--network", name).between_hosts.seconds(1e8);
    EXPECT_LT(seconds, before) << name;
    before = seconds;
  }
  EXPECT_NEAR(named_network("--network", "1gbit").between_hosts.seconds(1e9),
              1e9 / (0.94 * 1e9 / 8), 1e-3);
}

TEST(Network, HasTheLatencyAndRateOfItsName) {
  struct Link {
    const char* name;
    double latency;
    double rate;
  };
  for (const Link& link : {Link{"1gbit", 50e-6, 0.1175e9}, Link{"10gbit", 30e-6, 1.175e9},
                           Link{"25gbit", 25e-6, 2.9375e9}, Link{"100gbit", 15e-6, 11.75e9},
                           Link{"nvlink", 4e-6, 230e9}, Link{"20,2.5", 20e-6, 2.5e9}}) {
    const Network network = named_network("--network", link.name);
    EXPECT_EQ(network.name, link.name);
    EXPECT_NEAR(network.between_hosts.seconds(0), link.latency, 1e-12) << link.name;
    EXPECT_NEAR(network.between_hosts.seconds(link.rate), link.latency + 1, 1e-6) << link.name;
    EXPECT_NEAR(network.within_host.seconds(0), 4e-6, 1e-12) << link.name;
    EXPECT_NEAR(network.within_host.seconds(230e9), 1.000004, 1e-6) << link.name;
    EXPECT_FALSE(network.measured.has_value());
    EXPECT_FALSE(network.shares_processor);
  }
}

TEST(Network, IsTwoNumbers) {
  const Network network = named_network("--network", "18,2.5");
  EXPECT_DOUBLE_EQ(network.between_hosts.seconds(0), 18e-6);
  EXPECT_NEAR(network.between_hosts.seconds(2.5e9), 1.000018, 1e-9);
}

TEST(Network, RefusesWhatIsNone) {
  for (const char* text : {"", "12gbit", "18", "18,", ",2", "18,0", "-1,2", "18,2x", "nan,1",
                           "1,inf", "1;2", "1.1e9,1", "1,1.1e6"}) {
    EXPECT_THAT(
        message_of<Error>([&] { named_network("--network", text); }),
        HasSubstr("--network must be 1gbit, 10gbit, 25gbit, 100gbit, nvlink, ALPHA_US,GB_PER_S"))
        << text;
  }
}

TEST(Network, SuggestsTheNearestName) {
  EXPECT_THAT(message_of<Error>([] { named_network("--network", "10gbits"); }),
              ::testing::EndsWith(", got '10gbits'; did you mean '10gbit'?"));
}

TEST(Network, TakesTheLargestNumbers) {
  const Network network = named_network("--network", "1e9,1e6");
  EXPECT_NEAR(network.between_hosts.seconds(0), 1e3, 1e-9);
}

constexpr const char* kRows = R"([
  {"collective": "all_reduce", "algorithm": "auto", "backend": "gloo", "ranks": 4, "bytes": 4000,
   "symmetric": false, "median_us": 60, "beside_us": 90, "taken_us": 30},
  {"collective": "all_reduce", "algorithm": "auto", "backend": "gloo", "ranks": 4, "bytes": 400000,
   "symmetric": false, "median_us": 600, "beside_us": 700, "taken_us": 200},
  {"collective": "all_reduce", "algorithm": "ring", "backend": "gloo", "ranks": 4, "bytes": 4000,
   "symmetric": false, "median_us": 6000, "beside_us": null, "taken_us": null},
  {"collective": "all_gather", "algorithm": "native", "backend": "gloo", "ranks": 4, "bytes": 4000,
   "symmetric": false, "median_us": 25},
  {"collective": "all_gather", "algorithm": "native", "backend": "gloo", "ranks": 4,
   "bytes": 400000, "symmetric": false, "median_us": 250},
  {"collective": "barrier", "algorithm": "native", "backend": "gloo", "ranks": 4, "bytes": 0,
   "symmetric": false, "median_us": 5}])";

TEST(Network, IsWhatWasMeasured) {
  const TemporaryDirectory folder;
  folder.write("rows.json", kRows);
  const Network network = find_network("--network", (folder / "rows.json").string());
  EXPECT_EQ(network.name, "gloo, measured");
  const MeasuredNetwork& measured = network.measured.value();
  EXPECT_EQ(measured.ranks, 4);
  EXPECT_DOUBLE_EQ(measured.all_reduce.alone.seconds(400000), 600e-6);
  EXPECT_DOUBLE_EQ(measured.all_reduce.beside.seconds(4000), 90e-6);
  EXPECT_DOUBLE_EQ(measured.all_reduce.taken.seconds(4000), 30e-6);
  EXPECT_FALSE(measured.reduce_scatter.has_value());
  ASSERT_TRUE(measured.all_gather.has_value());
  EXPECT_TRUE(measured.all_gather->beside.empty());
  // Six messages, each with a quarter of the data.
  EXPECT_DOUBLE_EQ(network.between_hosts.seconds(1000), 10e-6);
  EXPECT_DOUBLE_EQ(network.between_hosts.seconds(100000), 100e-6);
}

// A size without a measurement beside computing, and another collective's rows in memory of the
// group.
TEST(Network, IsMeasuredBesideComputingAtAllSizesOrAtNone) {
  const TemporaryDirectory folder;
  folder.write("rows.json", R"([
    {"collective": "all_reduce", "algorithm": "auto", "backend": "gloo", "ranks": 2, "bytes": 4,
     "symmetric": false, "median_us": 1, "beside_us": 2, "taken_us": 1},
    {"collective": "all_reduce", "algorithm": "auto", "backend": "gloo", "ranks": 2, "bytes": 8,
     "symmetric": false, "median_us": 3, "beside_us": null, "taken_us": null},
    {"collective": "reduce_scatter", "algorithm": "native", "backend": "gloo", "ranks": 2,
     "bytes": 4, "symmetric": false, "median_us": 5, "beside_us": 7, "taken_us": 6},
    {"collective": "reduce_scatter", "algorithm": "native", "backend": "gloo", "ranks": 2,
     "bytes": 8, "symmetric": false, "median_us": 8, "beside_us": 10, "taken_us": 9},
    {"collective": "all_gather", "algorithm": "native", "backend": "gloo", "ranks": 2,
     "bytes": 4, "symmetric": true, "median_us": 1}])");
  const Network network = read_network(folder / "rows.json");
  EXPECT_TRUE(network.measured->all_reduce.beside.empty());
  EXPECT_TRUE(network.measured->all_reduce.taken.empty());
  ASSERT_TRUE(network.measured->reduce_scatter.has_value());
  EXPECT_DOUBLE_EQ(network.measured->reduce_scatter->alone.seconds(8), 8e-6);
  EXPECT_DOUBLE_EQ(network.measured->reduce_scatter->beside.seconds(4), 7e-6);
  EXPECT_DOUBLE_EQ(network.measured->reduce_scatter->taken.seconds(8), 9e-6);
  EXPECT_FALSE(network.measured->all_gather.has_value());
}

// The accuracy of predictions depends on the wire.
TEST(Network, KnowsItsWire) {
  const TemporaryDirectory folder;
  bool shares_processor = false;
  const auto wire_of = [&](const std::string& backend, const std::string& hosts) {
    const auto row = [&](int bytes) {
      return str(R"({"collective": "all_reduce", "algorithm": "auto", "symmetric": false,
        "median_us": 1, "ranks": 2, "backend": ")",
                 backend, "\"", hosts, R"(, "bytes": )", bytes, "}");
    };
    folder.write("rows.json", str("[", row(4), ",", row(8), "]"));
    const Network network = read_network(folder / "rows.json");
    EXPECT_EQ(network.measured->backend, backend);
    shares_processor = network.shares_processor;
    return network.wire;
  };
  EXPECT_EQ(wire_of("shm", R"(, "hosts": 1)"), Wire::kSharedMemory);
  EXPECT_EQ(wire_of("gloo", R"(, "hosts": 1)"), Wire::kOneHost);
  EXPECT_EQ(wire_of("gloo", ""), Wire::kOneHost);
  EXPECT_EQ(wire_of("gloo", R"(, "hosts": 2)"), Wire::kNetwork);
  EXPECT_EQ(wire_of("nccl", R"(, "hosts": 1)"), Wire::kNetwork);
  EXPECT_FALSE(shares_processor) << "not known";
  wire_of("gloo", R"(, "hosts": 2, "processors": 1)");
  EXPECT_TRUE(shares_processor);
  wire_of("gloo", R"(, "hosts": 2, "processors": 2)");
  EXPECT_FALSE(shares_processor);
  wire_of("shm", R"(, "processors": 1)");
  EXPECT_FALSE(shares_processor) << "the rank itself moves the data";
  EXPECT_EQ(named_network("--network", "10gbit").wire, Wire::kNetwork);
}

TEST(Network, PrefersTheMemoryOfTheGroup) {
  const TemporaryDirectory folder;
  folder.write("rows.json", R"([
    {"collective": "all_reduce", "algorithm": "auto", "backend": "shm", "ranks": 2, "bytes": 4,
     "symmetric": true, "median_us": 1},
    {"collective": "all_reduce", "algorithm": "auto", "backend": "shm", "ranks": 2, "bytes": 8,
     "symmetric": true, "median_us": 3},
    {"collective": "all_reduce", "algorithm": "auto", "backend": "shm", "ranks": 2, "bytes": 4,
     "symmetric": false, "median_us": 2}])");
  const Network network = read_network(folder / "rows.json");
  EXPECT_DOUBLE_EQ(network.measured->all_reduce.alone.seconds(4), 1e-6);
}

TEST(Network, NamesTheFileThatIsNone) {
  const TemporaryDirectory folder;
  const auto refusal = [&](const char* content) {
    folder.write("rows.json", content);
    return message_of<Error>([&] { read_network(folder / "rows.json"); });
  };
  EXPECT_EQ(message_of<DataError>([&] { read_network(folder / "none.json"); }),
            "cannot read " + (folder / "none.json").string());
  EXPECT_THAT(refusal("["), HasSubstr("rows.json is not JSON: line 1, column 2"));
  for (const char* content : {"{}", "[]", "[{}]", R"([{"algorithm": 1}])"}) {
    EXPECT_THAT(refusal(content),
                HasSubstr("rows.json is not what `lockstep bench comm --json` writes: "));
  }
  EXPECT_THAT(refusal(R"([{"collective": "all_reduce", "algorithm": "auto", "backend": "shm",
                           "ranks": 1, "bytes": 4, "symmetric": false, "median_us": 1}])"),
              HasSubstr("there is no row of an all_reduce on at least 2 ranks"));
}

TEST(Network, RefusesACollectiveOfOneSize) {
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& rows) {
    folder.write("rows.json", rows);
    return message_of<Error>([&] { read_network(folder / "rows.json"); });
  };
  const auto row = [](const char* collective, int bytes) {
    return str(R"({"collective": ")", collective, R"(", "algorithm": "auto", "backend": "shm",
      "ranks": 2, "symmetric": false, "median_us": 1, "bytes": )",
               bytes, "}");
  };
  const std::string two_sizes = row("all_reduce", 4) + "," + row("all_reduce", 8);
  EXPECT_THAT(refusal("[" + row("all_reduce", 4) + "]"),
              HasSubstr("rows.json: all_reduce was measured with one size; "));
  EXPECT_EQ(refusal("[" + two_sizes + "]"), "nothing was thrown");
  for (const char* other : {"reduce_scatter", "all_gather"}) {
    EXPECT_THAT(refusal("[" + two_sizes + "," + row(other, 4) + "]"),
                HasSubstr(str("rows.json: ", other, " was measured with one size; ")));
  }
}

TEST(Network, KeepsItsLatencyAtAnotherSpeed) {
  const Network fast = at_speed(named_network("--network", "20,1"), 4);
  EXPECT_DOUBLE_EQ(fast.between_hosts.seconds(0), 20e-6);
  EXPECT_NEAR(fast.between_hosts.seconds(4e6), 20e-6 + 1e-3, 1e-12);
  // The wire between hosts is another than the links within them.
  EXPECT_EQ(fast.within_host.points(), named_network("--network", "20,1").within_host.points());
}

// The wire is faster; the processor is not.
TEST(Network, ChangesTheSpeedOfAllThatWasMeasured) {
  const MessageCost cost = MessageCost::of(10e-6, 1e9);
  const MeasuredCollective collective{.alone = cost, .beside = cost, .taken = cost};
  Network network = named_network("--network", "20,1");
  network.measured = MeasuredNetwork{.ranks = 2,
                                     .backend = "gloo",
                                     .all_reduce = collective,
                                     .reduce_scatter = collective,
                                     .all_gather = collective};
  const MeasuredNetwork fast = at_speed(network, 2).measured.value();
  ASSERT_TRUE(fast.reduce_scatter && fast.all_gather);
  for (const MeasuredCollective& each : {fast.all_reduce, *fast.reduce_scatter, *fast.all_gather}) {
    EXPECT_NEAR(each.alone.seconds(1e6), 510e-6, 1e-12);
    EXPECT_NEAR(each.beside.seconds(1e6), 510e-6, 1e-12);
    EXPECT_NEAR(each.taken.seconds(1e6), 1010e-6, 1e-12);
  }
  network.measured->all_gather.reset();
  EXPECT_FALSE(at_speed(network, 2).measured->all_gather.has_value());
}

// With all ranks on one host, no other link is left whose speed could change.
TEST(Network, ChangesTheLinksOfAHostThatAreItsWire) {
  const TemporaryDirectory folder;
  folder.write("rows.json", kRows);
  for (const Network& network : {named_network("--network", "nvlink"),
                                 find_network("--network", (folder / "rows.json").string())}) {
    const Network slow = at_speed(network, 0.5);
    const double bytes = 1e8;
    EXPECT_GT(slow.within_host.seconds(bytes), 1.9 * network.within_host.seconds(bytes))
        << network.name;
    EXPECT_DOUBLE_EQ(slow.within_host.seconds(bytes), slow.between_hosts.seconds(bytes));
  }
}

}  // namespace
}  // namespace lockstep::simulate
