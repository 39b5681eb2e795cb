// Modules of torch::nn for images, lines and volumes: convolutions, normalisation, padding,
// pooling and resizing.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include <tests/export/modules/module_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

template <class Options>
std::vector<std::pair<const char*, Options>> convolution_options(std::int64_t channels) {
  const auto make = [channels] { return Options(channels, 4, 3); };
  return {
      {"", make()},
      {"stride(2)", make().stride(2)},
      {"padding(1)", make().padding(1)},
      {"padding(torch::kSame)", make().padding(torch::kSame)},
      {"padding(torch::kSame).dilation(2)", make().padding(torch::kSame).dilation(2)},
      {"padding(torch::kValid)", make().padding(torch::kValid)},
      {"dilation(2)", make().dilation(2)},
      {"groups(2)", make().groups(2)},
      {"bias(false)", make().bias(false)},
      {"padding(1).padding_mode(torch::kReflect)", make().padding(1).padding_mode(torch::kReflect)},
      {"padding(1).padding_mode(torch::kReplicate)",
       make().padding(1).padding_mode(torch::kReplicate)},
      {"padding(1).padding_mode(torch::kCircular)",
       make().padding(1).padding_mode(torch::kCircular)},
      {"padding(torch::kSame).padding_mode(torch::kReflect)",
       make().padding(torch::kSame).padding_mode(torch::kReflect)}};
}

template <class Options>
std::vector<std::pair<const char*, Options>> transposed_options(std::int64_t channels) {
  const auto make = [channels] { return Options(channels, 4, 3); };
  return {{"", make()},
          {"stride(2)", make().stride(2)},
          {"padding(1)", make().padding(1)},
          {"stride(2).output_padding(1)", make().stride(2).output_padding(1)},
          {"dilation(2)", make().dilation(2)},
          {"groups(2)", make().groups(2)},
          {"bias(false)", make().bias(false)}};
}

template <class Norm, class Options>
void add_batch_norm(ModuleList& list, const char* name, std::vector<std::int64_t> sizes) {
  const MakeInput input = floats(std::move(sizes));
  const auto make = [](Options options) {
    Norm norm(options);
    if (norm->running_mean.defined()) {
      norm->running_mean.normal_();
      norm->running_var.uniform_(0.5, 2);
    }
    return norm;
  };
  list.add(name, "", make(Options(3)), input);
  list.add(name, "eps(0.1)", make(Options(3).eps(0.1)), input);
  list.add(name, "affine(false)", make(Options(3).affine(false)), input);
  list.add(name, "affine(true)", make(Options(3).affine(true)), input);
  list.add(name, "track_running_stats(false)", make(Options(3).track_running_stats(false)), input);
  list.add(name, "track_running_stats(true)", make(Options(3).track_running_stats(true)), input);
}

template <class Options>
std::vector<std::pair<const char*, Options>> average_options() {
  const auto make = [] { return Options(3); };
  std::vector<std::pair<const char*, Options>> all = {
      {"", make()},
      {"stride(2)", make().stride(2)},
      {"padding(1)", make().padding(1)},
      {"ceil_mode(true)", make().stride(2).ceil_mode(true)},
      {"padding(1).ceil_mode(true)", make().stride(2).padding(1).ceil_mode(true)},
      {"padding(1).count_include_pad(false)", make().padding(1).count_include_pad(false)}};
  if constexpr (requires(Options options) { options.divisor_override(2); }) {
    all.emplace_back("divisor_override(2)", make().divisor_override(2));
    all.emplace_back("divisor_override(2).padding(1)", make().divisor_override(2).padding(1));
  }
  return all;
}

template <class Options>
std::vector<std::pair<const char*, Options>> maximum_options() {
  const auto make = [] { return Options(3); };
  return {{"", make()},
          {"stride(2)", make().stride(2)},
          {"padding(1)", make().padding(1)},
          {"dilation(2)", make().dilation(2)},
          {"ceil_mode(true)", make().stride(2).ceil_mode(true)},
          {"padding(1).ceil_mode(true)", make().stride(2).padding(1).ceil_mode(true)}};
}

}  // namespace

