// lockstep data pack SOURCE OUT
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/data/data.h>
#include <lockstep/cli/data_choice.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/formats/pack.h>
#include <lockstep/report/image_bar.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr const char* kDataPack = "data pack";

struct PackArguments {
  DataChoice choice;
  std::string out;
  std::optional<int> resize;
  std::string size;
  bool encoded = false;
  std::optional<int> threads;
  std::string on_corrupt_image = "stop";
  std::string json;
};

// Parses "120x160" or "160", height before width.
ImageSize parse_size(const std::string& text) {
  const auto number = [&](const char* begin, const char* end) {
    int value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end || value < 1 || value > formats::kMaximumPackSide) {
      throw ConfigError(str(kDataPack, ": --size must be HEIGHTxWIDTH of 1 to ",
                            formats::kMaximumPackSide, " pixels, got '", text, "'"));
    }
    return value;
  };
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const std::size_t cross = text.find('x');
  if (cross == std::string::npos) return number(begin, end);
  return {number(begin, begin + cross), number(begin + cross + 1, end)};
}

PackImagesOptions resolve(const PackArguments& arguments) {
  const OptionCheck check(kDataPack);
  PackImagesOptions options;
  options.keep_files = arguments.encoded;
  options.threads = arguments.threads.value_or(static_cast<int>(available_cpus().size()));
  check.in_range("--threads", options.threads, 0, 1024);
  options.on_corrupt_image = parse_corrupt_image_option(kDataPack, arguments.on_corrupt_image);
  if (arguments.resize && !arguments.size.empty()) {
    throw ConfigError(
        str(kDataPack, ": --resize (the shorter side) and --size (both) cannot be combined"));
  }
  const char* const changes = arguments.resize                  ? "--resize"
                              : !arguments.size.empty()         ? "--size"
                              : arguments.choice.exif_transpose ? "--exif-transpose"
                                                                : nullptr;
  if (arguments.encoded && changes != nullptr) {
    throw ConfigError(
        str(kDataPack, ": --encoded keeps files as they are; remove ", changes, " or --encoded"));
  }
  if (arguments.resize) {
    check.in_range("--resize", *arguments.resize, 1,
                   static_cast<double>(formats::kMaximumPackSide));
    options.resize = Resize{*arguments.resize, true};
  } else if (!arguments.size.empty()) {
    options.resize = Resize{parse_size(arguments.size)};
  }
  return options;
}

volatile std::sig_atomic_t stop_signal = 0;

// While it lives, SIGINT and SIGTERM are only noted, so that the unfinished file is removed. A
// signal that the caller ignores stays ignored.
class NotedSignals {
 public:
  NotedSignals() {
    for (int i = 0; i < 2; ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) continue;
      std::signal(kSignals[i], [](int number) { stop_signal = number; });
    }
  }
  ~NotedSignals() {
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

  static void check(const std::string& when = {}) {
    const int number = stop_signal;
    if (number == 0) return;
    throw CommandFailure(128 + number,
                         str("interrupted by signal ", number, " (", strsignal(number), ")", when));
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
};

PackedSize pack(const ImageDataset& dataset, const std::filesystem::path& out,
                PackImagesOptions options) {
  const Terminal terminal = detect_terminal(STDERR_FILENO);
  report::ImageBar checking(std::cerr, terminal, "checking", dataset.size());
  report::ImageBar packing(std::cerr, terminal, "packing", dataset.size());
  const NotedSignals signals;
  const auto progress_on = [](report::ImageBar& bar) {
    return [&bar](std::int64_t done) {
      NotedSignals::check();
      bar(done);
    };
  };
  options.progress = progress_on(packing);
  options.check_progress = progress_on(checking);
  const PackedSize size = pack_images(dataset, out, options);
  NotedSignals::check(str(", ", out.string(), " is complete"));
  return size;
}

void run(const PackArguments& arguments) {
  const PackImagesOptions options = resolve(arguments);
  const auto out = check_output_files(kDataPack, "OUT", arguments.out, arguments.json);
  DataChoice choice = arguments.choice;
  choice.keep_unreadable = options.on_corrupt_image == OnCorruptImage::kSkip;
  const ImageDataset dataset = open_data(kDataPack, choice);
  const Clock::time_point begin = Clock::now();
  const PackedSize size = pack(dataset, out, options);
  const double seconds = seconds_since(begin);
  const double rate = static_cast<double>(size.images) / seconds;
  const char* const kind = arguments.encoded ? "files" : "pixels";
  std::cout << arguments.out << ": " << dataset.name() << ", "
            << report::count_of(size.images, "image") << " as " << kind << " in "
            << amount_of(dataset.num_classes(), "class") << ", "
            << report::bytes_text(static_cast<double>(size.bytes)) << ", in "
            << report::seconds_text(seconds) << " (" << report::count_text(rate) << " images/s)\n";
  for (const CorruptImage& image : size.skipped)
    std::cout << "left out " << with_flags(image.reason) << '\n';
  if (arguments.json.empty()) return;
  const nlohmann::ordered_json json{{"file", arguments.out},
                                    {"name", dataset.name()},
                                    {"kind", kind},
                                    {"images", size.images},
                                    {"skipped_images", size.skipped.size()},
                                    {"num_classes", dataset.num_classes()},
                                    {"bytes", size.bytes},
                                    {"threads", options.threads},
                                    {"seconds", seconds},
                                    {"images_per_second", rate}};
  report::write_text_file(arguments.json, bench::json_text(json));
}

}  // namespace

void add_data_pack_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "pack", "Write a data set to a single file, which can be read in any order at memory speed");
  const auto to = std::make_shared<PackArguments>();
  add_data_choice_options(*command, to->choice);
  command
      ->add_option("OUT", to->out,
                   "File to write; an existing file is replaced once the new one is complete")
      ->required();
  command
      ->add_option(
          "--resize", to->resize,
          "Resize the shorter side to this number of pixels, as torchvision's Resize(N) does")
      ->transform(whole_number<int>());
  command->add_option("--size", to->size, "Resize to exactly HEIGHTxWIDTH pixels");
  CLI::Option* const encoded = command->add_flag(
      "--encoded", to->encoded, "Store JPEG and PNG files unchanged instead of decoded pixels");
  command
      ->add_option("--threads", to->threads,
                   "Threads that decode and resize (default: one for each processor available)")
      ->transform(whole_number<int>());
  add_exif_transpose_option(*command, to->choice.exif_transpose);
  add_corrupt_image_option(*command, to->on_corrupt_image);
  command->add_option("--json", to->json, "Also write the summary to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) {
    if (option != encoded) option->check(not_empty());
  }
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
