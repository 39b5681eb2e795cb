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

template <class Number>
Number number_of(const SafetensorsMetadata& metadata, const std::string& key,
                 const std::string& path) {
  const auto found = metadata.find(key);
  Number value{};
  if (found != metadata.end()) {
    const char* const end = found->second.data() + found->second.size();
    const auto [stop, error] = std::from_chars(found->second.data(), end, value);
    if (error == std::errc() && stop == end) return value;
  }
  throw CheckpointError(lockstep::str(path, ": metadata ", key, " is ",
                                      found == metadata.end() ? "missing" : "not a whole number"));
}

CheckpointInfo info_of(const SafetensorsMetadata& metadata, const std::string& path) {
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != kFormat) {
    throw CheckpointError(lockstep::str(path, " is not a checkpoint of Lockstep: its format is ",
                                        format == metadata.end() ? "missing" : format->second));
  }
  CheckpointInfo info;
  if (const auto found = metadata.find("recipe"); found != metadata.end()) {
    info.recipe = found->second;
  }
  info.epoch = number_of<std::int64_t>(metadata, "epoch", path);
  info.step = number_of<std::int64_t>(metadata, "step", path);
  info.seed = number_of<std::uint64_t>(metadata, "seed", path);
  info.global_batch = number_of<std::int64_t>(metadata, "global_batch", path);
  info.world_size = number_of<std::int64_t>(metadata, "world_size", path);
  if (info.epoch < 1 || info.step < 0) {
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
  try {
    write_safetensors(path, views,
                      {{"format", std::string(kFormat)},
                       {"recipe", info.recipe},
                       {"epoch", std::to_string(info.epoch)},
                       {"step", std::to_string(info.step)},
                       {"seed", std::to_string(info.seed)},
                       {"global_batch", std::to_string(info.global_batch)},
                       {"world_size", std::to_string(info.world_size)}});
  } catch (const DataError& error) {
    throw CheckpointError(lockstep::str("cannot write the checkpoint: ", error.what()));
  }
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                               Sgd& optimizer, const std::string& recipe) {
  if (!std::filesystem::exists(path)) {
    throw CheckpointError(
        lockstep::str("there is no checkpoint ", path.string(), " to resume from"));
  }
  const MappedFile file(path);
  const Safetensors content = parse_safetensors(file.bytes(), path.string());
  const CheckpointInfo info = info_of(content.metadata, path.string());
  check_recipe(info, recipe, path.string());

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
