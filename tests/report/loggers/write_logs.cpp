// Writes logs that log_oracle.py and mlflow_oracle.py read with Python's packages.
//
// Usage: write_logs FOLDER (once|endless|MLFLOW_URI) LOGGER...
//
// A run of 300 steps logs "train/loss" 1/step and "train/learning_rate" 0.1 in each step, and in
// every hundredth step also "test/accuracy", a histogram, an image and a table. With `endless` it
// continues after these steps, prints each step when it is logged, and waits to be killed.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/mlflow_logger.h>

namespace {

using namespace lockstep;

constexpr std::int64_t kSteps = 300;
constexpr int kSide = 16;

// A red, a green and a blue band.
std::vector<std::uint8_t> bands() {
  std::vector<std::uint8_t> pixels(std::size_t{3} * kSide * kSide);
  for (std::size_t i = 0; i < pixels.size() / 3; ++i) pixels[3 * i + i % kSide * 3 / kSide] = 255;
  return pixels;
}

void log_step(Logger& logger, std::int64_t step) {
  const LogMoment moment = moment_at(step);
  const NamedValue values[] = {{"train/loss", 1 / static_cast<double>(step)},
                               {"train/learning_rate", 0.1}};
  logger.log_scalars(moment, values);
  if (step % 100 != 0) return;
  const NamedValue accuracy[] = {{"test/accuracy", static_cast<double>(step) / 400}};
  logger.log_scalars(moment, accuracy);
  const std::vector<float> weights{-1, -0.5F, 0, 0.25F, 0.5F, 0.5F, 1};
  logger.log_histogram(moment, "weights/conv1", make_histogram(std::span<const float>(weights), 4));
  const std::vector<std::uint8_t> pixels = bands();
  logger.log_image(moment, "bands", {.rgb = pixels, .width = kSide, .height = kSide});
  const std::vector<std::string> labels{"cat", "a|b, \"<i>*c*"};
  const std::vector<std::vector<double>> rows{{static_cast<double>(step), 0.25},
                                              {std::numeric_limits<double>::quiet_NaN(), 100'000}};
  logger.log_table(moment, "test/confusion", {.labels = labels, .rows = rows});
  logger.flush();
}

void run(const std::string& folder, const std::string& mode,
         const std::vector<std::string>& names) {
  const bool endless = mode == "endless";
  std::vector<std::unique_ptr<Logger>> loggers;
  if (names == std::vector<std::string>{"mlflow"}) {
    // A real server on a busy machine may need longer than the logger waits by default.
    loggers.push_back(std::make_unique<report::MlflowLogger>(
        report::MlflowLoggerOptions{.server = {.tracking_uri = mode},
                                    .run_name = "oracle",
                                    .folder = folder,
                                    .request_timeout = Milliseconds(120'000),
                                    .finish_timeout = Milliseconds(120'000)}));
  } else {
    loggers = make_loggers(names, {.directory = folder, .run_name = "oracle"});
  }
  const std::vector<HyperParameter> parameters{{"lr", 0.1},
                                               {"global_batch", std::int64_t{128}},
                                               {"nesterov", true},
                                               {"strategy", std::string("ddp")}};
  for (const auto& logger : loggers) logger->log_hyper_parameters(parameters);
  for (std::int64_t step = 1; endless || step <= kSteps; ++step) {
    for (const auto& logger : loggers) log_step(*logger, step);
    if (!endless) continue;
    std::printf("%lld\n", static_cast<long long>(step));
    std::fflush(stdout);
  }
  for (const auto& logger : loggers) logger->finish(true);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4) return 2;
    run(argv[1], argv[2], {argv + 3, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
