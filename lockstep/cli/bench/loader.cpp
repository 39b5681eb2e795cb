// lockstep bench loader
#include <torch/types.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/bench/loader/measured_loaders.h>
#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/word_list.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/row_options.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/loader_data.h>
#include <lockstep/cli/operators_option.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {
namespace {

constexpr const char* kBenchLoader = "bench loader";

struct BenchLoaderArguments {
  std::string dataset = "cifar10";
  std::optional<std::string> operators;
  std::string engines = "native";
  int size = 128;
  std::string threads = "1,2";
  int batch_size = 256;
  std::string precision = "32";
  std::string layout = "nchw";
  int rounds = 7;
  double seconds = 0.5;
  std::int64_t max_image_pixels = kMaxImagePixels;
  std::string decoding = "exact";
  std::string on_corrupt_image = "stop";
  std::optional<std::string> data;
  std::string json;
  std::string trace;
};

std::vector<LoaderEngineKind> engines_of(const std::string& text) {
  std::vector<LoaderEngineKind> engines;
  for (const std::string& word : bench::words_of(text)) {
    OptionCheck(kBenchLoader).one_of("--loader", word, loader_engine_names());
    engines.push_back(parse_loader_engine(word));
  }
  return engines;
}

std::vector<int> threads_of(const std::string& text) {
  std::vector<int> threads;
  for (const std::string& word : bench::words_of(text)) {
    std::istringstream stream(word);
    int number = -1;
    if (!(stream >> number) || !stream.eof() || number < 0 || number > 1024) {
      throw ConfigError(str(kBenchLoader,
                            ": --threads: expected whole numbers from 0 to 1024, separated by "
                            "commas, such as 1,4; got '",
                            word, "'"));
    }
    threads.push_back(number);
  }
  return threads;
}

torch::ScalarType dtype_of(const std::string& precision) {
  static const std::map<std::string, torch::ScalarType> types = {
      {"32", torch::kFloat32}, {"bf16", torch::kBFloat16}, {"16", torch::kFloat16}};
  return types.at(precision);
}

void write_json(const BenchLoaderArguments& arguments, const std::string& operators,
                const std::vector<bench::BenchLoaderRow>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const bench::BenchLoaderRow& row : rows) {
    json.push_back({{"engine", to_string(row.engine)},
                    {"dataset", arguments.dataset},
                    {"operators", operators},
                    {"decoding", arguments.decoding},
                    {"threads", row.threads},
                    {"batch_size", arguments.batch_size},
                    {"images_per_second", median(row.rounds)},
                    {"skipped_images", row.skipped},
                    {"precision", arguments.precision},
                    {"layout", arguments.layout},
                    {"rounds", row.rounds}});
    if (!row.floors.empty()) {
      json.back()["copy_images_per_second"] = median(row.floors);
    }
  }
  report::write_text_file(arguments.json, bench::json_text(json));
}

void print_rows(const BenchLoaderArguments& arguments, const LoaderData& data,
                const std::vector<bench::BenchLoaderRow>& rows) {
  std::cout << data.dataset.name() << ", " << data.operators << ", batches of "
            << arguments.batch_size << ", precision " << arguments.precision << ", "
            << arguments.layout << "\nengine  threads  images/s (median, slowest and fastest of "
            << arguments.rounds << " rounds)\n";
  for (const bench::BenchLoaderRow& row : rows) {
    const auto [slowest, fastest] = std::minmax_element(row.rounds.begin(), row.rounds.end());
    const double rate = median(row.rounds);
    std::cout << std::fixed << std::setprecision(0) << std::setw(6) << to_string(row.engine)
              << std::setw(9) << row.threads << std::setw(10) << rate << "  (" << *slowest << " to "
              << *fastest << ")";
    if (!row.floors.empty()) {
      const double floor = median(row.floors);
      std::cout << ", " << 100 * rate / floor << "% of a copy of its bytes (" << floor << ")";
    }
    if (row.skipped > 0) std::cout << ", " << row.skipped << " times a damaged image was left out";
    std::cout << '\n';
  }
}

