#include <lockstep/data/datasets/tensor_dataset.h>

#include <memory>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

class TensorSource final : public ImageSource {
 public:
  TensorSource(torch::Tensor images, torch::Tensor labels)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        first_{images_.const_data_ptr<std::uint8_t>(),
               {images_.size(1), images_.size(2), images_.size(3)},
               images_.stride(1),
               images_.stride(2),
               images_.stride(3)},
        image_stride_(images_.stride(0)),
        label_(labels_.const_data_ptr<std::int64_t>()) {}

  std::int64_t size() const override { return labels_.numel(); }
  void read(std::int64_t index, ImageReader& reader) const override {
    ImageView image = first_;
    image.pixels += index * image_stride_;
    reader.show(image);
  }
  std::int64_t label(std::int64_t index) const override { return label_[index]; }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
  ImageView first_;
  std::int64_t image_stride_;
  const std::int64_t* label_;
};

std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return lockstep::str(torch::toString(tensor.scalar_type()), " ", tensor.sizes(), " on ",
                       tensor.device());
}

void check_tensors(const torch::Tensor& images, const torch::Tensor& labels) {
  if (!images.defined() || images.scalar_type() != torch::kUInt8 || images.dim() != 4 ||
      !images.device().is_cpu()) {
    throw ConfigError(lockstep::str("image_dataset: images must be Byte [N, C, H, W] on cpu, got ",
                                    describe(images)));
  }
  if (!images.is_contiguous() && !images.is_contiguous(torch::MemoryFormat::ChannelsLast)) {
    throw ConfigError(lockstep::str("image_dataset: images must be contiguous, got strides ",
                                    images.strides(), "; call contiguous()"));
  }
  if (!labels.defined() || labels.scalar_type() != torch::kInt64 || labels.dim() != 1 ||
      labels.size(0) != images.size(0) || !labels.device().is_cpu() || !labels.is_contiguous()) {
    throw ConfigError(lockstep::str("image_dataset: labels must be contiguous Long [",
                                    images.size(0), "] on cpu, got ", describe(labels)));
  }
}

}  // namespace

ImageDataset image_dataset(const torch::Tensor& images, const torch::Tensor& labels,
                           std::int64_t num_classes, std::string name,
                           std::vector<std::string> class_names) {
  check_tensors(images, labels);
  const auto* label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] < 0 || label[i] >= num_classes) {
      throw ConfigError(lockstep::str("image_dataset: labels[", i, "] is ", label[i],
                                      ", expected 0 to ", num_classes - 1));
    }
  }
  return ImageDataset(std::move(name), {images.size(1), images.size(2), images.size(3)},
                      num_classes,
                      std::make_shared<const TensorSource>(images.detach(), labels.detach()),
                      std::move(class_names));
}

}  // namespace lockstep
