// The report page that is generated from a run's folder.
#include <lockstep/report/html/report_page.h>

#include <time.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <lockstep/formats/png.h>
#include <lockstep/report/html/run_data.h>
#include <lockstep/report/html/run_pictures.h>
#include <tests/report/sample_record.h>
#include <tests/support/well_formed.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportPage : public ::testing::Test {
 protected:
  std::string page(const std::vector<std::string>& names) {
    std::vector<std::filesystem::path> inputs;
    for (const std::string& name : names) inputs.push_back(folder_ / name);
    const std::string text = html::report_page(inputs, "lockstep report");
    EXPECT_EQ(malformed(text), "");
    for (const char* outside :
         {"<script", "<link", "src=\"http", "href=\"http", "@import", "url("}) {
      EXPECT_THAT(text, Not(HasSubstr(outside)));
    }
    return text;
  }
  // A trace of one step of all ranks, whose batches were ready. Rank 0 waits for the others.
  void write_trace(const std::string& name, int world = 2) {
    const auto at = [](int time) { return Clock::time_point{} + std::chrono::microseconds(time); };
    std::vector<RankTrace> ranks;
    for (int rank = 0; rank < world; ++rank) {
      Span ready{.name = "ready batches",
                 .category = kValueCategory,
                 .begin = at(5),
                 .end = at(5),
                 .track = "training"};
      ready.arguments = {{"value", "2"}};
      ranks.push_back({.rank = rank,
                       .spans = {{.name = "wait for data",
                                  .category = "phase",
                                  .begin = at(0),
                                  .end = at(10),
                                  .track = "training"},
                                 ready,
                                 {.name = "step 7",
                                  .category = "step",
                                  .begin = at(10),
                                  .end = at(500),
                                  .track = "training"},
                                 {.name = "forward",
                                  .category = "phase",
                                  .begin = at(10),
                                  .end = at(500),
                                  .track = "training"},
                                 {.name = "reduction",
                                  .category = "communication",
                                  .begin = at(rank == 0 ? 100 : 300),
                                  .end = at(400),
                                  .track = "bucket 0",
                                  .collective = "bucket"}}});
    }
    write_chrome_trace(folder_ / (name + "/trace.json"), ranks);
  }

  TemporaryDirectory folder_;
};

