// Where each option of `lockstep bench step`, `explain pipeline`, `program draw`, `simulate` and
// `data` is stored.
#include <tuple>

#include <gtest/gtest.h>

#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/cli/data/preview.h>
#include <lockstep/cli/data_choice.h>
#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/cli/exported/draw_options.h>
#include <lockstep/cli/simulate/simulate_settings.h>
#include <tests/cli/option_table.h>

namespace lockstep::cli {
namespace {

using testing_support::expect_own_fields;

TEST(CommandOptions, OfBenchStepReachTheirOwnFields) {
  expect_own_fields<BenchStepArguments>(
      add_bench_step_options,
      {
          {{"--model", "resnet18"}, [](auto& a) { a.model = "resnet18"; }},
          {{"--strategy", "ddp,zero1"}, [](auto& a) { a.strategy = "ddp,zero1"; }},
          {{"--backend", "gloo"}, [](auto& a) { a.backend = "gloo"; }},
          {{"--threads", "3"}, [](auto& a) { a.threads = 3; }},
          {{"--precision", "bf16"}, [](auto& a) { a.precision = "bf16"; }},
          {{"--optimizer", "adam"}, [](auto& a) { a.optimizer = "adam"; }},
          {{"--nproc-per-node", "4"}, [](auto& a) { a.nproc_per_node = 4; }},
          {{"--batch-per-rank", "5"}, [](auto& a) { a.batch_per_rank = 5; }},
          {{"--bucket-cap-mb", "1,whole"}, [](auto& a) { a.bucket_cap_mb = "1,whole"; }},
          {{"--parameter-memory", "flat"}, [](auto& a) { a.parameter_memory = "flat"; }},
          {{"--set-to-none"}, [](auto& a) { a.set_to_none = true; }},
          {{"--find-unused-parameters"}, [](auto& a) { a.find_unused_parameters = true; }},
          {{"--alone"}, [](auto& a) { a.alone = true; }},
          {{"--batch", "6"}, [](auto& a) { a.batch = 6; }},
          {{"--micro-batches", "7"}, [](auto& a) { a.micro_batches = 7; }},
          {{"--recompute"}, [](auto& a) { a.recompute = true; }},
          {{"--image-size", "64"}, [](auto& a) { a.image_size = 64; }},
          {{"--cut", "even"}, [](auto& a) { a.cut = "even"; }},
          {{"--only", "single,dp"}, [](auto& a) { a.only = "single,dp"; }},
          {{"--rounds", "8"}, [](auto& a) { a.rounds = 8; }},
          {{"--steps", "9"}, [](auto& a) { a.steps = 9; }},
          {{"--timeout", "10.5"}, [](auto& a) { a.timeout_seconds = 10.5; }},
          {{"--json", "rows.json"}, [](auto& a) { a.json = "rows.json"; }},
          {{"--trace", "traces"}, [](auto& a) { a.trace = "traces"; }},
      });
}

TEST(CommandOptions, OfExplainPipelineReachTheirOwnFields) {
  expect_own_fields<ExplainPipelineArguments>(
      add_pipeline_options, {
                                {{"--schedule", "zbv"}, [](auto& a) { a.schedule = "zbv"; }},
                                {{"--stages", "3"}, [](auto& a) { a.stages = 3; }},
                                {{"--workers", "5"}, [](auto& a) { a.workers = 5; }},
                                {{"--micro-batches", "6"}, [](auto& a) { a.micro_batches = 6; }},
                                {{"--table", "table.csv"}, [](auto& a) { a.table = "table.csv"; }},
                                {{"--message-cost", "0"}, [](auto& a) { a.message_cost = 0; }},
                                {{"--measured"}, [](auto& a) { a.measured = true; }},
                                {{"--wait", "7"}, [](auto& a) { a.wait = 7; }},
                                {{"--width", "9"}, [](auto& a) { a.width = 9; }},
                                {{"--layers", "10"}, [](auto& a) { a.layers = 10; }},
                                {{"--samples", "11"}, [](auto& a) { a.samples = 11; }},
                                {{"--activation", "gelu"}, [](auto& a) { a.activation = "gelu"; }},
                                {{"--threads", "12"}, [](auto& a) { a.threads = 12; }},
                                {{"--steps", "13"}, [](auto& a) { a.steps = 13; }},
                                {{"--svg", "a.svg"}, [](auto& a) { a.svg = "a.svg"; }},
                                {{"--csv", "a.csv"}, [](auto& a) { a.csv = "a.csv"; }},
                                {{"--json", "a.json"}, [](auto& a) { a.json = "a.json"; }},
                            });
}

TEST(CommandOptions, OfProgramDrawReachTheirOwnFields) {
  expect_own_fields<ProgramDrawArguments>(
      add_program_draw_options, {
                                    {{"net.pt2"}, [](auto& a) { a.file = "net.pt2"; }},
                                    {{"--out", "a.svg"}, [](auto& a) { a.out = "a.svg"; }},
                                    {{"--format", "dot"}, [](auto& a) { a.format = "dot"; }},
                                    {{"--depth", "3"}, [](auto& a) { a.depth = 3; }},
                                    {{"--stages", "4"}, [](auto& a) { a.stages = 4; }},
                                });
}

TEST(CommandOptions, OfSimulateReachTheirOwnFields) {
  expect_own_fields<SimulateArguments>(
      add_simulate_options,
      {
          {{"run"}, [](auto& a) { a.run = "run"; }},
          {{"--ranks", "3,5"}, [](auto& a) { a.ranks = "3,5"; }},
          {{"--network", "1gbit"}, [](auto& a) { a.network = "1gbit"; }},
          {{"--run-network", "wire.json"}, [](auto& a) { a.run_network = "wire.json"; }},
          {{"--ranks-per-host", "4"}, [](auto& a) { a.ranks_per_host = 4; }},
          {{"--algorithm", "tree"}, [](auto& a) { a.algorithm = "tree"; }},
          {{"--strategy", "zero1"}, [](auto& a) { a.strategy = "zero1"; }},
          {{"--shared-parameters"}, [](auto& a) { a.shares_parameters = true; }},
          {{"--bucket-cap-mb", "6"}, [](auto& a) { a.bucket_cap_mb = "6"; }},
          {{"--format", "markdown"}, [](auto& a) { a.format = "markdown"; }},
          {{"--json", "a.json"}, [](auto& a) { a.json = "a.json"; }},
      });
}

// The choice that `data check` and `data pack` have in common.
TEST(CommandOptions, OfTheChoiceOfDataReachTheirOwnFields) {
  expect_own_fields<DataChoice>(
      add_data_choice_options,
      {
          {{"photos"}, [](auto& a) { a.source = "photos"; }},
          {{"--split", "test"}, [](auto& a) { a.split = "test"; }},
          {{"--data", "folder"}, [](auto& a) { a.directory = "folder"; }},
          {{"--max-image-pixels", "3"}, [](auto& a) { a.max_image_pixels = 3; }},
      });
}

// Parsing leaves the members alone that follow from words: PreviewOptions::engine, mix and
// on_corrupt_image.
bool equal_previews(const PreviewArguments& a, const PreviewArguments& b) {
  const auto numbers = [](const PreviewOptions& options) {
    return std::tie(options.images, options.versions, options.scale, options.seed, options.epoch);
  };
  const auto words = [](const PreviewArguments& each) {
    return std::tie(each.engine, each.mix, each.on_corrupt_image, each.decoding, each.out,
                    each.json);
  };
  return a.choice == b.choice && numbers(a.options) == numbers(b.options) && words(a) == words(b);
}

TEST(CommandOptions, OfDataPreviewReachTheirOwnFields) {
  expect_own_fields<PreviewArguments>(
      add_preview_options,
      {
          {{"mnist"}, [](auto& a) { a.choice.source = "mnist"; }},
          {{"--out", "a.png"}, [](auto& a) { a.out = "a.png"; }},
          {{"--operators", "normalize"}, [](auto& a) { a.choice.operators = "normalize"; }},
          {{"--size", "3"}, [](auto& a) { a.choice.size = 3; }},
          {{"--data", "folder"}, [](auto& a) { a.choice.directory = "folder"; }},
          {{"--max-image-pixels", "4"}, [](auto& a) { a.choice.max_image_pixels = 4; }},
          {{"--decoding", "scaled"}, [](auto& a) { a.decoding = "scaled"; }},
          {{"--exif-transpose"}, [](auto& a) { a.choice.exif_transpose = true; }},
          {{"--on-corrupt-image", "skip"}, [](auto& a) { a.on_corrupt_image = "skip"; }},
          {{"--images", "5"}, [](auto& a) { a.options.images = 5; }},
          {{"--versions", "6"}, [](auto& a) { a.options.versions = 6; }},
          {{"--scale", "9"}, [](auto& a) { a.options.scale = 9; }},
          {{"--seed", "10"}, [](auto& a) { a.options.seed = 10; }},
          {{"--epoch", "11"}, [](auto& a) { a.options.epoch = 11; }},
          {{"--loader", "cuda"}, [](auto& a) { a.engine = "cuda"; }},
          {{"--mix", "mixup"}, [](auto& a) { a.mix = "mixup"; }},
          {{"--json", "a.json"}, [](auto& a) { a.json = "a.json"; }},
      },
      equal_previews);
}

}  // namespace
}  // namespace lockstep::cli
