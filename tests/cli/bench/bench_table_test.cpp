#include <lockstep/bench/table/rows.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// The record of a run on 2 ranks whose epochs after the first take `seconds`.
json run_of(int ranks, const std::vector<double>& seconds, double group = 0.5) {
  json run = {{"recipe", "mnist"},
              {"device", "cpu"},
              {"precision", "bf16"},
              {"backend", ranks > 1 ? "shm" : "none"},
              {"world_size", ranks},
              {"threads_per_rank", 1},
              {"global_batch", 64 * ranks},
              {"steps_per_epoch", 10},
              {"setup_seconds",
               {{"group", group}, {"loader", 0.25}, {"model", 0.125}, {"synchronization", 0.0625}}},
              {"epochs", json::array()},
              {"seconds_to_first_step", 1.5},
              {"peak_rss_bytes", 100 << 20}};
  for (const double each : seconds) {
    run["epochs"].push_back({{"seconds", each},
                             {"images_per_second", 640 * ranks / each},
                             {"processor_seconds", each * 0.75},
                             {"gpu", nullptr},
                             {"phases", {{"data", each / 10}, {"communication", each / 20}}}});
  }
  return run;
}

bench::TableWay way_of(int ranks, const std::string& strategy = "ddp") {
  return {.strategy = strategy, .loader = "native", .ranks = ranks, .batch_per_rank = 64};
}

TEST(BenchTable, TakesMediansOfTheEpochsBehindTheFirstOfAllRounds) {
  const bench::BenchTableRow row = bench::table_row_of(
      way_of(2), {run_of(2, {9, 2, 4}, 0.5).dump(), run_of(2, {7, 3, 8}, 0.7).dump()}, 2);
  EXPECT_EQ(row.rounds, 2);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.precision, "bf16");
  EXPECT_EQ(row.batch_per_rank, 64);
  EXPECT_EQ(row.iterations_per_epoch, 10);
  EXPECT_DOUBLE_EQ(row.epoch_s, 3.5);  // the median of 2, 4, 3 and 8
  EXPECT_DOUBLE_EQ(row.least_epoch_s, 2);
  EXPECT_DOUBLE_EQ(row.most_epoch_s, 8);
  EXPECT_DOUBLE_EQ(row.first_epoch_s, 8);  // the median of 9 and 7
  EXPECT_DOUBLE_EQ(row.setup_group_s, 0.6);
  EXPECT_DOUBLE_EQ(row.setup_loader_s, 0.25);
  EXPECT_DOUBLE_EQ(row.setup_model_s, 0.125);
  EXPECT_DOUBLE_EQ(row.sync_parameters_s, 0.0625);
  EXPECT_DOUBLE_EQ(row.cpu_utilisation, 0.75);
  EXPECT_DOUBLE_EQ(row.images_per_second, (320 + 1280.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(row.seconds_to_first_step, 1.5);
  EXPECT_EQ(row.peak_rss_bytes, 100 << 20);
  EXPECT_EQ(row.recipe, "mnist");
  EXPECT_EQ(row.device, "cpu");
  EXPECT_EQ(row.backend, "shm");
  EXPECT_EQ(row.peer, "");
  EXPECT_DOUBLE_EQ(row.data_wait_s, 0.35);
  EXPECT_DOUBLE_EQ(row.exposed_communication_s.value(), 0.175);
  EXPECT_FALSE(row.gpu_utilisation);
  EXPECT_FALSE(row.oversubscribed);
}

TEST(BenchTable, TellsAPipelinesWaitsForAStageFromCommunication) {
  json run = run_of(1, {5, 4});
  run["epochs"][1]["phases"]["communication"] = 1.5;
  run["epochs"][1]["phases"]["stage_waits"] = 1.25;
  const bench::BenchTableRow row = bench::table_row_of(way_of(1, "pipeline"), {run.dump()}, 2);
  EXPECT_DOUBLE_EQ(row.stage_waits_s, 1.25);
  EXPECT_DOUBLE_EQ(row.exposed_communication_s.value(), 0.25);
  EXPECT_THAT(bench::bench_table_text({row}, {}, "table"), HasSubstr("wait for a stage, s"));
  EXPECT_THAT(bench::bench_table_text({bench::table_row_of(way_of(1), {run_of(1, {5}).dump()}, 2)},
                                      {}, "table"),
              Not(HasSubstr("wait for a stage")));
}

TEST(BenchTable, HasNoCommunicationBelowZero) {
  json run = run_of(1, {5, 4});
  run["epochs"][1]["phases"]["communication"] = 1;
  run["epochs"][1]["phases"]["stage_waits"] = 1.25;
  const bench::BenchTableRow row = bench::table_row_of(way_of(1, "pipeline"), {run.dump()}, 2);
  EXPECT_EQ(row.exposed_communication_s, 0.0);
}

TEST(BenchTable, TakesTheOnlyEpochWhereThereIsNoOther) {
  EXPECT_DOUBLE_EQ(bench::table_row_of(way_of(1), {run_of(1, {5}).dump()}, 1).epoch_s, 5);
}

TEST(BenchTable, MarksRanksThatShareProcessors) {
  EXPECT_TRUE(bench::table_row_of(way_of(4), {run_of(4, {5}).dump()}, 2).oversubscribed);
  json on_gpus = run_of(4, {5});
  on_gpus["device"] = "cuda";
  EXPECT_FALSE(bench::table_row_of(way_of(4), {on_gpus.dump()}, 2).oversubscribed);
}

TEST(BenchTable, TakesTheBatchFromTheRecordOfTheRun) {
  json run = run_of(2, {5});
  run["global_batch"] = 129;  // 65 on one rank, 64 on the other
  run["accumulate_grad_batches"] = 3;
  const bench::BenchTableRow row = bench::table_row_of(way_of(2), {run.dump()}, 2);
  EXPECT_EQ(row.global_batch, 129);
  EXPECT_EQ(row.accumulate_grad_batches, 3);
  const json written = json::parse(bench::bench_table_text({row}, {}, "json"))[0];
  EXPECT_EQ(written["global_batch"], 129);
  EXPECT_EQ(written["accumulate_grad_batches"], 3);
  EXPECT_EQ(bench::table_row_of(way_of(2), {run_of(2, {5}).dump()}, 2).accumulate_grad_batches, 1);
}

// The replicas of dp count as its ranks, and the threads of the process as theirs.
TEST(BenchTable, CountsTheReplicasOfDpAsRanks) {
  json run = run_of(1, {5});
  run["devices"] = 2;
  run["threads_per_rank"] = 2;
  run["global_batch"] = 128;
  const bench::BenchTableRow row = bench::table_row_of(way_of(2, "dp"), {run.dump()}, 2);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.threads_per_rank, 1);
  EXPECT_EQ(row.batch_per_rank, 64);
  EXPECT_DOUBLE_EQ(row.cpu_utilisation, 0.375);  // 0.75 of one process with two threads
}