TEST_F(ReportPage, ShowsARunWithoutATrace) {
  write_sample_record(folder_, "run", {});
  const std::string text = page({"run"});
  for (const char* part :
       {"<title>Lockstep: run</title>", "lockstep train mnist --out run", "complete",
        "id=\"learning\"", "training, epoch 3: 0.333333", "Validation: accuracy", "images/s",
        "epoch 1, forward: 60.0 ms", "Processors that a rank keeps busy", "versions: libtorch",
        "2.13.0", "<b>communication, 10%</b>", "Train with --trace",
        "Made by <code>lockstep report</code>"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  for (const char* absent :
       {"id=\"scaling\"", "id=\"loader\"", "id=\"pictures\"", "GPU", "NaN", ">nan"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
}

TEST_F(ReportPage, ShowsATracedStep) {
  write_sample_record(folder_, "run", {});
  write_trace("run");
  const std::string text = page({"run"});
  for (const char* part : {"Timeline of step 7", "accounts for 100.00% of its 0.500 ms",
                           "Who waits for whom", ">0.200</td>", "The loader's queue",
                           "rank 1, step 7: 2", "Phases of the traced steps, by rank"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("Train with --trace")));
}

TEST_F(ReportPage, SaysOfManyRanksWhichItShows) {
  write_sample_record(folder_, "run", {});
  write_trace("run", 17);
  const std::string text = page({"run"});
  for (const char* part :
       {"0 \u00b5s. The first 16 of 17 ranks.", "the mean of 1 step. The first 16 of 17 ranks.",
        "waits for the loader. The first 8 of 17 ranks."}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  write_trace("run", 8);
  EXPECT_THAT(page({"run"}), Not(HasSubstr("The first ")));
}

TEST_F(ReportPage, ComparesRuns) {
  write_sample_record(folder_, "a", {.ranks = 1, .images_per_second = 1000});
  write_sample_record(folder_, "b", {.ranks = 2, .images_per_second = 1500});
  write_sample_record(folder_, "more/b", {.ranks = 4, .images_per_second = 2000});
  const std::string text = page({"a", "b", "more/b/"});
  for (const char* part : {"Lockstep: a, b, b (2)", "b (2), training, epoch 2: 0.5",
                           "id=\"scaling\"", "<h3>b (2)</h3>", "id=\"run-3\"", "best images/s"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr("ddp: mnist, loader native, 1 thread a rank, cpu, precision 32, "
                              "batch 64 a rank, ranks 4: 2"));
}

// The speed of other work is no speed-up.
TEST_F(ReportPage, ComparesTheSpeedOfEqualWorkOnly) {
  const SampleRecord one{.ranks = 1};
  const auto has_curve = [&](const SampleRecord& two) {
    write_sample_record(folder_, "one", one);
    write_sample_record(folder_, "two", two);
    return page({"one", "two"}).find("id=\"scaling\"") != std::string::npos;
  };
  EXPECT_TRUE(has_curve({}));
  EXPECT_TRUE(has_curve({.batch = 64})) << "the same batch over all ranks";
  EXPECT_FALSE(has_curve({.batch = 96}));
  EXPECT_FALSE(has_curve({.device = "cuda"}));
  EXPECT_FALSE(has_curve({.precision = "bf16"}));
  EXPECT_FALSE(has_curve({.recipe = "cifar10"}));
  EXPECT_FALSE(has_curve({.settings = R"(, "accumulate_grad_batches": 2)"}));
  EXPECT_FALSE(has_curve({.settings = R"(, "threads_per_rank": 2)"}));
  EXPECT_FALSE(has_curve({.settings = R"(, "loader": "dali")"}));
  EXPECT_FALSE(has_curve({.settings = R"(, "recipe_options": {"model": "resnet50"})"}));
}

// Weak and strong scaling from the same runs.
TEST_F(ReportPage, HasACurveForEachKindOfBatch) {
  write_sample_record(folder_, "one", {.ranks = 1});
  write_sample_record(folder_, "weak", {.ranks = 2, .images_per_second = 1900});
  write_sample_record(folder_, "strong", {.ranks = 2, .batch = 64, .images_per_second = 1500});
  const std::string text = page({"one", "weak", "strong"});
  EXPECT_THAT(text, HasSubstr("precision 32, batch 64 a rank, ranks 2: 1.9"));
  EXPECT_THAT(text, HasSubstr("precision 32, batch 64 in all, ranks 2: 1.5"));
}

// Its two threads are two workers, as two ranks would be.
TEST_F(ReportPage, CountsTheWorkersOfAPipelineInOneProcess) {
  write_sample_record(folder_, "one", {.ranks = 1, .images_per_second = 1000});
  write_sample_record(folder_, "threads",
                      {.ranks = 1,
                       .batch = 128,
                       .settings = R"(, "stages": 2, "workers": 2)",
                       .images_per_second = 1600});
  EXPECT_THAT(page({"one", "threads"}), HasSubstr("batch 64 a rank, ranks 2: 1.6"));
}

TEST_F(ReportPage, CountsRanksAndReplicas) {
  const auto ranks_of = [&](int processes, const char* settings) {
    write_sample_record(folder_, "run", {.ranks = processes, .settings = settings});
    return html::read_run_data(folder_ / "run").ranks;
  };
  EXPECT_EQ(ranks_of(3, ""), 3);
  EXPECT_EQ(ranks_of(1, R"(, "devices": 2)"), 2);
  EXPECT_EQ(ranks_of(1, R"(, "stages": 4, "workers": 4)"), 4);
  EXPECT_EQ(ranks_of(1, R"(, "stages": 1, "workers": 1)"), 1);
  EXPECT_EQ(ranks_of(4, R"(, "stages": 2, "workers": 2)"), 4) << "two pipelines of two ranks";
}

TEST_F(ReportPage, NamesARunByItsFolderOrItsFile) {
  write_sample_record(folder_, "run", {});
  folder_.write("alone.json", sample_record({}));
  const std::pair<const char*, const char*> cases[] = {{"run", "run"},
                                                       {"run/", "run"},
                                                       {"run/.", "run"},
                                                       {"run/run.json", "run"},
                                                       {"alone.json", "alone"}};
  for (const auto& [input, name] : cases) {
    EXPECT_EQ(html::read_run_data(folder_ / input).name, name) << input;
  }
}

// The waits for a stage are within the communication, and that for the first batch within the data.
TEST_F(ReportPage, DividesAnEpochIntoItsPhases) {
  nlohmann::json run = nlohmann::json::parse(sample_record({.epochs = 1}));
  nlohmann::json& epoch = run["epochs"][0];
  epoch["first_batch_seconds"] = 0.25;
  epoch["phases"] = {{"data", 0.5},          {"forward", 0.25},     {"backward", 0.125},
                     {"communication", 0.5}, {"stage_waits", 0.25}, {"optimizer", 0.125}};
  const auto phases = [&] {
    folder_.write("run/run.json", run.dump());
    return html::read_run_data(folder_ / "run").epochs.at(0).phases;
  };
  EXPECT_THAT(phases(), ::testing::ElementsAre(0.25, 0.25, 0.125, 0.25, 0.25, 0.125, 0.25, 0.5));
  // Times of different clocks may contradict each other a little.
  epoch["phases"]["stage_waits"] = 0.75;
  epoch["seconds"] = 1;
  EXPECT_THAT(phases(), ::testing::ElementsAre(0.25, 0.25, 0.125, 0, 0.75, 0.125, 0.25, 0));
}

TEST_F(ReportPage, TellsTheWaitForTheFirstBatchFromThatForOthers) {
  write_sample_record(folder_, "run", {.epochs = 1, .first_batch = 0.15});
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("epoch 1, first batch: 15.0 ms"));
  EXPECT_THAT(text, HasSubstr("epoch 1, data: 5.00 ms"));
  EXPECT_THAT(text, HasSubstr("epoch 1 after its first batch (185.00 ms)"));
}

TEST_F(ReportPage, TakesRowsOfBenchTable) {
  write_sample_record(folder_, "run", {.ranks = 1, .images_per_second = 100});
  folder_.write(
      "rows.json",
      R"([{"recipe": "mnist", "strategy": "ddp", "loader": "native", "threads_per_rank": 1,
                     "fused_kernels": true, "peer": null, "ranks": 2, "images_per_second": 153,
                     "device": "cpu", "precision": "32", "batch_per_rank": 64},
                    {"recipe": "mnist", "strategy": "ddp", "loader": "native", "threads_per_rank": 1,
                     "fused_kernels": true, "peer": null, "ranks": 4, "images_per_second": null}])");
  EXPECT_THAT(page({"run", "rows.json"}), HasSubstr("<td>153</td><td>1.50</td><td>75.00%</td>"));
  // Rows of an earlier version do not state their precision.
  folder_.write(
      "rows.json",
      R"([{"recipe": "mnist", "strategy": "ddp", "loader": "native", "threads_per_rank": 1,
                     "fused_kernels": true, "peer": null, "ranks": 2, "images_per_second": 153,
                     "device": "cpu", "batch_per_rank": 64}])");
  EXPECT_THAT(page({"run", "rows.json"}), Not(HasSubstr("id=\"scaling\"")));
  // 64 images are no multiple of 3 ranks. A step of two batches is other work.
  const auto write_row = [&](const char* more) {
    folder_.write("rows.json", str(R"([{"recipe": "mnist", "strategy": "ddp", "loader": "native",
                                        "threads_per_rank": 1, "fused_kernels": true, "peer": null,
                                        "ranks": 3, "images_per_second": 153, "device": "cpu",
                                        "precision": "32", "batch_per_rank": 21)",
                                   more, "}]"));
  };
  write_row(R"(, "global_batch": 64, "accumulate_grad_batches": 1)");
  EXPECT_THAT(page({"run", "rows.json"}), HasSubstr("id=\"scaling\""));
  write_row(R"(, "global_batch": 64, "accumulate_grad_batches": 2)");
  EXPECT_THAT(page({"run", "rows.json"}), Not(HasSubstr("id=\"scaling\"")));
  // Nor do they state their kernels, which were Lockstep's own.
  folder_.write(
      "rows.json",
      R"([{"recipe": "mnist", "strategy": "ddp", "loader": "native", "threads_per_rank": 1,
                     "peer": null, "ranks": 2, "images_per_second": 153, "device": "cpu",
                     "precision": "32", "batch_per_rank": 64}])");
  EXPECT_THAT(page({"run", "rows.json"}), HasSubstr("<td>153</td><td>1.50</td><td>75.00%</td>"));
  folder_.write("rows.json", "{\"a\": 1}");
  EXPECT_THROW(page({"run", "rows.json"}), DataError);
  EXPECT_THROW(page({"rows.json"}), DataError);
  folder_.write("rows.json", "[]");
  EXPECT_THROW(page({"rows.json"}), ConfigError);
}

