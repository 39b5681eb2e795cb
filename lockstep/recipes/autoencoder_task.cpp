#include <lockstep/recipes/autoencoder_task.h>

#include <algorithm>
#include <utility>

#include <lockstep/recipes/tensor_picture.h>
#include <lockstep/report/canvas.h>

namespace lockstep::recipes {
namespace {

constexpr report::Color kWhite = {255, 255, 255};

// Scales `images` down so that the longer side has at most `side` pixels; each pixel is a mean.
torch::Tensor reduced_to(const torch::Tensor& images, std::int64_t side) {
  const std::int64_t longer = std::max(images.size(2), images.size(3));
  if (longer <= side) return images;
  const auto reduced = [&](std::int64_t pixels) {
    return std::max<std::int64_t>(pixels * side / longer, 1);
  };
  return at::adaptive_avg_pool2d(images.to(torch::kFloat32),
                                 {reduced(images.size(2)), reduced(images.size(3))});
}

}  // namespace

AutoencoderTask::AutoencoderTask(std::shared_ptr<torch::nn::Module> module, Forward forward,
                                 Normalize normalize, Cut cut)
    : module_(std::move(module)),
      forward_(std::move(forward)),
      cut_(std::move(cut)),
      normalize_(std::move(normalize)),
      psnr_(std::make_shared<Psnr>(1 / normalize_.std.at(0))) {}

std::vector<pipeline::StageModule> AutoencoderTask::stages(int count) const {
  return cut_ ? cut_(count) : OutputTask::stages(count);
}

torch::Tensor AutoencoderTask::loss(const torch::Tensor& output,
                                    const torch::Tensor& images) const {
  return at::mse_loss(output.to(torch::kFloat32), images.to(torch::kFloat32));
}

void AutoencoderTask::evaluate(const torch::Tensor& output, const torch::Tensor& images,
                               Metrics& metrics) const {
  metrics.add("loss", loss(output, images), images.size(0));
  metrics.update(output.to(torch::kFloat32), images.to(torch::kFloat32));
}

std::optional<RunPicture> AutoencoderTask::picture(const Batch& samples) {
  const torch::Tensor images = reduced_to(samples.images, kPictureSide);
  const torch::Tensor outputs = reduced_to(forward(*module_, samples.images), kPictureSide);
  const std::int64_t height = images.size(2);
  const std::int64_t width = images.size(3);
  report::Canvas canvas(2 * height + kPictureGap,
                        samples.size * (width + kPictureGap) - kPictureGap, kWhite);
  for (std::int64_t i = 0; i < samples.size; ++i) {
    const std::int64_t left = i * (width + kPictureGap);
    canvas.draw({left, 0}, picture_of(images[i], normalize_));
    canvas.draw({left, height + kPictureGap}, picture_of(outputs[i], normalize_));
  }
  const report::Picture& sheet = canvas.picture();
  return RunPicture{
      .name = "reconstructions", .width = sheet.width, .height = sheet.height, .rgb = sheet.rgb};
}

}  // namespace lockstep::recipes
