#include <lockstep/train/checkpoints/checkpoint.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/model_ema.h>
#include <lockstep/train/checkpoints/run_checkpoint.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/checkpoints/tensor_types.h>

namespace lockstep {
namespace {

// Format 1 supported only SGD, without clipping, and named its momentum differently.
constexpr std::string_view kFormat1 = "lockstep checkpoint 1";
constexpr std::string_view kMomentum1 = "optimizer.momentum.";
constexpr std::string_view kMomentum = "optimizer.momentum_buffer.";
// Far above any run, and small enough that epochs times steps cannot overflow.
constexpr std::int64_t kMostEpochsOrSteps = 1'000'000'001;

// A tensor over the bytes of `view`, which must outlive it.
torch::Tensor tensor_of(const TensorView& view) {
  // from_blob needs a mutable pointer, but nothing writes through it. The parser supports exactly
  // these types.
  return torch::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape,
                          train::scalar_type_of(view.dtype).value());
}

// Removes `key` from the metadata and returns its value.
std::int64_t take_number(SafetensorsMetadata& metadata, const std::string& key,
                         const std::string& path) {
  const auto found = metadata.extract(key);
  std::int64_t value = 0;
  if (found) {
    const std::string& text = found.mapped();
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end) return value;
  }
  throw CheckpointError(
      lockstep::str(path, ": metadata ", key, " is ", found ? "not a whole number" : "missing"));
}

CheckpointInfo info_of(SafetensorsMetadata metadata, const std::string& path) {
  const auto format = metadata.extract("format");
  const bool first = format && format.mapped() == kFormat1;
  if (!format || (format.mapped() != train::kCheckpointFormat && !first)) {
    throw CheckpointError(lockstep::str(path, " is not a checkpoint of Lockstep: its format is ",
                                        format ? format.mapped() : "missing"));
  }
  CheckpointInfo info;
  if (const auto found = metadata.extract("recipe")) info.recipe = found.mapped();
  info.epoch = take_number(metadata, "epoch", path);
  info.step = take_number(metadata, "step", path);
  info.settings = std::move(metadata);
  if (first)
    info.settings.merge(SafetensorsMetadata{{"optimizer", "sgd"}, {"gradient_clip_norm", "none"}});
  if (info.epoch < 1 || info.epoch > kMostEpochsOrSteps || info.step < 0 ||
      info.step > kMostEpochsOrSteps) {
    throw CheckpointError(lockstep::str(path, ": epoch ", info.epoch, " step ", info.step,
                                        " is not a place in a run"));
  }
  return info;
}

void check_recipe(const CheckpointInfo& info, const std::string& recipe, const std::string& path) {
  if (!recipe.empty() && info.recipe != recipe) {
    throw CheckpointError(lockstep::str(path, " was written for recipe '", info.recipe,
                                        "', not for '", recipe,
                                        "'; give another file or CheckpointOptions::directory"));
  }
}

// States that may be in the run or in the checkpoint only. The run's own then starts afresh; the
// checkpoint's is ignored.
constexpr std::array<std::string_view, 2> kOptionalStates = {kGradScalerState, kAverageState};

bool is_of(const std::string& name, std::string_view state) {
  return name.starts_with(std::string(kTrainingPrefix) + std::string(state));
}

bool is_optional(const std::string& name) {
  return std::any_of(kOptionalStates.begin(), kOptionalStates.end(),
                     [&](std::string_view state) { return is_of(name, state); });
}

StateDict tensors_of(const Safetensors& content) {
  const bool first = content.metadata.at("format") == kFormat1;
  StateDict state;
  for (const auto& [name, view] : content.tensors) {
    const bool rename = first && name.starts_with(kMomentum1);
    state.emplace_back(rename ? std::string(kMomentum) + name.substr(kMomentum1.size()) : name,
                       tensor_of(view));
  }
  return state;
}

// The names of each parameter's optimizer states: "exp_avg, exp_avg_sq, step" or "nothing".
std::string remembered(const StateDict& state) {
  std::set<std::string> kinds;
  for (const auto& [name, tensor] : state) {
    if (!name.starts_with(kTrainingPrefix) || is_optional(name)) continue;
    kinds.insert(name.substr(kTrainingPrefix.size(),
                             name.find('.', kTrainingPrefix.size()) - kTrainingPrefix.size()));
  }
  return kinds.empty() ? "nothing" : join(std::vector<std::string>(kinds.begin(), kinds.end()));
}

// The folder of the Trainer's checkpoint whose weights are the file `path`, such as the link
// DIR/checkpoint.safetensors; empty for another file.
std::filesystem::path folder_of_weights(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(path, error);
  if (file.filename() != train::kModelFile) return {};
  const std::filesystem::path folder = file.parent_path();
  return std::filesystem::exists(folder / train::kManifestFile, error) ? folder
                                                                       : std::filesystem::path();
}

// Gives a better message than the names of missing or unexpected tensors.
void check_optimizer(const StateDict& given, const StateDict& wanted, const std::string& path) {
  const std::string stored = remembered(given);
  const std::string own = remembered(wanted);
  if (stored == own) return;
  if (const auto folder = folder_of_weights(path); !folder.empty()) {
    throw CheckpointError(lockstep::str(path,
                                        " holds the weights alone; give the folder of its "
                                        "checkpoint, ",
                                        folder.string()));
  }
  throw CheckpointError(
      lockstep::str(path, " was written by a run whose optimizer remembers ", stored,
                    ", this run's remembers ", own,
                    "; give the same TrainerOptions::optimizer and its options, or "
                    "another CheckpointOptions::directory"));
}