TEST_F(ReportPage, ComparesRowsOfEqualWorkOnly) {
  write_sample_record(folder_, "run", {.ranks = 1, .images_per_second = 100});
  const auto has_curve = [&](const nlohmann::json& changes) {
    nlohmann::json row = nlohmann::json::parse(
        R"({"recipe": "mnist", "strategy": "ddp", "loader": "native", "threads_per_rank": 1,
            "fused_kernels": true, "peer": null, "ranks": 2, "images_per_second": 153,
            "device": "cpu", "precision": "32", "batch_per_rank": 64})");
    row.update(changes);
    folder_.write("rows.json", nlohmann::json::array({row}).dump());
    return page({"run", "rows.json"}).find("id=\"scaling\"") != std::string::npos;
  };
  EXPECT_TRUE(has_curve(nlohmann::json::object()));
  EXPECT_TRUE(has_curve({{"batch_per_rank", 32}})) << "the same batch over all ranks";
  EXPECT_FALSE(has_curve({{"batch_per_rank", 16}}));
  EXPECT_FALSE(has_curve({{"threads_per_rank", 2}}));
  EXPECT_FALSE(has_curve({{"fused_kernels", false}}));
  EXPECT_FALSE(has_curve({{"peer", "PyTorch"}}));
  EXPECT_FALSE(has_curve({{"loader", "dali"}}));
  EXPECT_FALSE(has_curve({{"device", "cuda"}}));
  EXPECT_FALSE(has_curve({{"recipe", "cifar10"}}));
}

