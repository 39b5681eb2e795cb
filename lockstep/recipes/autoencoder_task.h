// Trains an auto-encoder, whose output is compared with its input images.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/train/task/standard_metrics.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

/// Trains with the mean squared error between images and output, in float32. Evaluations report it
/// as the loss, and the peak signal-to-noise ratio as "psnr".
class AutoencoderTask final : public OutputTask {
 public:
  /// Divides the task's module into stages.
  using Cut = std::function<std::vector<pipeline::StageModule>(int stages)>;
  /// Calls a module of the type of the task's module.
  using Forward = std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;

  /// Shares the module of `net`, a module holder whose forward() returns images of the shape that
  /// it gets. `normalize` is the transform that made the images from bytes. It is used for pictures
  /// and for the value range in the noise ratio, which requires the same standard deviation for all
  /// channels. Without `cut`, the task cannot be divided into stages.
  template <class ModuleHolder>
  AutoencoderTask(ModuleHolder net, Normalize normalize, Cut cut = {})
      : AutoencoderTask(
            net.ptr(),
            [](torch::nn::Module& module, const torch::Tensor& images) -> torch::Tensor {
              return dynamic_cast<typename ModuleHolder::ContainedType&>(module).forward(images);
            },
            std::move(normalize), std::move(cut)) {}
  AutoencoderTask(std::shared_ptr<torch::nn::Module> module, Forward forward, Normalize normalize,
                  Cut cut);

  torch::nn::Module& module() override { return *module_; }
  torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const override {
    return forward_(module, images);
  }
  std::vector<pipeline::StageModule> stages(int count) const override;
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
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
  Cut cut_;
  Normalize normalize_;
  MetricPtr psnr_;
};

}  // namespace lockstep::recipes
