// Trains an auto-encoder, whose output is compared with its input images.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/train/task/standard_metrics.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

/// Trains with the mean squared error between images and output, in float32. Evaluations report it
/// as the loss, and the peak signal-to-noise ratio as "psnr".
class AutoencoderTask final : public OutputTask {
 public:
  /// Shares the module of `net`. `normalize` is the transform that made the images from bytes. It
  /// is used for pictures and for the value range in the noise ratio, which requires the same
  /// standard deviation for all channels.
  AutoencoderTask(Autoencoder net, Normalize normalize);

  torch::nn::Module& module() override { return *net_; }
  torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const override;
  torch::Tensor targets(const Batch& batch) const override { return batch.images; }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& images) const override;
  void evaluate(const torch::Tensor& output, const torch::Tensor& images,
                Metrics& metrics) const override;
  std::vector<MetricPtr> metrics() override { return {psnr_}; }

  /// "reconstructions": the images side by side, each above the net's output for it, separated by
  /// kPictureGap white pixels. Images larger than kPictureSide pixels a side are scaled down to
  /// that.
  std::optional<RunPicture> picture(const Batch& samples) override;
  static constexpr std::int64_t kPictureGap = 4;
  static constexpr std::int64_t kPictureSide = 256;

 private:
  std::shared_ptr<AutoencoderImpl> net_;
  Normalize normalize_;
  MetricPtr psnr_;
};

}  // namespace lockstep::recipes