TEST_F(ReportPage, ShowsARunThatFailedAndOneThatHasJustBegun) {
  write_sample_record(folder_, "failed", {.state = "failed", .error = "rank 1 <died>"});
  EXPECT_THAT(page({"failed"}), HasSubstr("failed: rank 1 &lt;died&gt;"));
  write_sample_record(folder_, "begun", {.state = "running", .epochs = 0});
  const std::string text = page({"begun"});
  EXPECT_THAT(text, HasSubstr("The run has no whole epoch yet."));
  EXPECT_THAT(text, Not(HasSubstr("<svg")));
  EXPECT_THAT(page({"failed", "begun"}), HasSubstr("<svg"));
}

// What limited the run is known from the epochs after the first one.
TEST_F(ReportPage, ShowsARunWhoseLastEpochHasNoStep) {
  const std::string limits = "<ul class=\"advice\">";
  for (const int epochs : {1, 2}) {
    nlohmann::json run = nlohmann::json::parse(sample_record({.epochs = epochs}));
    folder_.write("run/run.json", run.dump());
    EXPECT_THAT(page({"run"}), HasSubstr(limits));
    for (const char* of_epoch : {"steps", "seconds"}) {
      nlohmann::json without = run;
      without["epochs"].back()[of_epoch] = 0;
      folder_.write("run/run.json", without.dump());
      EXPECT_THAT(page({"run"}), Not(HasSubstr(limits))) << epochs << " epochs, no " << of_epoch;
    }
  }
}