TEST(BenchTable, ReadsTheUsageOfGpus) {
  json run = run_of(1, {5, 5});
  run["epochs"][1]["gpu"] = {
      {"utilisation", 0.75}, {"memory_utilisation", 0.25}, {"power_watts", 300.5}};
  const bench::BenchTableRow row = bench::table_row_of(way_of(1), {run.dump()}, 2);
  EXPECT_DOUBLE_EQ(row.gpu_utilisation.value(), 0.75);
  EXPECT_DOUBLE_EQ(row.gpu_memory_utilisation.value(), 0.25);
  EXPECT_DOUBLE_EQ(row.gpu_power_w.value(), 300.5);
  const std::string text = bench::bench_table_text({row}, {}, "table");
  EXPECT_THAT(text, AllOf(HasSubstr("GPU memory busy"), HasSubstr("75%"), HasSubstr("25%"),
                          HasSubstr("300")));
}

// Every figure has a value of its own, so that none can take the place of another.
TEST(BenchTable, ShowsEachFigureInItsPlace) {
  bench::BenchTableRow row;
  row.way = way_of(2);
  row.way.fused_kernels = false;
  row.recipe = "mnist";
  row.device = "cuda";
  row.precision = "16";
  row.backend = "nccl";
  row.ranks = 2;
  row.threads_per_rank = 3;
  row.oversubscribed = true;
  row.rounds = 6;
  row.setup_group_s = 1.5;
  row.setup_loader_s = 2.5;
  row.setup_model_s = 3.5;
  row.sync_parameters_s = 4.5;
  row.batch_per_rank = 4;
  row.global_batch = 8;
  row.accumulate_grad_batches = 7;
  row.iterations_per_epoch = 5;
  row.first_epoch_s = 8.5;
  row.epoch_s = 6;
  row.least_epoch_s = 5.5;
  row.most_epoch_s = 7.5;
  row.images_per_second = 1234;
  row.cpu_utilisation = 0.9;
  row.gpu_utilisation = 0.7;
  row.gpu_memory_utilisation = 0.2;
  row.gpu_power_w = 300.75;
  row.efficiency = 0.8;
  row.data_wait_s = 0.125;
  row.exposed_communication_s = 0.25;
  row.stage_waits_s = 0.375;
  row.seconds_to_first_step = 9.5;
  row.peak_rss_bytes = 64 << 20;
  EXPECT_THAT(
      bench::bench_table_text({row}, {}, "markdown"),
      ::testing::StartsWith(
          "| strategy | loader | kernels | ranks | threads | batch per rank | iterations | s per "
          "epoch | range | img/s | efficiency | CPU | wait for data, s | exposed comm., s | peak "
          "MiB | wait for a stage, s | GPU | GPU memory busy | W per GPU |\n"
          "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
          "---:|\n"
          "| ddp | native | libtorch | 2* | 3 | 4 | 5 | 6.000 | 5.500 to 7.500 | 1,234 | 0.80 | "
          "90% | 0.125 | 0.250 | 64 | 0.375 | 70% | 20% | 301 |\n"
          "\nSet-up, before the first step:\n\n"
          "| strategy | loader | kernels | ranks | threads | batch per rank | group, s | loader, s "
          "| parallel model, s | parameters, s | first epoch, s | start to first step, s |\n"
          "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
          "| ddp | native | libtorch | 2* | 3 | 4 | 1.500 | 2.500 | 3.500 | 4.500 | 8.500 | 9.500 "
          "|\n\n- Seconds are medians"));
  json written = json::parse(bench::bench_table_text({row}, {}, "json"))[0];
  written.erase("notes");
  EXPECT_EQ(written, json::parse(R"({
      "recipe": "mnist", "strategy": "ddp", "loader": "native", "fused_kernels": false,
      "device": "cuda", "backend": "nccl", "ranks": 2, "threads_per_rank": 3,
      "oversubscribed": true, "batch_per_rank": 4, "iterations_per_epoch": 5, "rounds": 6,
      "epochs": 3, "max_steps": null, "includes_warm_up": false, "setup_group_s": 1.5,
      "setup_loader_s": 2.5, "setup_model_s": 3.5, "sync_parameters_s": 4.5, "first_epoch_s": 8.5,
      "epoch_s": 6.0, "epoch_least_s": 5.5, "epoch_most_s": 7.5, "images_per_second": 1234.0,
      "efficiency": 0.8, "cpu_utilisation": 0.9, "gpu_utilisation": 0.7,
      "gpu_memory_utilisation": 0.2, "gpu_power_w": 300.75, "data_wait_s": 0.125,
      "exposed_communication_s": 0.25, "stage_waits_s": 0.375, "seconds_to_first_step": 9.5,
      "peak_rss_bytes": 67108864, "peer": null, "error": null, "precision": "16",
      "global_batch": 8, "accumulate_grad_batches": 7})"));
}