void run(const BenchLoaderArguments& arguments) {
  const OptionCheck check(kBenchLoader);
  check.one_of("--layout", arguments.layout, {"nchw", "nhwc"});
  check.one_of("--precision", arguments.precision, precision_names());
  const OnCorruptImage on_corrupt_image =
      parse_corrupt_image_option(kBenchLoader, arguments.on_corrupt_image);
  const std::vector<LoaderEngineKind> engines = engines_of(arguments.engines);
  const ImageReader::Decoding decoding = parse_decoding_option(kBenchLoader, arguments.decoding);
  for (const LoaderEngineKind engine : engines) check_decoding(kBenchLoader, decoding, engine);
  const std::vector<int> threads = threads_of(arguments.threads);
  check.at_least("--batch-size", arguments.batch_size, 1);
  check.at_least("--rounds", arguments.rounds, 1);
  check.in_range("--seconds", arguments.seconds, 0.001, 3600);
  if (!arguments.json.empty()) check_output_file(kBenchLoader, "--json", arguments.json);
  check_trace_folder(kBenchLoader, arguments.trace);
  const LoaderData data = open_loader_data(
      kBenchLoader, {.source = arguments.dataset,
                     .source_option = "--dataset",
                     .operators = arguments.operators,
                     .size = arguments.size,
                     .directory = arguments.data,
                     .max_image_pixels = arguments.max_image_pixels,
                     .decoding = decoding,
                     .keep_unreadable = on_corrupt_image == OnCorruptImage::kSkip});
  const OtherPrograms others;
  const std::vector<bench::BenchLoaderRow> rows =
      bench::measure_loaders({.dataset = data.dataset,
                              .augmentation = data.augmentation,
                              .engines = engines,
                              .threads = threads,
                              .batch_size = arguments.batch_size,
                              .channels_last = arguments.layout == "nhwc",
                              .dtype = dtype_of(arguments.precision),
                              .on_corrupt_image = on_corrupt_image,
                              .rounds = arguments.rounds,
                              .seconds = arguments.seconds,
                              .trace = arguments.trace});
  print_rows(arguments, data, rows);
  report::flush_output(std::cout);
  bench::warn_of_other_programs(others);
  if (!arguments.json.empty()) write_json(arguments, data.operators, rows);
}

void add_image_options(CLI::App& command, BenchLoaderArguments& to) {
  command
      .add_option("--dataset", to.dataset,
                  "Data to load: " + join(known_data_names()) +
                      ", a folder with a subfolder of images for each class, or a file made by "
                      "`lockstep data pack`")
      ->capture_default_str();
  add_operators_option(command, to.operators);
  command
      .add_option("--size", to.size,
                  "Side of the cropped images, in pixels (--operators random-resized-crop only)")
      ->transform(whole_number<int>())
      ->capture_default_str();
}

void add_batch_options(CLI::App& command, BenchLoaderArguments& to) {
  command
      .add_option("--loader,--engine", to.engines,
                  "Loaders to time, separated by commas: " + join(loader_engine_names()))
      ->capture_default_str();
  command
      .add_option("--threads", to.threads,
                  "Numbers of loader threads, separated by commas; each gets a row")
      ->capture_default_str();
  command.add_option("--batch-size", to.batch_size, "Images per batch")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command
      .add_option("--precision", to.precision,
                  "Precision of the images: " + join(precision_names()))
      ->capture_default_str();
  command
      .add_option("--layout", to.layout, "Memory format of a batch: nchw or nhwc (channels last)")
      ->capture_default_str();
}

// The length of the measurement, the source of the images, and what is written.
void add_loader_run_options(CLI::App& command, BenchLoaderArguments& to) {
  command.add_option("--rounds", to.rounds, "Number of rounds; each round times every row once")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command.add_option("--seconds", to.seconds, "Time for each row in a round, in seconds")
      ->capture_default_str();
  command.add_option("--data", to.data, "Folder with the data set's files");
  add_max_image_pixels_option(command, to.max_image_pixels);
  add_decoding_option(command, to.decoding);
  add_corrupt_image_option(command, to.on_corrupt_image);
  add_rows_json_option(command, to.json);
  add_row_traces_option(command, to.trace,
                        "After the timed batches of each row, load twenty more and record what the "
                        "loader's threads do");
}

}  // namespace

void add_bench_loader_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("loader", "Measure a loader's images per second");
  const auto to = std::make_shared<BenchLoaderArguments>();
  add_image_options(*command, *to);
  add_batch_options(*command, *to);
  add_loader_run_options(*command, *to);
  collect_values(*command, {"--loader", "--threads"});
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