TEST_F(ReportPage, EscapesNames) {
  const std::string name = "<img src=x onerror=alert(1)>&\"";
  write_sample_record(folder_, name, {.recipe = "<b>", .command = "<script>a & b</script>"});
  const std::string text = page({name, name});
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  EXPECT_THAT(text, HasSubstr("&lt;img src=x onerror=alert(1)&gt;&amp;&quot;"));
}

// A record of an earlier version may have them.
TEST_F(ReportPage, ShowsNoCredentials) {
  write_sample_record(folder_, "run",
                      {.state = "failed",
                       .error = "no answer from https://t0ken@host/?token=t0ken",
                       .command = "lockstep train --mlflow-uri http://ada:t0ken@host:5000"});
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("--mlflow-uri http://***@host:5000"));
  EXPECT_THAT(text, HasSubstr("no answer from https://***@host/?token=***"));
  EXPECT_THAT(text, Not(HasSubstr("t0ken")));
}

// An option of a recipe may be an address. It stands in the table of settings and in the name of
// the run's work.
TEST_F(ReportPage, ShowsNoCredentialsOfSettings) {
  const std::string settings = R"(, "recipe_options": {"weights": "http://ada:t0ken@host/w"})";
  write_sample_record(folder_, "one", {.ranks = 1, .settings = settings});
  write_sample_record(folder_, "two", {.ranks = 2, .settings = settings});
  const std::string text = page({"one", "two"});
  EXPECT_THAT(text, HasSubstr("weights http://***@host/w"));
  EXPECT_THAT(text, HasSubstr("recipe_options: weights"));
  EXPECT_THAT(text, Not(HasSubstr("t0ken")));
}

TEST_F(ReportPage, KnowsTheRanksOfTheHost) {
  write_sample_record(folder_, "alone", {.ranks = 3});
  EXPECT_EQ(html::read_run_data(folder_ / "alone").facts.value().local_ranks, 3);
  write_sample_record(folder_, "hosts", {.ranks = 3, .settings = R"(, "local_ranks": 2)"});
  EXPECT_EQ(html::read_run_data(folder_ / "hosts").facts.value().local_ranks, 2);
}

// The trace of a long run: each step has a wait for data, phases, buckets whose ranks arrive one
// after the other, and spans of two loader threads.
void write_long_trace(const std::filesystem::path& file, int world, int steps) {
  const auto at = [](int time) { return Clock::time_point{} + std::chrono::microseconds(time); };
  std::vector<RankTrace> ranks;
  for (int rank = 0; rank < world; ++rank) {
    RankTrace trace{.rank = rank};
    const auto add = [&](const std::string& name, const char* category, const std::string& track,
                         int begin, int end, const std::string& collective = "") {
      trace.spans.push_back({.name = name,
                             .category = category,
                             .begin = at(begin),
                             .end = at(end),
                             .track = track,
                             .collective = collective});
    };
    for (int step = 0; step < steps; ++step) {
      const int begin = 1000 * step;
      add("wait for data", "phase", "training", begin, begin + 20);
      add("ready batches", kValueCategory, "training", begin + 5, begin + 5);
      trace.spans.back().arguments = {{"value", str(step % 4)}};
      add(str("step ", step), "step", "training", begin + 20, begin + 990);
      add("forward", "phase", "training", begin + 20, begin + 300);
      add("backward", "phase", "training", begin + 300, begin + 900);
      add("exposed communication", "communication", "backward", begin + 800, begin + 900);
      for (int bucket = 0; bucket < 4; ++bucket) {
        add("reduction", "communication", str("bucket ", bucket), begin + 400 + 100 * bucket + rank,
            begin + 520 + 100 * bucket, str("step ", step, " bucket ", bucket));
        trace.spans.back().arguments = {{"bytes", "1000000"}};
      }
      add("optimizer", "phase", "training", begin + 900, begin + 990);
      for (const char* loader : {"loader 0", "loader 1"}) {
        add("load", "data", loader, begin, begin + 900);
      }
    }
    ranks.push_back(std::move(trace));
  }
  write_chrome_trace(file, ranks);
}

