// Options for how a Loader makes batches.
#pragma once

#include <c10/core/Device.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/mix_choice.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

/// The engine that executes the list of operators.
enum class LoaderEngineKind {
  kNative,  ///< This library's CPU engine: one pass from bytes to batch (augment/native.h).
  kCuda,    ///< This library's GPU engine: holds the data set on the GPU; one kernel makes a batch.
  /// NVIDIA DALI, on CPU or GPU, after `make dali`. With 0 threads it still uses one of its own.
  kDali,
};

struct LOCKSTEP_API LoaderOptions {
  std::int64_t batch_size = 1;  ///< Images per batch of this rank.
  int threads = 0;             ///< Threads that prepare batches. With 0, next() prepares each batch
                               ///< itself; for a GPU, the thread that copies does.
  int prefetch = 3;            ///< Batches prepared ahead (0 without threads).
  bool drop_last = false;      ///< Drop a last batch that is smaller than batch_size.
  bool channels_last = false;  ///< Images lie in memory as NHWC (the shape stays NCHW).
  torch::ScalarType dtype = torch::kFloat32;  ///< Images: kFloat32, kBFloat16 or kFloat16.
  std::uint64_t seed = 0;                     ///< Seed of the augmentation's random choices.
  LoaderEngineKind engine = LoaderEngineKind::kNative;
  /// The device of the batches. For a GPU, batches are made in pinned memory and copied ahead of
  /// their use, on a stream of the loader's own.
  torch::Device device = torch::kCPU;
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  /// Mixes the images of each batch with each other (MixUp, CutMix): labels become probabilities.
  /// next() mixes on the device, with any engine.
  BatchMix mix{};
  /// Processors to which the loader's threads are pinned. If empty, they are those of the thread
  /// that makes the loader; on a rank that a launcher has pinned, these are the rank's own.
  std::vector<int> cpus{};
};

/// "native", "cuda" or "dali".
LOCKSTEP_API std::string to_string(LoaderEngineKind kind);
/// The names that parse_loader_engine() accepts.
LOCKSTEP_API const std::vector<std::string>& loader_engine_names();
/// The inverse of to_string(). Throws a ConfigError for any other name.
LOCKSTEP_API LoaderEngineKind parse_loader_engine(const std::string& name);

}  // namespace lockstep
