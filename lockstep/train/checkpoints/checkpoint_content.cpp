#include <lockstep/train/checkpoints/checkpoint_content.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <utility>

#include <torch/utils.h>

#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/train/checkpoints/tensor_types.h>

namespace lockstep::train {
namespace {

// With fewer elements LibTorch computes in the calling thread.
constexpr std::int64_t kSerialElements = 1 << 14;

std::string dtype_name(torch::ScalarType type, const std::string& tensor) {
  const std::string_view dtype = dtype_of(type);
  if (!dtype.empty()) return std::string(dtype);
  throw CheckpointError(lockstep::str("checkpoint: cannot store '", tensor, "' of type ",
                                      c10::toString(type), ", which has no name in safetensors"));
}

// Copies in pieces. Otherwise a background writer would start its own OpenMP team, which would
// compete with the training threads.
void copy_in_this_thread(const torch::Tensor& to, const torch::Tensor& from) {
  if (to.numel() <= kSerialElements || to.dim() == 0) {
    to.copy_(from);
    return;
  }
  const std::int64_t row = to.numel() / to.size(0);
  if (row > kSerialElements) {
    for (std::int64_t i = 0; i < to.size(0); ++i) copy_in_this_thread(to[i], from[i]);
    return;
  }
  const std::int64_t rows = kSerialElements / row;
  for (std::int64_t at = 0; at < to.size(0); at += rows) {
    const std::int64_t size = std::min(rows, to.size(0) - at);
    to.narrow(0, at, size).copy_(from.narrow(0, at, size));
  }
}

// values_are_finite() of pieces, for the same reason. `tensor` is on a CPU.
bool is_finite(const torch::Tensor& tensor, bool may_be_infinite) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
  if (tensor.numel() > kSerialElements && tensor.dim() > 0) {
    const std::int64_t rows =
        std::max<std::int64_t>(kSerialElements * tensor.size(0) / tensor.numel(), 1);
    for (std::int64_t at = 0; at < tensor.size(0); at += rows) {
      const std::int64_t size = std::min(rows, tensor.size(0) - at);
      const torch::Tensor part = size == 1 ? tensor[at] : tensor.narrow(0, at, size);
      if (!is_finite(part, may_be_infinite)) return false;
    }
    return true;
  }
  return values_are_finite(tensor, may_be_infinite);
}

// A lazy conjugate or negative is only a mark, which a file does not have.
torch::Tensor in_rows(const torch::Tensor& tensor) {
  const torch::Tensor here = tensor.detach().resolve_conj().resolve_neg().cpu();
  if (here.is_contiguous()) return here;
  const torch::NoGradGuard no_grad;
  const torch::Tensor rows = torch::empty(here.sizes(), here.options());
  copy_in_this_thread(rows, here);
  return rows;
}

BytePieces pieces_of(const SafetensorsPieces& pieces) {
  BytePieces all = {std::as_bytes(std::span(pieces.head.data(), pieces.head.size()))};
  all.insert(all.end(), pieces.data.begin(), pieces.data.end());
  return all;
}

StateDict checked_names(const StateDict& model, const StateDict& training) {
  StateDict named = named_for_file(training);
  StateDict all = model;
  all.insert(all.end(), named.begin(), named.end());
  require_distinct_names(all, "cannot write the checkpoint");
  return named;
}

}  // namespace

bool values_are_finite(const torch::Tensor& tensor, bool may_be_infinite) {
  const torch::NoGradGuard no_grad;
  // LibTorch has no isfinite() for types of 8 bits.
  const torch::Tensor values = tensor.element_size() == 1 ? tensor.to(torch::kFloat32) : tensor;
  return may_be_infinite ? !values.isnan().any().item<bool>()
                         : values.isfinite().all().item<bool>();
}

StateDict named_for_file(const StateDict& training) {
  StateDict state;
  for (const auto& [name, tensor] : training) {
    state.emplace_back(std::string(kTrainingPrefix) + name, tensor);
  }
  return state;
}

void require_distinct_names(const StateDict& state, const std::string& what_fails) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : state) {
    if (names.insert(name).second) continue;
    throw CheckpointError(lockstep::str(
        what_fails, ": two tensors have the name '", name,
        "'; give each its own name; for two nets, register both in one module and make each "
        "optimizer from that module's parameter names"));
  }
}

void require_storable(const StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (tensor.layout() != torch::kStrided || tensor.is_quantized() || tensor.is_meta()) {
      throw CheckpointError(lockstep::str("checkpoint: cannot store '", name, "', which is ",
                                          tensor.toString(),
                                          ", expected a dense tensor with values"));
    }
    static_cast<void>(dtype_name(tensor.scalar_type(), name));
    if (is_utf8(name)) continue;
    throw CheckpointError(lockstep::str("checkpoint: cannot store '", utf8_text(name),
                                        "', whose name is not UTF-8; rename its module"));
  }
}

FileTensors::FileTensors(const StateDict& state) {
  require_storable(state);
  for (const auto& [name, tensor] : state) {
    const torch::Tensor& plain = kept_.emplace_back(name, in_rows(tensor)).second;
    views_[name] = {
        .dtype = dtype_name(plain.scalar_type(), name),
        .shape = plain.sizes().vec(),
        .bytes = {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}};
  }
}

bool FileTensors::all_finite(const std::set<std::string>& may_be_infinite) const {
  const torch::NoGradGuard no_grad;
  return std::ranges::all_of(kept_, [&](const auto& entry) {
    return is_finite(entry.second, may_be_infinite.contains(entry.first));
  });
}

SafetensorsMetadata metadata_of(const CheckpointInfo& info) {
  SafetensorsMetadata metadata = info.settings;
  metadata["format"] = kCheckpointFormat;
  metadata["recipe"] = info.recipe;
  metadata["epoch"] = std::to_string(info.epoch);
  metadata["step"] = std::to_string(info.step);
  return metadata;
}

CheckpointContent::CheckpointContent(const StateDict& model, const StateDict& training,
                                     const CheckpointInfo& info)
    : model_tensors_(model),
      training_tensors_(checked_names(model, training)),
      model_(safetensors_pieces(model_tensors_.views(), metadata_of(info))),
      training_(safetensors_pieces(training_tensors_.views(), metadata_of(info))) {}

std::vector<CheckpointFile> CheckpointContent::files() const {
  return {{kModelFile, pieces_of(model_)}, {kTrainingFile, pieces_of(training_)}};
}

bool CheckpointContent::all_finite(const std::set<std::string>& may_be_infinite) const {
  return model_tensors_.all_finite(may_be_infinite) && training_tensors_.all_finite();
}

}  // namespace lockstep::train