// The time may grow with the number of steps, but not with its square: 40 s for this trace.
TEST(ReportTiming, IsShortForALongTrace) {
  const TemporaryDirectory folder;
  constexpr int kRanks = 16, kSteps = 200;
  write_sample_record(folder, "run", {.ranks = kRanks});
  write_long_trace(folder / "run/trace.json", kRanks, kSteps);
  const auto processor_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = processor_seconds();
  const std::string text = html::report_page({folder / "run"}, "lockstep report");
  const double used = processor_seconds() - before;
  RecordProperty("seconds", str(used));
  EXPECT_LT(used, 2.0);
  EXPECT_THAT(text, HasSubstr("the mean of 200 steps"));
}

TEST_F(ReportPage, SaysWhatItCannotRead) {
  EXPECT_THROW(page({"none"}), DataError);
  EXPECT_THROW(html::report_page({}, ""), ConfigError);
  for (const char* record : {"", "[]", "{}", R"({"state": 1})", R"({"epochs": [{}]})"}) {
    folder_.write("run/run.json", record);
    EXPECT_THROW(page({"run"}), DataError) << record;
  }
  write_sample_record(folder_, "run", {});
  folder_.write("run/trace.json", "{}");
  EXPECT_THROW(page({"run"}), DataError);
}

TEST_F(ReportPage, ShowsTheUseOfGpus) {
  write_sample_record(folder_, "run", {.gpu = R"({"utilisation": 0.5, "memory_utilisation": 0.25,
                                  "memory_bytes": 8000000000, "power_watts": 310})"});
  const std::string text = page({"run"});
  for (const char* part :
       {"GPUs that compute", "run, epoch 2: 50", "GPU memory that is read or written",
        "run, epoch 2: 25", "GPU memory in use", "run, epoch 2: 8", "Power of a GPU",
        "run, epoch 2: 310"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(ReportPage, ShowsSomeOfManyEpochs) {
  write_sample_record(folder_, "run", {.epochs = 100});
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("The chart has one epoch of 4, the rows all."));
  EXPECT_THAT(text, HasSubstr("epoch 5, forward: 60.0 ms"));
  EXPECT_THAT(text, Not(HasSubstr("epoch 4, forward: ")));
  EXPECT_THAT(text, HasSubstr(">epoch 4</td><td>20.0</td>"));
}

// The page of a run with ten epochs and a large picture.
TEST_F(ReportPage, IsSmall) {
  write_sample_record(folder_, "run", {.epochs = 10});
  write_trace("run");
  std::vector<std::uint8_t> noise(std::size_t{600} * 400 * 3);
  std::uint32_t state = 1;
  for (std::uint8_t& byte : noise) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24U);
  }
  folder_.write("run/reconstructions.png", detail::encode_png(noise, 600, 400));
  folder_.write("run/damaged.png", "no picture");
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("reconstructions.png"));
  EXPECT_THAT(text, HasSubstr("600 x 400 pixels, shown at 1/"));
  EXPECT_THAT(text, Not(HasSubstr("damaged.png")));
  EXPECT_LT(text.size(), 1'000'000U);
}

TEST_F(ReportPage, KeepsSmallPicturesAsTheyAre) {
  const std::vector<std::uint8_t> grey(std::size_t{8} * 6 * 3, 128);
  const std::string png = detail::encode_png(grey, 8, 6);
  folder_.write("run/sheet.png", png);
  const auto whole = html::read_pictures(folder_ / "run");
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].png, png);
  EXPECT_EQ(whole[0].divisor, 1);
  // The mean of equal pixels is the pixel itself.
  const auto halved = html::read_pictures(folder_ / "run", png.size() - 1);
  ASSERT_EQ(halved.size(), 1U);
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(as_bytes(halved[0].png), "halved");
  EXPECT_EQ(header.width, 8 / halved[0].divisor);
  std::vector<std::uint8_t> pixels(rgb_bytes(lockstep::whole(header)));
  decoder.decode(lockstep::whole(header), pixels);
  EXPECT_THAT(pixels, ::testing::Each(128));
}

