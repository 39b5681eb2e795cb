// Every pair of values of the options in kTable occurs in some run, and each run is compared with
// one process.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing_support::CapturedLog;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::TemporaryDirectory;

// --- The table of options ------------------------------------------------------------------------

struct Factor {
  const char* name;
  std::vector<std::string> values;
};

const std::vector<Factor>& table_of_options() {
  static const std::vector<Factor> table = {
      {"strategy",
       {"dp", "ddp", "zero1", "zero1 over gloo", "threads", "ranks", "hybrid", "sharded hybrid"}},
      {"precision", {"32", "bf16", "16"}},
      {"accumulation", {"1", "2"}},
      {"clipping", {"none", "norm", "value", "both"}},
      {"schedule", {"constant", "step", "cosine", "one-cycle", "plateau"}},
      {"optimizer", {"sgd", "adamw"}},
      {"ema", {"none", "0.8"}},
      {"checkpoint", {"none", "resumed", "resumed in one process", "in the background"}},
      {"evaluation", {"none", "each epoch", "within epochs"}}};
  return table;
}

enum FactorIndex {
  kStrategy,
  kPrecision,
  kAccumulation,
  kClipping,
  kSchedule,
  kOptimizer,
  kEma,
  kCheckpoint,
  kEvaluation,
};

// The number of the value of each factor.
using Row = std::vector<std::size_t>;

const std::string& value_of(const Row& row, std::size_t factor) {
  return table_of_options()[factor].values[row[factor]];
}

// --- The pairs -----------------------------------------------------------------------------------

struct Pair {
  std::size_t first, first_value, second, second_value;
  auto operator<=>(const Pair&) const = default;
};

// Pairs that the Trainer refuses: an average needs the whole model on each rank.
bool is_possible(const Pair& pair) {
  if (pair.first != kStrategy || pair.second != kEma || pair.second_value == 0) return true;
  const std::string& strategy = table_of_options()[kStrategy].values[pair.first_value];
  return strategy != "ranks" && strategy != "hybrid" && strategy != "sharded hybrid";
}

std::set<Pair> possible_pairs() {
  const auto& table = table_of_options();
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < table.size(); ++a) {
    for (std::size_t b = a + 1; b < table.size(); ++b) {
      for (std::size_t i = 0; i < table[a].values.size(); ++i) {
        for (std::size_t j = 0; j < table[b].values.size(); ++j) {
          if (is_possible({a, i, b, j})) pairs.insert({a, i, b, j});
        }
      }
    }
  }
  return pairs;
}

constexpr std::size_t kOpen = static_cast<std::size_t>(-1);  // not yet chosen

// The pairs of the chosen values of `row` that include `factor`; nothing if one is impossible.
std::optional<std::vector<Pair>> pairs_with(const Row& row, std::size_t factor) {
  std::vector<Pair> pairs;
  for (std::size_t other = 0; other < row.size(); ++other) {
    if (other == factor || row[other] == kOpen) continue;
    const std::size_t a = std::min(factor, other), b = std::max(factor, other);
    pairs.push_back({a, row[a], b, row[b]});
    if (!is_possible(pairs.back())) return std::nullopt;
  }
  return pairs;
}

// Rows begin with a pair that is still missing. Each further factor gets the value that adds most
// missing pairs, of several the one that has been used least.
std::vector<Row> rows_of_all_pairs() {
  const auto& table = table_of_options();
  std::set<Pair> missing = possible_pairs();
  std::vector<std::vector<int>> used;
  for (const Factor& factor : table) used.emplace_back(factor.values.size(), 0);
  std::vector<Row> rows;
  while (!missing.empty()) {
    const Pair seed = *missing.begin();
    Row row(table.size(), kOpen);
    row[seed.first] = seed.first_value;
    row[seed.second] = seed.second_value;
    for (std::size_t factor = 0; factor < table.size(); ++factor) {
      if (row[factor] != kOpen) continue;
      std::tuple<int, int, std::size_t> best{-1, 0, 0};  // new pairs, uses, value
      for (std::size_t value = 0; value < table[factor].values.size(); ++value) {
        row[factor] = value;
        const auto pairs = pairs_with(row, factor);
        if (!pairs) continue;
        const auto is_missing = [&](const Pair& pair) { return missing.contains(pair); };
        const auto added = static_cast<int>(std::ranges::count_if(*pairs, is_missing));
        best = std::max(best, {added, -used[factor][value], value});
      }
      row[factor] = std::get<2>(best);
    }
    for (std::size_t factor = 0; factor < table.size(); ++factor) {
      ++used[factor][row[factor]];
      const std::vector<Pair> pairs = pairs_with(row, factor).value();
      for (const Pair& pair : pairs) missing.erase(pair);
    }
    rows.push_back(row);
  }
  return rows;
}

