#include <lockstep/cli/bench/table_peers.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/run_executable.h>
#include <lockstep/core/error.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/recipes/folder_split.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeerProgram = "train_epochs.py";
constexpr Milliseconds kPeerGrace{5000};

// The place of the data that Lockstep trains on, for the program; nothing if both generate them.
std::optional<fs::path> data_of_peer(const TrainSettings& settings) {
  const recipes::Recipe& recipe = *settings.recipe;
  if (settings.data && recipes::holds_packs(*settings.data)) {
    throw ConfigError(str("bench table: --with-peers cannot read the packs of --data ",
                          *settings.data, "; give the files that they were made from"));
  }
  if (recipe.reads_image_folder) {
    if (!settings.data) return std::nullopt;
    return fs::absolute(*settings.data);
  }
  const auto found = find_data({.name = recipe.name, .directory = settings.data, .progress = {}});
  if (!found) {
    throw ConfigError(str("bench table: --with-peers needs the files of ", recipe.name,
                          ", which are not here; give --data DIR, or `lockstep data get ",
                          recipe.name, "`"));
  }
  return fs::absolute(*found);
}

void redirect_output(const fs::path& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw Error(str("cannot write ", log.string(), ": ", errno_text(errno)));
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
}

// The last non-empty line: Python ends a traceback with its error.
std::string last_line(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t=-") != std::string::npos) last = line;
  }
  return last;
}

}  // namespace

fs::path find_peers(const BenchTableArguments& arguments) {
  std::vector<fs::path> folders;
  if (arguments.peers) {
    folders.emplace_back(*arguments.peers);
  } else {
    std::error_code ignored;
    const fs::path own = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    folders = {own.parent_path() / "share/lockstep/peers",
               own.parent_path().parent_path() / "benchmarks/peers"};
  }
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    if (fs::exists(folder / kPeerProgram, ignored)) return fs::absolute(folder);
  }
  throw ConfigError(str("bench table: --with-peers finds no ", kPeerProgram, " in ",
                        folders.front().string(),
                        "; give --peers DIR, such as benchmarks/peers of Lockstep's source"));
}

std::vector<std::string> peer_command(const BenchTableArguments& arguments,
                                      const bench::TableWay& way, const TrainSettings& settings,
                                      const fs::path& peers, const fs::path& report) {
  const bench::TablePeer& peer = way.peer.value();
  std::vector<std::string> words = {arguments.peer_python};
  const bool has_ranks = peer.strategy == "ddp";
  if (has_ranks) {
    const std::vector<std::string> torchrun = {"-m", "torch.distributed.run", "--standalone",
                                               "--nproc-per-node", std::to_string(way.ranks)};
    words.insert(words.end(), torchrun.begin(), torchrun.end());
  }
  const auto add = [&words](const std::string& option, const auto& value) {
    words.push_back(option);
    words.push_back(str(value));
  };
  words.push_back((peers / kPeerProgram).string());
  words.push_back(settings.recipe->name);
  add("--strategy", peer.strategy);
  add("--loader", peer.loader);
  add("--workers", peer.workers);
  add("--threads", has_ranks ? way.threads_per_rank : way.threads_per_rank * way.ranks);
  add("--batch-size", way.global_batch());
  add("--max-epochs", arguments.epochs);
  if (arguments.max_steps) add("--max-steps", *arguments.max_steps);
  add("--accelerator", settings.accelerator);
  add("--precision", arguments.train.precision);
  if (way.peer->strategy == "dp") add("--devices", way.ranks);
  if (settings.channels_last) words.emplace_back("--channels-last");
  for (const auto& [name, option] : {std::pair{recipes::kImageSizeChoice, "--image-size"},
                                     std::pair{recipes::kModelChoice, "--model"}}) {
    const auto choice = settings.recipe->choices.find(name);
    if (choice != settings.recipe->choices.end()) add(option, choice->second);
  }
  if (const auto data = data_of_peer(settings)) add("--data", data->string());
  add("--json", report.string());
  return words;
}

void run_peer(const std::vector<std::string>& command, const fs::path& log, double seconds) {
  const std::string executable = find_executable(command.front());
  const LaunchResult result =
      launch_ranks({.nproc_per_node = 1, .grace = kPeerGrace, .ranks_exec = true}, [&] {
        redirect_output(log);
        alarm(static_cast<unsigned>(std::ceil(seconds)));  // survives the exec
        execute(executable, command);
      });
  if (result.ok()) return;
  if (result.interrupted_by != 0) require_success(result);
  constexpr int kEndedByAlarm = 128 + 14;
  if (result.exit_code == kEndedByAlarm) {
    throw Error(str("it did not end within ", seconds, " s (--peer-timeout)"));
  }
  const std::string said = last_line(log);
  throw Error(said.empty() ? result.message : said);
}

}  // namespace lockstep::cli
