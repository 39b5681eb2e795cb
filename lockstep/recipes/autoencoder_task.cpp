#include <lockstep/recipes/autoencoder_task.h>

#include <utility>

#include <lockstep/recipes/tensor_picture.h>
#include <lockstep/report/canvas.h>

namespace lockstep {
namespace {

constexpr Color kWhite = {255, 255, 255};

}  // namespace

AutoencoderTask::AutoencoderTask(Autoencoder net, Normalize normalize)
    : net_(net.ptr()),
      normalize_(std::move(normalize)),
      psnr_(std::make_shared<Psnr>(1 / normalize_.std.at(0))) {}

torch::Tensor AutoencoderTask::forward(torch::nn::Module& module,
                                       const torch::Tensor& images) const {
  return dynamic_cast<AutoencoderImpl&>(module).forward(images);
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
  const torch::Tensor outputs = forward(*net_, samples.images);
  const std::int64_t height = samples.images.size(2);
  const std::int64_t width = samples.images.size(3);
  Canvas canvas(2 * height + kPictureGap, samples.size * (width + kPictureGap) - kPictureGap,
                kWhite);
  for (std::int64_t i = 0; i < samples.size; ++i) {
    const std::int64_t left = i * (width + kPictureGap);
    canvas.draw({left, 0}, picture_of(samples.images[i], normalize_));
    canvas.draw({left, height + kPictureGap}, picture_of(outputs[i], normalize_));
  }
  const Picture& sheet = canvas.picture();
  return RunPicture{
      .name = "reconstructions", .width = sheet.width, .height = sheet.height, .rgb = sheet.rgb};
}

}  // namespace lockstep