std::vector<bench::BenchTableRow> rows_of_all_kinds() {
  bench::TableWay peer = way_of(2);
  peer.peer = bench::TablePeer{.strategy = "ddp", .loader = "dataloader", .workers = 1};
  bench::TableWay peer_alone = way_of(1, "single");
  peer_alone.peer = bench::TablePeer{.strategy = "single", .loader = "dataloader", .workers = 1};
  json theirs = run_of(2, {8, 8});
  theirs["torch"] = "2.13.0";
  theirs["epochs"][1]["phases"].erase("communication");
  json theirs_alone = run_of(1, {10, 10});
  theirs_alone["torch"] = "2.13.0";
  std::vector<bench::BenchTableRow> rows = {
      bench::table_row_of(way_of(1, "single"), {run_of(1, {4, 4}).dump()}, 2),
      bench::table_row_of(way_of(2), {run_of(2, {5, 5}).dump()}, 2),
      bench::table_row_of(peer, {theirs.dump()}, 2),
      bench::table_row_of(peer_alone, {theirs_alone.dump()}, 2)};
  bench::set_efficiencies(rows);
  return rows;
}

TEST(BenchTable, ComparesEachProgramWithItsOwnRankAlone) {
  const std::vector<bench::BenchTableRow> rows = rows_of_all_kinds();
  EXPECT_DOUBLE_EQ(rows[0].efficiency.value(), 1);
  EXPECT_DOUBLE_EQ(rows[1].efficiency.value(), 0.8);
  EXPECT_DOUBLE_EQ(rows[2].efficiency.value(), 1.25);
  EXPECT_DOUBLE_EQ(rows[3].efficiency.value(), 1);
  EXPECT_EQ(rows[2].peer, "torch 2.13.0, dataloader with 1 worker");
  EXPECT_FALSE(rows[2].exposed_communication_s);
}