std::string text_of(const Row& row) {
  std::vector<std::string> words;
  for (std::size_t factor = 0; factor < row.size(); ++factor) {
    words.push_back(str(table_of_options()[factor].name, ' ', value_of(row, factor)));
  }
  return join(words);
}

TEST(AllPairs, AreInTheRows) {
  const std::vector<Row> rows = rows_of_all_pairs();
  std::set<Pair> present;
  for (const Row& row : rows) {
    for (std::size_t factor = 0; factor < row.size(); ++factor) {
      const auto pairs = pairs_with(row, factor);
      ASSERT_TRUE(pairs) << text_of(row);
      present.insert(pairs->begin(), pairs->end());
    }
  }
  EXPECT_EQ(present, possible_pairs());
  EXPECT_LE(rows.size(), 60U) << "each takes about half a second";
}

// --- The runs ------------------------------------------------------------------------------------

constexpr std::int64_t kPairEpochs = 3;

TrainerOptions options_in(const Row& row) {
  TrainerOptions run = options(kPairEpochs);
  run.precision = parse_precision(value_of(row, kPrecision));
  run.grad_scaler = {.init_scale = 1024, .growth_interval = 4};
  run.accumulate_grad_batches = std::stoi(value_of(row, kAccumulation));
  const std::string& clipping = value_of(row, kClipping);
  if (clipping == "norm" || clipping == "both") run.gradient_clip_norm = 0.5;
  if (clipping == "value" || clipping == "both") run.gradient_clip_value = 0.02;
  run.schedule = {.kind = parse_schedule(value_of(row, kSchedule))};
  run.schedule.step_epochs = 0.5;
  run.schedule.gamma = 0.5;
  run.schedule.cycle_momentum = run.schedule.kind == ScheduleKind::kOneCycle;
  if (run.schedule.kind != ScheduleKind::kConstant) run.schedule.warmup_epochs = 0.5;
  // Lowers the rate after the second epoch, whatever part of it a resumed run has trained.
  run.schedule.plateau = {.monitor = "train_loss", .factor = 0.5, .patience = 0, .threshold = 0.99};
  if (value_of(row, kOptimizer) == "adamw") {
    run.optimizer = AdamWOptions{.lr = 3e-3, .eps = 1e-3};
  } else {
    run.optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3};
  }
  if (value_of(row, kEma) != "none") run.ema_decay = 0.8;
  if (value_of(row, kEvaluation) == "none") run.limit_val_batches = 0;
  if (value_of(row, kEvaluation) == "within epochs") run.val_check_interval = 4;
  return run;
}

struct PairWay {
  int ranks = 1;
  std::string backend = "shm";
  StagedRun run{};
};

PairWay way_in(const Row& row) {
  const std::string& name = value_of(row, kStrategy);
  StrategyOptions staged = {.stages = 2, .micro_batches = 2};
  if (name == "dp") {
    return {.run = {.strategy = "dp",
                    .options = {.devices = std::vector<torch::Device>(2, torch::kCPU)}}};
  }
  if (name == "threads") return {.run = {.strategy = "pipeline", .options = staged}};
  if (name == "ranks") return {.ranks = 2, .run = {.strategy = "pipeline", .options = staged}};
  if (name == "hybrid") return {.ranks = 4, .run = {.strategy = "hybrid", .options = staged}};
  if (name == "sharded hybrid") {
    staged.shard_optimizer = true;
    return {.ranks = 4, .run = {.strategy = "hybrid", .options = staged}};
  }
  if (name == "zero1 over gloo") {
    return {.ranks = 2, .backend = "gloo", .run = {.strategy = "zero1"}};
  }
  return {.ranks = 2, .run = {.strategy = name}};
}

// Batches of a step accumulate to the batch of one step without accumulation.
constexpr std::int64_t kPairBatch = 20;

struct PairOutcome {
  StateDict state;            // rank 0 has it
  StateDict averaged;         // rank 0 has it; empty without an average
  std::vector<double> rates;  // at all steps, also of those before a resume
  std::optional<Evaluation> test;
};