void add_convolution_modules(ModuleList& list) {
  for (const auto& [text, options] : convolution_options<nn::Conv1dOptions>(2)) {
    list.add("Conv1d", text, nn::Conv1d(options), floats({2, 9}));
  }
  for (const auto& [text, options] : convolution_options<nn::Conv2dOptions>(2)) {
    list.add("Conv2d", text, nn::Conv2d(options), floats({2, 8, 7}));
  }
  for (const auto& [text, options] : convolution_options<nn::Conv3dOptions>(2)) {
    list.add("Conv3d", text, nn::Conv3d(options), floats({2, 6, 5, 7}));
  }
  for (const auto& [text, options] : transposed_options<nn::ConvTranspose1dOptions>(2)) {
    list.add("ConvTranspose1d", text, nn::ConvTranspose1d(options), floats({2, 7}));
  }
  for (const auto& [text, options] : transposed_options<nn::ConvTranspose2dOptions>(2)) {
    list.add("ConvTranspose2d", text, nn::ConvTranspose2d(options), floats({2, 5, 6}));
  }
  for (const auto& [text, options] : transposed_options<nn::ConvTranspose3dOptions>(2)) {
    list.add("ConvTranspose3d", text, nn::ConvTranspose3d(options), floats({2, 4, 3, 5}));
  }
}

void add_fold_modules(ModuleList& list) {
  auto& fold =
      list.add("Fold", "", nn::Fold(nn::FoldOptions({6, 8}, 2).stride(2)), floats({12, 12}));
  fold.first_opset = 18;
  list.add("Fold", "padding(1).dilation(2)",
           nn::Fold(nn::FoldOptions({6, 8}, 2).stride(1).padding(1).dilation(2)), floats({8, 48}))
      .first_opset = 18;
  list.add("Unfold", "", nn::Unfold(nn::UnfoldOptions(2)), floats({3, 6, 8}));
  list.add("Unfold", "stride(2).padding(1).dilation(2)",
           nn::Unfold(nn::UnfoldOptions({2, 3}).stride(2).padding(1).dilation(2)),
           floats({3, 6, 8}));
}

void add_normalization_modules(ModuleList& list) {
  add_batch_norm<nn::BatchNorm1d, nn::BatchNormOptions>(list, "BatchNorm1d", {3, 5});
  add_batch_norm<nn::BatchNorm2d, nn::BatchNormOptions>(list, "BatchNorm2d", {3, 4, 5});
  add_batch_norm<nn::BatchNorm3d, nn::BatchNormOptions>(list, "BatchNorm3d", {3, 4, 2, 5});
  add_batch_norm<nn::InstanceNorm1d, nn::InstanceNormOptions>(list, "InstanceNorm1d", {3, 5});
  add_batch_norm<nn::InstanceNorm2d, nn::InstanceNormOptions>(list, "InstanceNorm2d", {3, 4, 5});
  add_batch_norm<nn::InstanceNorm3d, nn::InstanceNormOptions>(list, "InstanceNorm3d", {3, 4, 2, 5});
  list.add("LayerNorm", "", nn::LayerNorm(nn::LayerNormOptions({4, 5})), floats({3, 4, 5}));
  list.add("LayerNorm", "elementwise_affine(false).eps(0.1)",
           nn::LayerNorm(nn::LayerNormOptions({5}).elementwise_affine(false).eps(0.1)),
           floats({3, 4, 5}));
  list.add("GroupNorm", "", nn::GroupNorm(nn::GroupNormOptions(2, 6)), floats({6, 4, 5}));
  list.add("GroupNorm", "affine(false).eps(0.1)",
           nn::GroupNorm(nn::GroupNormOptions(3, 6).affine(false).eps(0.1)), floats({6}));
  const auto response = nn::LocalResponseNormOptions(3).alpha(0.2).beta(0.6).k(2);
  const char* const text = "alpha(0.2).beta(0.6).k(2)";
  list.add("LocalResponseNorm", "", nn::LocalResponseNorm(2), floats({6, 5}));
  list.add("LocalResponseNorm", text, nn::LocalResponseNorm(response), floats({6, 4, 5}));
  list.add("LocalResponseNorm", text, nn::LocalResponseNorm(response), floats({6, 2, 4, 5}));
  list.add("CrossMapLRN2d", "", nn::CrossMapLRN2d(3), floats({6, 4, 5}));
}

