// How a Loader makes batches.
#pragma once

#include <c10/core/Device.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/augment/mix_choice.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

/// What executes the list of operators.
enum class LoaderEngineKind {
  kNative,  ///< This library's, on the CPU: one pass from bytes to batch (augment/native.h).
  kCuda,    ///< This library's, on the GPU: the data set stays there, one kernel makes a batch.
  /// NVIDIA DALI, on CPU or GPU, after `make dali`; without threads it uses one of its own.
  kDali,
};

struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< Images per batch of this rank.
  int threads = 0;             ///< Threads that prepare batches; 0: next() does it itself, or for a
                               ///< GPU the thread that copies.
  int prefetch = 3;            ///< Batches prepared ahead; without threads, none are.
  bool drop_last = false;      ///< Drop a last batch that is smaller than batch_size.
  bool channels_last = false;  ///< Images lie in memory as NHWC (the shape stays NCHW).
  torch::ScalarType dtype = torch::kFloat32;  ///< Images: kFloat32, kBFloat16 or kFloat16.
  std::uint64_t seed = 0;                     ///< Seed of the augmentation's random choices.
  LoaderEngineKind engine = LoaderEngineKind::kNative;
  /// Where batches end up. For a GPU they are made in pinned memory and copied on a stream of the
  /// loader's, ahead of their use.
  torch::Device device = torch::kCPU;
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  /// Mixes the images of each batch with each other (MixUp, CutMix): labels become probabilities.
  /// next() does it, on the device, with any engine.
  BatchMix mix{};
  /// Processors of the loader's threads. Empty: those of the thread that makes the loader, which
  /// for a rank that a launcher has pinned are the rank's own.
  std::vector<int> cpus{};
};

/// "native", "cuda", "dali".
std::string to_string(LoaderEngineKind kind);
const std::vector<std::string>& loader_engine_names();
/// ConfigError for another word.
LoaderEngineKind parse_loader_engine(const std::string& name);

}  // namespace lockstep
