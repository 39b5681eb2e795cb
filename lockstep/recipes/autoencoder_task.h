// Training an auto-encoder: the images are what its output is compared with.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/train/task/standard_metrics.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

/// Trains by the mean squared error between images and output, in float32. Evaluations have it as
/// their loss, and the peak signal-to-noise ratio as "psnr".
class AutoencoderTask final : public OutputTask {
 public:
  /// Shares the module of `net`. `normalize` is what has made the images of bytes: for pictures,
  /// and for the range of the noise ratio, whose images must have one deviation for all channels.
  AutoencoderTask(Autoencoder net, Normalize normalize);

  torch::nn::Module& module() override { return *net_; }
  torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const override;
  torch::Tensor targets(const Batch& batch) const override { return batch.images; }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& images) const override;
  void evaluate(const torch::Tensor& output, const torch::Tensor& images,
                Metrics& metrics) const override;
  std::vector<MetricPtr> metrics() override { return {psnr_}; }

  /// "reconstructions": the images side by side, and below each what the net makes of it, with
  /// kPictureGap pixels of white between them. Images of more than kPictureSide pixels a side are
  /// shown reduced to that.
  std::optional<RunPicture> picture(const Batch& samples) override;
  static constexpr std::int64_t kPictureGap = 4;
  static constexpr std::int64_t kPictureSide = 256;

 private:
  std::shared_ptr<AutoencoderImpl> net_;
  Normalize normalize_;
  MetricPtr psnr_;
};

}  // namespace lockstep
