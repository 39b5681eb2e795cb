#include <lockstep/train/checkpoint.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/train/state_dict.h>

namespace lockstep {
namespace {

constexpr std::string_view kMomentumPrefix = "optimizer.momentum.";
constexpr std::string_view kFormat = "lockstep checkpoint 1";
// Far beyond any run, and small enough that epochs times steps cannot overflow.
constexpr std::int64_t kMostEpochsOrSteps = 1'000'000'001;

constexpr std::array<std::pair<torch::ScalarType, std::string_view>, 8> kDtypes = {{
    {torch::kFloat32, "F32"},
    {torch::kFloat64, "F64"},
    {torch::kFloat16, "F16"},
    {torch::kBFloat16, "BF16"},
    {torch::kInt64, "I64"},
    {torch::kInt32, "I32"},
    {torch::kUInt8, "U8"},
    {torch::kBool, "BOOL"},
}};

std::string_view dtype_name(torch::ScalarType dtype, const std::string& tensor) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const auto& entry) { return entry.first == dtype; });
  if (found == kDtypes.end()) {
    throw CheckpointError(
        lockstep::str("checkpoint: cannot store ", tensor, " of type ", c10::toString(dtype)));
  }
  return found->second;
}

// A tensor over the bytes of `view`, which must outlive it.
torch::Tensor tensor_of(const TensorView& view, const std::string& name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const auto& entry) { return entry.second == view.dtype; });
  if (found == kDtypes.end()) {
    throw CheckpointError(lockstep::str("checkpoint: ", name, " has type ", view.dtype,
                                        ", which Lockstep does not store"));
  }
  // from_blob wants a mutable pointer; nobody writes through it.
  return torch::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape, found->first);
}

// Takes `key` out of the metadata.
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
  if (!format || format.mapped() != kFormat) {
    throw CheckpointError(lockstep::str(path, " is not a checkpoint of Lockstep: its format is ",
                                        format ? format.mapped() : "missing"));
  }
  CheckpointInfo info;
  if (const auto found = metadata.extract("recipe")) info.recipe = found.mapped();
  info.epoch = take_number(metadata, "epoch", path);
  info.step = take_number(metadata, "step", path);
  info.settings = std::move(metadata);
  if (info.epoch < 1 || info.epoch > kMostEpochsOrSteps || info.step < 0 ||
      info.step > kMostEpochsOrSteps) {
    throw CheckpointError(
        lockstep::str(path, ": epoch ", info.epoch, " step ", info.step, " is no place in a run"));
  }
  return info;
}

void check_recipe(const CheckpointInfo& info, const std::string& recipe, const std::string& path) {
  if (!recipe.empty() && info.recipe != recipe) {
    throw CheckpointError(lockstep::str(path, " is of recipe ", info.recipe, ", this run is of ",
                                        recipe, "; give another --out"));
  }
}

// Better than the names of tensors that are missing or unexpected.
void check_momentum(const TensorViews& tensors, const Sgd& optimizer, const std::string& path) {
  const auto first = tensors.lower_bound(std::string(kMomentumPrefix));
  const bool stored = first != tensors.end() && first->first.starts_with(kMomentumPrefix);
  const bool wanted = !optimizer.momentum().empty();
  if (stored == wanted) return;
  throw CheckpointError(lockstep::str(path, " was written by a run ", stored ? "with" : "without",
                                      " momentum, this run goes ", wanted ? "with" : "without",
                                      "; give the same --momentum or another --out"));
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const torch::nn::Module& module,
                     const Sgd& optimizer, const CheckpointInfo& info) {
  StateDict state = state_dict(module);
  for (const auto& [name, tensor] : optimizer.momentum()) {
    state.emplace_back(std::string(kMomentumPrefix) + name, tensor);
  }
  std::vector<torch::Tensor> kept;
  TensorViews views;
  for (const auto& [name, tensor] : state) {
    kept.push_back(tensor.detach().cpu().contiguous());
    const torch::Tensor& plain = kept.back();
    views[name] = {
        .dtype = std::string(dtype_name(plain.scalar_type(), name)),
        .shape = plain.sizes().vec(),
        .bytes = {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}};
  }
  SafetensorsMetadata metadata = info.settings;
  metadata["format"] = kFormat;
  metadata["recipe"] = info.recipe;
  metadata["epoch"] = std::to_string(info.epoch);
  metadata["step"] = std::to_string(info.step);
  try {
    write_safetensors(path, views, metadata);
  } catch (const DataError& error) {
    throw CheckpointError(lockstep::str("cannot write the checkpoint: ", error.what()));
  }
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                               Sgd& optimizer, const std::string& recipe) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw CheckpointError(lockstep::str("there is no checkpoint ", path.string(), " to resume from",
                                        error ? ": " + error.message() : ""));
  }
  const MappedFile file(path);
  const Safetensors content = parse_safetensors(file.bytes(), path.string());
  const CheckpointInfo info = info_of(content.metadata, path.string());
  check_recipe(info, recipe, path.string());
  check_momentum(content.tensors, optimizer, path.string());

  StateDict own = state_dict(module);
  for (const auto& [name, tensor] : optimizer.momentum()) {
    own.emplace_back(std::string(kMomentumPrefix) + name, tensor);
  }
  StateDict given;
  for (const auto& [name, view] : content.tensors) given.emplace_back(name, tensor_of(view, name));
  copy_state(given, own, path.string());
  return info;
}

}  // namespace lockstep