// Adds the steps of this run to `outcome`.
void train_pair(const TrainerOptions& trainer_options, const PairWay& way, PairOutcome& outcome) {
  CountingListener listener;
  const auto train_rank = [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    TrainerOptions run = trainer_options;
    if (group.rank() == 0) run.listeners = {&listener};
    const torch::nn::Sequential net = make_staged_net();
    ClassificationTask task = make_staged_task(net);
    std::unique_ptr<Strategy> strategy = make_strategy(way.run.strategy, group, way.run.options);
    const DataShare share = strategy->data_share();
    Loader loader(
        train_images(), DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
        kNormalize, {.batch_size = kPairBatch / run.accumulate_grad_batches / share.size});
    Trainer trainer(run, std::move(strategy));
    const RunReport report = trainer.fit(task, loader, [&] {
      return std::make_unique<Loader>(
          test_images(), EvaluationSampler(test_images().size(), share.rank, share.size),
          kNormalize, LoaderOptions{.batch_size = 8});
    });
    if (group.rank() != 0) return;
    outcome.state.clear();
    for (const auto& [name, tensor] : state_dict(*net)) {
      outcome.state.emplace_back(name, tensor.clone());
    }
    outcome.averaged = trainer.averaged_state();
    outcome.test = report.test;
  };
  if (way.ranks == 1) {
    train_rank(group_of_one());
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks));
  }
  outcome.rates.insert(outcome.rates.end(), listener.rates.begin(), listener.rates.end());
}

PairOutcome train_row(const Row& row) {
  const PairWay way = way_in(row);
  const std::string& checkpoint = value_of(row, kCheckpoint);
  const TemporaryDirectory directory;
  TrainerOptions run = options_in(row);
  PairOutcome outcome;
  if (checkpoint == "none") {
    train_pair(run, way, outcome);
    return outcome;
  }
  run.checkpoints = {.directory = directory / "checkpoints",
                     .every_n_train_steps = 3,
                     .background = checkpoint == "in the background"};
  run.max_steps = 8;  // within the second epoch of six steps
  train_pair(run, way, outcome);
  run.max_steps.reset();
  run.resume = true;
  const CapturedLog log;  // says that the number of ranks differs
  train_pair(run, checkpoint == "resumed in one process" ? PairWay{} : way, outcome);
  return outcome;
}

double distance_of(const StateDict& a, const StateDict& b) {
  EXPECT_EQ(a.size(), b.size());
  return a.size() == b.size() ? distance(a, b) : std::nan("");
}

class TrainerPairs : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Pairs, TrainerPairs, testing::ValuesIn(rows_of_all_pairs()),
                         [](const auto& info) { return std::to_string(info.index); });

TEST_P(TrainerPairs, TrainAsOneProcess) {
  at::set_num_threads(1);
  const Row& row = GetParam();
  SCOPED_TRACE(text_of(row));
  PairOutcome expected;
  train_pair(options_in(row), PairWay{}, expected);
  const PairOutcome got = train_row(row);
  // Types of 16 bits round to 8 or 11 binary digits, for each order of additions in another way.
  const std::string& precision = value_of(row, kPrecision);
  const double tolerance = precision == "32" ? 1e-3 : precision == "16" ? 0.02 : 0.1;
  const double moved = distance_of(expected.state, state_dict(*make_staged_net()));
  EXPECT_GT(moved, 0.1) << "the run must learn something";
  EXPECT_LT(distance_of(got.state, expected.state), tolerance * moved);
  ASSERT_EQ(got.rates.size(), expected.rates.size());
  for (std::size_t i = 0; i < got.rates.size(); ++i) {
    EXPECT_DOUBLE_EQ(got.rates[i], expected.rates[i]) << "step " << i;
  }
  ASSERT_EQ(got.averaged.size(), expected.averaged.size());
  if (!got.averaged.empty()) {
    EXPECT_LT(distance_of(got.averaged, expected.averaged), tolerance * moved);
    EXPECT_GT(distance_of(got.averaged, got.state), 1e-4 * moved);
  }
  ASSERT_EQ(got.test.has_value(), expected.test.has_value());
  if (!got.test) return;
  EXPECT_EQ(got.test->samples, expected.test->samples);
  EXPECT_NEAR(got.test->loss, expected.test->loss, tolerance * 2);
}

}  // namespace
}  // namespace lockstep::train