// Removes optional states that only one of the two has.
void drop_lone_states(StateDict& given, StateDict& wanted) {
  for (const std::string_view optional : kOptionalStates) {
    const auto is_it = [&](const auto& entry) { return is_of(entry.first, optional); };
    const auto has = [&](const StateDict& state) {
      return std::any_of(state.begin(), state.end(), is_it);
    };
    if (has(given) == has(wanted)) continue;
    std::erase_if(given, is_it);
    std::erase_if(wanted, is_it);
  }
}

// Removes the tensors that `takes` names from `given` and returns copies, which outlive the file.
StateDict take_free(StateDict& given, const std::function<bool(const std::string&)>& takes) {
  StateDict taken;
  if (!takes) return taken;
  std::erase_if(given, [&](const auto& entry) {
    const auto& [name, tensor] = entry;
    if (!name.starts_with(kTrainingPrefix)) return false;
    const std::string own = name.substr(kTrainingPrefix.size());
    if (!takes(own)) return false;
    taken.emplace_back(own, tensor.clone());
    return true;
  });
  return taken;
}

void warn_of_missing_checksums(const Safetensors& content, const std::string& path) {
  if (content.has_checksums) return;
  log_warning(path,
              " has no checksums, so damage to it would go unnoticed: it was written by an "
              "earlier version or by another program");
}

// Names the first parameter that has diverged. If the checksums match, it was saved that way.
void warn_of_divergence(const torch::nn::Module& module, const std::string& path, bool verified) {
  for (const auto& parameter : module.named_parameters()) {
    const torch::Tensor& value = parameter.value();
    if (!value.defined() || train::values_are_finite(value, !value.requires_grad())) continue;
    return log_warning(path, ": ", parameter.key(), " holds values that are not finite",
                       verified ? ": the run had diverged when it was saved" : "");
  }
}

struct LoadedFile {
  explicit LoadedFile(const std::filesystem::path& path)
      : name(path.string()), bytes(path), content(parse_safetensors(bytes.bytes(), name)) {}
  std::string name;
  MappedFile bytes;
  Safetensors content;  // views of the bytes
};

// The file `path`, or the files of the checkpoint `path`, or those of the newest checkpoint in the
// folder `path`. The first file's metadata is used.
std::vector<LoadedFile> files_of(const std::filesystem::path& path, FolderCheck check) {
  std::filesystem::path folder = path;
  if (!std::filesystem::is_directory(path)) {
    std::vector<LoadedFile> files;
    files.emplace_back(path);
    return files;
  }
  if (!train::is_checkpoint(path)) {
    folder = train::find_checkpoint(path).folder;
  } else if (check == FolderCheck::kVerify) {
    train::verify_checkpoint(path);
  }
  if (folder.empty()) {
    throw CheckpointError("there is no checkpoint in " + path.string() + " to resume from");
  }
  std::vector<LoadedFile> files;
  files.emplace_back(folder / train::kTrainingFile);
  files.emplace_back(folder / train::kModelFile);
  return files;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const torch::nn::Module& module,
                     const StateDict& training, const CheckpointInfo& info) {
  StateDict state = state_dict(module);
  for (auto& entry : train::named_for_file(training)) state.push_back(std::move(entry));
  train::require_distinct_names(state, "cannot write the checkpoint " + path.string());
  const train::FileTensors tensors(state);
  try {
    write_safetensors(path, tensors.views(), train::metadata_of(info));
  } catch (const DataError& error) {
    throw CheckpointError(lockstep::str("cannot write the checkpoint: ", error.what()));
  }
}

namespace {

CheckpointInfo load_files(const std::filesystem::path& path, torch::nn::Module& module,
                          train::RunState& state, const std::string& recipe, FolderCheck check,
                          const std::function<void(const CheckpointInfo&)>& accept) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw CheckpointError(lockstep::str("there is no checkpoint ", path.string(), " to resume from",
                                        error ? ": " + error.message() : ""));
  }
  const std::vector<LoadedFile> files = files_of(path, check);
  const CheckpointInfo info = info_of(files.front().content.metadata, files.front().name);
  check_recipe(info, recipe, path.string());
  if (accept) accept(info);
  bool verified = true;
  StateDict given;
  for (const LoadedFile& file : files) {
    warn_of_missing_checksums(file.content, file.name);
    verified = verified && file.content.has_checksums;
    for (auto& entry : tensors_of(file.content)) given.push_back(std::move(entry));
  }
  StateDict taken = take_free(given, state.takes);
  StateDict own = train::named_for_file(state.training);
  check_optimizer(given, own, path.string());
  drop_lone_states(given, own);
  for (auto& entry : state_dict(module)) own.push_back(std::move(entry));
  train::require_distinct_names(own, "cannot load the checkpoint " + path.string());
  copy_state(given, own, path.string());
  warn_of_divergence(module, path.string(), verified);
  state.taken = std::move(taken);
  return info;
}

}  // namespace

CheckpointInfo load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                               const StateDict& training, const std::string& recipe,
                               FolderCheck check) {
  train::RunState state{.training = training};
  return load_files(path, module, state, recipe, check, {});
}

CheckpointInfo train::load_run(const std::filesystem::path& path, torch::nn::Module& module,
                               RunState& state, const std::string& recipe,
                               const std::function<void(const CheckpointInfo&)>& accept) {
  return load_files(path, module, state, recipe, FolderCheck::kVerified, accept);
}

}  // namespace lockstep