// Each halving takes the means of blocks of 2 x 2 pixels, rounded, and drops an odd row or column.
TEST_F(ReportPage, HalvesLargePictures) {
  std::vector<std::uint8_t> rgb(std::size_t{5} * 3 * 3, 255);  // 5 wide, 3 high
  const auto at = [&](int x, int y, int channel) -> std::uint8_t& {
    return rgb[static_cast<std::size_t>(3 * (5 * y + x) + channel)];
  };
  for (int channel = 0; channel < 3; ++channel) {
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 4; ++x) {
        at(x, y, channel) = static_cast<std::uint8_t>(40 * channel + 10 * x + y);
      }
    }
  }
  const std::string png = detail::encode_png(rgb, 5, 3);
  folder_.write("run/sheet.png", png);
  EXPECT_EQ(html::read_pictures(folder_ / "run", png.size())[0].divisor, 1) << "just fits";
  const auto halved = html::read_pictures(folder_ / "run", png.size() - 1);
  ASSERT_EQ(halved.size(), 1U);
  EXPECT_EQ(halved[0].divisor, 2);
  EXPECT_EQ(halved[0].width, 5) << "of the file";
  EXPECT_EQ(halved[0].height, 3);
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(as_bytes(halved[0].png), "halved");
  ASSERT_EQ(header.width, 2);
  ASSERT_EQ(header.height, 1);
  std::vector<std::uint8_t> pixels(rgb_bytes(lockstep::whole(header)));
  decoder.decode(lockstep::whole(header), pixels);
  // The mean of 0, 10, 1 and 11 is 5.5, and that of 20, 30, 21 and 31 is 25.5.
  EXPECT_THAT(pixels, ::testing::ElementsAre(6, 46, 86, 26, 66, 106));
  // A picture with a side of one pixel cannot be halved.
  EXPECT_EQ(html::read_pictures(folder_ / "run", 1)[0].divisor, 2);
}

TEST_F(ReportPage, HasTheFirstFourPicturesByName) {
  const std::string png = detail::encode_png(std::vector<std::uint8_t>(3, 9), 1, 1);
  for (const char* name : {"e.png", "b.png", "d.png", "a.png", "c.png"}) {
    folder_.write(std::string("run/") + name, png);
  }
  folder_.write("run/0.txt", png);
  std::filesystem::create_directory(folder_ / "run/0.png");
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& picture : html::read_pictures(folder_ / "run")) all.push_back(picture.name);
    return all;
  };
  EXPECT_THAT(names(), ::testing::ElementsAre("a.png", "b.png", "c.png", "d.png"));
  folder_.write("run/b.png", png.substr(0, 20));
  EXPECT_THAT(names(), ::testing::ElementsAre("a.png", "c.png", "d.png")) << "one is damaged";
  EXPECT_TRUE(html::read_pictures(folder_ / "none").empty());
}

TEST_F(ReportPage, KnowsTheFiguresOfARun) {
  write_sample_record(folder_, "run", {.stage_waits = 0.05});
  const html::RunData run = html::read_run_data(folder_ / "run");
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.ranks, 2);
  ASSERT_EQ(run.epochs.size(), 3U);
  EXPECT_DOUBLE_EQ(run.epochs[1].train_loss.value(), 0.5);
  EXPECT_DOUBLE_EQ(run.epochs[1].metrics.at("accuracy"), 0.75);
  EXPECT_FALSE(run.epochs[1].metrics.contains("confusion"));
  EXPECT_NEAR(run.epochs[1].processors, 0.95, 1e-9);
  ASSERT_EQ(run.epochs[1].phases.size(), html::phase_names().size());
  EXPECT_NEAR(run.epochs[1].phases.back(), 0.1, 1e-9);  // time outside all phases
  EXPECT_NEAR(run.epochs[1].phases[3], 0.15, 1e-9);     // communication
  EXPECT_NEAR(run.epochs[1].phases[4], 0.05, 1e-9);     // a part of the recorded communication
  EXPECT_NEAR(html::best_rate(run), 1020, 1e-9);
  ASSERT_TRUE(run.facts);
  EXPECT_NEAR(run.facts->data, 0.1, 1e-9);
  EXPECT_FALSE(run.trace);
}

}  // namespace
}  // namespace lockstep::testing_support