void add_padding_modules(ModuleList& list) {
  const MakeInput line = floats({2, 6});
  const MakeInput image = floats({2, 6, 5});
  const MakeInput volume = floats({2, 4, 6, 5});
  list.add("ZeroPad1d", "", nn::ZeroPad1d(nn::ZeroPad1dOptions({1, 2})), line);
  list.add("ZeroPad2d", "", nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 2, 0, 3})), image);
  list.add("ZeroPad2d", "a negative padding", nn::ZeroPad2d(nn::ZeroPad2dOptions({-1, 2, 0, -3})),
           image);
  list.add("ZeroPad3d", "", nn::ZeroPad3d(nn::ZeroPad3dOptions({1, 2, 0, 3, 1, 1})), volume);
  list.add("ConstantPad1d", "", nn::ConstantPad1d(nn::ConstantPad1dOptions({1, 2}, 0.5)), line);
  list.add("ConstantPad2d", "", nn::ConstantPad2d(nn::ConstantPad2dOptions({1, 2, 0, 3}, -2)),
           image);
  list.add("ConstantPad3d", "",
           nn::ConstantPad3d(nn::ConstantPad3dOptions({1, 2, 0, 3, 1, 1}, 0.5)), volume);
  list.add("ReflectionPad1d", "", nn::ReflectionPad1d(nn::ReflectionPad1dOptions({1, 2})), line);
  list.add("ReflectionPad2d", "", nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 0, 3})),
           image);
  list.add("ReflectionPad3d", "",
           nn::ReflectionPad3d(nn::ReflectionPad3dOptions({1, 2, 0, 3, 1, 1})), volume);
  list.add("ReplicationPad1d", "", nn::ReplicationPad1d(nn::ReplicationPad1dOptions({1, 2})), line);
  list.add("ReplicationPad2d", "", nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 0, 3})),
           image);
  list.add("ReplicationPad3d", "",
           nn::ReplicationPad3d(nn::ReplicationPad3dOptions({1, 2, 0, 3, 1, 1})), volume);
}

void add_window_pooling_modules(ModuleList& list) {
  const MakeInput line = floats({2, 10});
  const MakeInput image = floats({2, 8, 7});
  const MakeInput volume = floats({2, 6, 7, 8});
  for (const auto& [text, options] : average_options<nn::AvgPool1dOptions>()) {
    list.add("AvgPool1d", text, nn::AvgPool1d(options), line);
  }
  for (const auto& [text, options] : average_options<nn::AvgPool2dOptions>()) {
    list.add("AvgPool2d", text, nn::AvgPool2d(options), image);
  }
  for (const auto& [text, options] : average_options<nn::AvgPool3dOptions>()) {
    list.add("AvgPool3d", text, nn::AvgPool3d(options), volume);
  }
  for (const auto& [text, options] : maximum_options<nn::MaxPool1dOptions>()) {
    list.add("MaxPool1d", text, nn::MaxPool1d(options), line);
  }
  for (const auto& [text, options] : maximum_options<nn::MaxPool2dOptions>()) {
    list.add("MaxPool2d", text, nn::MaxPool2d(options), image);
  }
  for (const auto& [text, options] : maximum_options<nn::MaxPool3dOptions>()) {
    list.add("MaxPool3d", text, nn::MaxPool3d(options), volume);
  }
  list.add_call(
      "MaxPool2d", "forward_with_indices()", nn::MaxPool2d(2),
      [](nn::MaxPool2d& net, const Tensor& x) { return net->forward_with_indices(x); }, image);
  list.add("LPPool1d", "", nn::LPPool1d(nn::LPPool1dOptions(2, 3)), line);
  list.add("LPPool2d", "", nn::LPPool2d(nn::LPPool2dOptions(2, 3)), image);
  list.add("LPPool2d", "stride(2).ceil_mode(true)",
           nn::LPPool2d(nn::LPPool2dOptions(3, {2, 3}).stride(2).ceil_mode(true)), image);
  list.add("LPPool3d", "", nn::LPPool3d(nn::LPPool3dOptions(2, 3)), volume);
}