// Other kernels, batches and loaders are another workload.
TEST(BenchTable, HasNoEfficiencyWithoutARankAloneOfTheSameWork) {
  for (const bench::TableWay& alone :
       {bench::TableWay{.strategy = "single", .loader = "dali", .batch_per_rank = 64},
        bench::TableWay{
            .strategy = "single", .loader = "native", .fused_kernels = false, .batch_per_rank = 64},
        bench::TableWay{.strategy = "single", .loader = "native", .batch_per_rank = 32}}) {
    std::vector<bench::BenchTableRow> rows = {
        bench::table_row_of(alone, {run_of(1, {4}).dump()}, 2),
        bench::table_row_of(way_of(2), {run_of(2, {4}).dump()}, 2)};
    bench::set_efficiencies(rows);
    EXPECT_FALSE(rows[1].efficiency);
  }
}

// Another loader, other workers, or a rank that failed.
TEST(BenchTable, ComparesAPeerWithTheSamePeerAlone) {
  json record = run_of(1, {4, 4});
  record["torch"] = "2.13.0";
  const auto peer_row = [&](int ranks, const char* loader, int workers) {
    bench::TableWay way = way_of(ranks);
    way.peer = bench::TablePeer{.strategy = "ddp", .loader = loader, .workers = workers};
    return bench::table_row_of(way, {record.dump()}, 2);
  };
  const auto has_efficiency = [&](const bench::BenchTableRow& alone) {
    std::vector<bench::BenchTableRow> rows = {alone, peer_row(2, "dataloader", 2)};
    bench::set_efficiencies(rows);
    return rows[1].efficiency.has_value();
  };
  EXPECT_TRUE(has_efficiency(peer_row(1, "dataloader", 2)));
  EXPECT_FALSE(has_efficiency(peer_row(1, "dataloader", 0)));
  EXPECT_FALSE(has_efficiency(peer_row(1, "dali", 2)));
  bench::BenchTableRow failed = peer_row(1, "dataloader", 2);
  failed.error = "out of memory";
  EXPECT_FALSE(has_efficiency(failed));
  EXPECT_EQ(bench::name_of(peer_row(2, "dataloader", 2).way),
            "PyTorch's ddp, dataloader with 2 workers, 2 ranks, batch per rank 64");
  EXPECT_EQ(peer_row(1, "dali", 0).peer, "torch 2.13.0, dali");
}

TEST(BenchTable, ExplainsTheEfficiencyOfOneProcessWithSeveralThreads) {
  const auto text_of = [](const std::string& strategy, int ranks) {
    return bench::bench_table_text(
        {bench::table_row_of(way_of(ranks, strategy), {run_of(1, {5}).dump()}, 2)}, {}, "table");
  };
  const char* const sentence = "One process with several threads has the batch of several ranks";
  EXPECT_THAT(text_of("single", 2), HasSubstr(sentence));
  EXPECT_THAT(text_of("single", 1), Not(HasSubstr(sentence)));
  EXPECT_THAT(text_of("dp", 2), Not(HasSubstr(sentence)));
}

TEST(BenchTable, PrintsOneTableOfEpochsAndOneOfSetUp) {
  const std::string text = bench::bench_table_text(
      rows_of_all_kinds(), {.max_steps = 10, .more = {"A sentence."}}, "table");
  EXPECT_THAT(text,
              AllOf(HasSubstr("strategy        loader         ranks  threads  batch per rank"),
                    HasSubstr("PyTorch ddp     dataloader +1      2"), HasSubstr("5.000 to 5.000"),
                    HasSubstr("\nSet-up, before the first step:\n"),
                    HasSubstr("An epoch was cut to 10 steps."), HasSubstr("\nA sentence.\n"),
                    Not(HasSubstr("kernels")), Not(HasSubstr("GPU"))));
}

TEST(BenchTable, TellsKernelsApartWhereThereAreTwo) {
  bench::TableWay plain = way_of(2);
  plain.fused_kernels = false;
  const std::string text =
      bench::bench_table_text({bench::table_row_of(way_of(2), {run_of(2, {5}).dump()}, 2),
                               bench::table_row_of(plain, {run_of(2, {5}).dump()}, 2)},
                              {}, "markdown");
  EXPECT_THAT(text,
              AllOf(HasSubstr("| strategy | loader | kernels | ranks |"),
                    HasSubstr("| ddp | native | fused | 2 |"),
                    HasSubstr("| ddp | native | libtorch | 2 |"), HasSubstr("|---|---|---|---:|")));
}