void add_other_pooling_modules(ModuleList& list) {
  const MakeInput line = floats({2, 10});
  const MakeInput image = floats({2, 8, 7});
  const MakeInput volume = floats({2, 6, 7, 8});
  for (const std::int64_t size : {1, 3, 5}) {
    const char* const text = size == 1   ? "output_size 1"
                             : size == 3 ? "output_size 3"
                                         : "output_size 5";
    list.add("AdaptiveAvgPool1d", text, nn::AdaptiveAvgPool1d(size), line);
    list.add("AdaptiveAvgPool2d", text, nn::AdaptiveAvgPool2d(size), image);
    list.add("AdaptiveAvgPool3d", text, nn::AdaptiveAvgPool3d(size), volume);
    list.add("AdaptiveMaxPool1d", text, nn::AdaptiveMaxPool1d(size), line);
    list.add("AdaptiveMaxPool2d", text, nn::AdaptiveMaxPool2d(size), image);
    list.add("AdaptiveMaxPool3d", text, nn::AdaptiveMaxPool3d(size), volume);
  }
  list.add("AdaptiveAvgPool2d", "output_size {nullopt, 12}",
           nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({std::nullopt, 12})), image);
  list.add_call(
      "AdaptiveMaxPool2d", "forward_with_indices()", nn::AdaptiveMaxPool2d(2),
      [](nn::AdaptiveMaxPool2d& net, const Tensor& x) { return net->forward_with_indices(x); },
      image);
  const auto undone = [&list](const char* name, auto pool, auto unpool, const MakeInput& input) {
    list.add_call(
        name, "", unpool,
        [pool](auto& net, const Tensor& x) mutable {
          const auto [values, indices] = pool->forward_with_indices(x);
          return net->forward(values, indices);
        },
        input);
  };
  undone("MaxUnpool1d", nn::MaxPool1d(2), nn::MaxUnpool1d(2), line);
  undone("MaxUnpool2d", nn::MaxPool2d(2), nn::MaxUnpool2d(2), floats({2, 8, 6}));
  undone("MaxUnpool3d", nn::MaxPool3d(2), nn::MaxUnpool3d(2), floats({2, 6, 4, 8}));
  list.add("FractionalMaxPool2d", "",
           nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)), image);
  list.add("FractionalMaxPool3d", "",
           nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(3)), volume);
}

void add_image_modules(ModuleList& list) {
  list.add("PixelShuffle", "", nn::PixelShuffle(2), floats({8, 3, 4}));
  list.add("PixelUnshuffle", "", nn::PixelUnshuffle(2), floats({2, 6, 4}));
  const auto upsample = [&](const char* text, auto mode, std::size_t sides,
                            std::optional<bool> corners) {
    std::vector<std::int64_t> shape = {2, 5, 7, 6};
    shape.resize(sides + 1);
    auto by_factor = nn::UpsampleOptions().mode(mode).scale_factor(std::vector<double>(sides, 1.7));
    auto to_size = nn::UpsampleOptions().mode(mode).size(std::vector<std::int64_t>(sides, 9));
    if (corners) {
      by_factor.align_corners(*corners);
      to_size.align_corners(*corners);
    }
    const std::string mode_text = text;
    list.add("Upsample", "", nn::Upsample(by_factor), floats(shape)).module_options =
        "scale_factor(1.7)." + mode_text;
    list.add("Upsample", "", nn::Upsample(to_size), floats(shape)).module_options =
        "size(9)." + mode_text;
  };
  for (const std::size_t sides : {1, 2, 3}) {
    upsample("mode(torch::kNearest)", torch::kNearest, sides, std::nullopt);
  }
  upsample("mode(torch::kLinear)", torch::kLinear, 1, false);
  upsample("mode(torch::kLinear).align_corners(true)", torch::kLinear, 1, true);
  upsample("mode(torch::kBilinear)", torch::kBilinear, 2, false);
  upsample("mode(torch::kBilinear).align_corners(true)", torch::kBilinear, 2, true);
  upsample("mode(torch::kBicubic)", torch::kBicubic, 2, false);
  upsample("mode(torch::kBicubic).align_corners(true)", torch::kBicubic, 2, true);
  upsample("mode(torch::kTrilinear)", torch::kTrilinear, 3, false);
  upsample("mode(torch::kTrilinear).align_corners(true)", torch::kTrilinear, 3, true);
}

}  // namespace lockstep::testing_support