TEST(BenchTable, SaysWhatFailedAndKeepsTheOtherRows) {
  std::vector<bench::BenchTableRow> rows = rows_of_all_kinds();
  bench::BenchTableRow failed;
  failed.way = way_of(4);
  failed.error = "rank 1: out of memory";
  rows.push_back(failed);
  EXPECT_THAT(bench::bench_table_text(rows, {}, "table"),
              HasSubstr("ddp, native, 4 ranks, batch per rank 64 failed: rank 1: out of memory\n"));
  const json all = json::parse(bench::bench_table_text(rows, {}, "json"));
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(all[4]["error"], "rank 1: out of memory");
  EXPECT_EQ(all[0]["error"], nullptr);
}

TEST(BenchTable, WritesTheSameValuesAsCsvAndAsJson) {
  const std::vector<bench::BenchTableRow> rows = rows_of_all_kinds();
  const std::string csv = bench::bench_table_text(rows, {}, "csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_THAT(csv, AllOf(HasSubstr("recipe,strategy,loader,fused_kernels,device,backend,ranks,"),
                         HasSubstr("\"torch 2.13.0, dataloader with 1 worker\"")));
  const json all = json::parse(bench::bench_table_text(rows, {}, "json"));
  EXPECT_EQ(all[1]["epoch_s"], 5.0);
  EXPECT_EQ(all[1]["efficiency"], 0.8);
  EXPECT_EQ(all[1]["peer"], nullptr);
  EXPECT_EQ(all[2]["peer"], "torch 2.13.0, dataloader with 1 worker");
  EXPECT_EQ(all[2]["exposed_communication_s"], nullptr);
  EXPECT_EQ(all[1]["gpu_utilisation"], nullptr);
}

// Each row includes the settings and the notes for readers.
TEST(BenchTable, HasItsNotesInEachRow) {
  std::vector<bench::BenchTableRow> rows = rows_of_all_kinds();
  rows[1].oversubscribed = true;
  const bench::BenchTableNotes notes{
      .epochs = 4, .max_steps = 10, .more = {"Others used 5%, \"top\"."}};
  const json all = json::parse(bench::bench_table_text(rows, notes, "json"));
  for (const json& row : all) {
    EXPECT_EQ(row["epochs"], 4);
    EXPECT_EQ(row["max_steps"], 10);
    EXPECT_EQ(row["includes_warm_up"], false);
    EXPECT_THAT(row["notes"].get<std::vector<std::string>>(),
                AllOf(Contains("An epoch was cut to 10 steps."),
                      Contains("* More compute threads than processors: ranks share a processor."),
                      Contains("Others used 5%, \"top\".")));
  }
  const std::string csv = bench::bench_table_text(rows, notes, "csv");
  EXPECT_THAT(csv,
              AllOf(HasSubstr(",rounds,epochs,max_steps,includes_warm_up,"), HasSubstr(",notes\n"),
                    HasSubstr(",1,4,10,false,"), HasSubstr("Others used 5%, \"\"top\"\".\"\n")));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_EQ(json::parse(bench::bench_table_text(rows, {}, "json"))[0]["max_steps"], nullptr);
}

TEST(BenchTable, SaysWhereTheWarmUpIsTimed) {
  const std::vector<bench::BenchTableRow> rows = {
      bench::table_row_of(way_of(1), {run_of(1, {5}).dump()}, 2)};
  EXPECT_THAT(bench::bench_table_text(rows, {.epochs = 1}, "table"),
              AllOf(HasSubstr("the only epoch of each run, warm-up included"),
                    Not(HasSubstr("the first warms up"))));
  EXPECT_EQ(
      json::parse(bench::bench_table_text(rows, {.epochs = 1}, "json"))[0]["includes_warm_up"],
      true);
  EXPECT_THAT(bench::bench_table_text(rows, {.epochs = 2}, "table"),
              AllOf(HasSubstr("the first warms up"), Not(HasSubstr("warm-up included"))));
}

TEST(BenchTable, RefusesWhatIsNoRecordOfARun) {
  for (const std::string& text : {std::string("{"), std::string("{}"), run_of(1, {}).dump()}) {
    EXPECT_THROW(bench::table_row_of(way_of(1), {text}, 2), DataError) << text;
  }
}

}  // namespace
}  // namespace lockstep
