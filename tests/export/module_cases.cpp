// Every module of torch::nn, with each of its options.
#include <limits>
#include <tuple>
#include <utility>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/modules/upsampling.h>

#include <tests/export/export_case.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

class ModuleList {
 public:
  /// `inputs` are the arguments of forward().
  template <class Holder, class... Inputs>
  ExportCase& add(const char* module, const char* options, Holder net, Inputs... inputs) {
    return add_call(
        module, options, net,
        [](Holder& called, const auto&... arguments) { return called->forward(arguments...); },
        std::move(inputs)...);
  }

  /// `call` is given the module and the inputs.
  template <class Holder, class Call, class... Inputs>
  ExportCase& add_call(const char* module, const char* options, Holder net, Call call,
                       Inputs... inputs) {
    ExportCase each{.name = std::string(module) + "_" + std::to_string(cases_.size()),
                    .op = module,
                    .module = net.ptr(),
                    .inputs = {MakeInput(std::move(inputs))...},
                    .module_options = options,
                    .adds_terms = true};
    each.forward = [net, call](const Tensors& x) mutable {
      return called(net, call, x, std::make_index_sequence<sizeof...(Inputs)>());
    };
    cases_.push_back(std::move(each));
    return cases_.back();
  }

  std::vector<ExportCase> take() { return std::move(cases_); }

 private:
  template <class Holder, class Call, std::size_t... I>
  static Tensors called(Holder& net, Call& call, const Tensors& x, std::index_sequence<I...>) {
    Tensors outputs;
    detail::append_outputs(call(net, x[I]...), outputs);
    return outputs;
  }

  std::vector<ExportCase> cases_;
};

// Inputs with the batch in the second dimension, as sequences have it.
MakeInput sequence(std::int64_t steps, std::int64_t width) {
  return [=](std::int64_t batch) { return torch::randn({steps, batch, width}); };
}

ExportCase& with_batch_second(ExportCase& each) {
  each.options.batch_dimensions.assign(each.inputs.size(), 1);
  return each;
}

void add_linear_modules(ModuleList& list) {
  list.add("Identity", "", nn::Identity(), floats({4}));
  list.add("Linear", "", nn::Linear(4, 5), floats({4}));
  list.add("Linear", "bias(false)", nn::Linear(nn::LinearOptions(4, 5).bias(false)),
           floats({3, 4}));
  list.add("Flatten", "", nn::Flatten(), floats({3, 4, 2}));
  list.add("Flatten", "start_dim(2).end_dim(-1)",
           nn::Flatten(nn::FlattenOptions().start_dim(2).end_dim(-1)), floats({3, 4, 2}));
  list.add("Unflatten", "", nn::Unflatten(nn::UnflattenOptions(1, {2, 3})), floats({6, 2}));
  list.add("Bilinear", "", nn::Bilinear(4, 5, 3), floats({4}), floats({5}));
  list.add("Bilinear", "bias(false)", nn::Bilinear(nn::BilinearOptions(4, 5, 3).bias(false)),
           floats({2, 4}), floats({2, 5}));
  list.add("Sequential", "", nn::Sequential(nn::Linear(4, 5), nn::ReLU(), nn::Linear(5, 2)),
           floats({4}));
  list.add_call(
      "ModuleList", "", nn::ModuleList(nn::Linear(4, 5), nn::Linear(5, 2)),
      [](nn::ModuleList& net, const Tensor& x) {
        return net->at<nn::LinearImpl>(1).forward(net->at<nn::LinearImpl>(0).forward(x));
      },
      floats({4}));
  list.add_call(
      "ParameterList", "", nn::ParameterList(torch::randn({4}), torch::randn({4})),
      [](nn::ParameterList& net, const Tensor& x) { return x * net[0] + net[1]; }, floats({4}));
  const nn::Linear first(4, 5);
  const nn::Linear second(5, 2);
  const std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>> layers = {
      {"first", first.ptr()}, {"second", second.ptr()}};
  list.add_call(
      "ModuleDict", "", nn::ModuleDict(layers),
      [](nn::ModuleDict& net, const Tensor& x) {
        return net->at<nn::LinearImpl>("second").forward(
            net->at<nn::LinearImpl>("first").forward(x));
      },
      floats({4}));
  nn::ParameterDict parameters;
  parameters->insert("scale", torch::randn({4}));
  list.add_call(
      "ParameterDict", "", parameters,
      [](nn::ParameterDict& net, const Tensor& x) { return x * net->get("scale"); }, floats({4}));
  list.add("Functional", "", nn::Functional([](const Tensor& x) { return x.relu(); }), floats({4}));
}

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

void add_dropout_modules(ModuleList& list) {
  list.add("Dropout", "", nn::Dropout(0.3), floats({4}));
  list.add_call(
      "Dropout", "inplace(true)", nn::Dropout(nn::DropoutOptions(0.3).inplace(true)),
      [](nn::Dropout& net, const Tensor& x) { return net->forward(x + 1); }, floats({4}));
  list.add("Dropout2d", "", nn::Dropout2d(0.3), floats({3, 4, 4}));
  list.add("Dropout3d", "", nn::Dropout3d(0.3), floats({3, 2, 4, 4}));
  list.add("AlphaDropout", "", nn::AlphaDropout(0.3), floats({4}));
  list.add("FeatureAlphaDropout", "", nn::FeatureAlphaDropout(0.3), floats({3, 4}));
}

void add_embedding_modules(ModuleList& list) {
  const MakeInput words = integers(1, 10, {5});
  list.add("Embedding", "", nn::Embedding(10, 4), words);
  list.add("Embedding", "padding_idx(0)", nn::Embedding(nn::EmbeddingOptions(10, 4).padding_idx(0)),
           words);
  list.add("Embedding", "max_norm(1)", nn::Embedding(nn::EmbeddingOptions(10, 4).max_norm(1)),
           words);
  for (const bool sum : {true, false}) {
    auto options = nn::EmbeddingBagOptions(10, 4);
    if (sum) options.mode(torch::kSum);
    list.add("EmbeddingBag", sum ? "mode(torch::kSum)" : "", nn::EmbeddingBag(options), words);
  }
  list.add("EmbeddingBag", "mode(torch::kMax)",
           nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kMax)), words);
}

void add_distance_modules(ModuleList& list) {
  using Similarity = nn::CosineSimilarityOptions;
  using Distance = nn::PairwiseDistanceOptions;
  list.add("CosineSimilarity", "", nn::CosineSimilarity(), floats({5}), floats({5}));
  list.add("CosineSimilarity", "dim(2).eps(1e-3)",
           nn::CosineSimilarity(Similarity().dim(2).eps(1e-3)), floats({3, 5}), floats({1, 5}));
  list.add("PairwiseDistance", "", nn::PairwiseDistance(), floats({5}), floats({5}));
  list.add("PairwiseDistance", "p(1).eps(1e-3)", nn::PairwiseDistance(Distance().p(1).eps(1e-3)),
           floats({5}), floats({5}));
  list.add("PairwiseDistance", "p(3).keepdim(true)",
           nn::PairwiseDistance(Distance().p(3).keepdim(true)), floats({5}), floats({5}));
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

// The options that RNN, LSTM and GRU share.
template <class Net, class Options>
void add_recurrent_options(ModuleList& list, const char* name) {
  const auto make = [] { return Options(3, 4); };
  with_batch_second(list.add(name, "", Net(make()), sequence(5, 3)));
  list.add(name, "batch_first(true)", Net(make().batch_first(true)), floats({5, 3}));
  const std::vector<std::pair<const char*, Options>> all = {
      {"num_layers(2)", make().num_layers(2)},
      {"num_layers(2).dropout(0.5)", make().num_layers(2).dropout(0.5)},
      {"bias(false)", make().bias(false)},
      {"bidirectional(true)", make().bidirectional(true)},
      {"num_layers(2).bidirectional(true)", make().num_layers(2).bidirectional(true)}};
  for (const auto& [text, options] : all) {
    with_batch_second(list.add(name, text, Net(options), sequence(5, 3)));
  }
}

void add_recurrent_modules(ModuleList& list) {
  add_recurrent_options<nn::RNN, nn::RNNOptions>(list, "RNN");
  add_recurrent_options<nn::LSTM, nn::LSTMOptions>(list, "LSTM");
  add_recurrent_options<nn::GRU, nn::GRUOptions>(list, "GRU");
  with_batch_second(list.add("RNN", "nonlinearity(torch::kReLU)",
                             nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU)),
                             sequence(5, 3)));
  with_batch_second(list.add("RNN", "a given state", nn::RNN(nn::RNNOptions(3, 4)), sequence(5, 3),
                             sequence(1, 4)));
  with_batch_second(list.add("GRU", "a given state", nn::GRU(nn::GRUOptions(3, 4)), sequence(5, 3),
                             sequence(1, 4)));
  with_batch_second(list.add_call(
      "LSTM", "a given state", nn::LSTM(nn::LSTMOptions(3, 4)),
      [](nn::LSTM& net, const Tensor& x, const Tensor& hidden, const Tensor& cell) {
        return net->forward(x, std::make_tuple(hidden, cell));
      },
      sequence(5, 3), sequence(1, 4), sequence(1, 4)));
  with_batch_second(list.add("LSTM", "proj_size(2)", nn::LSTM(nn::LSTMOptions(3, 4).proj_size(2)),
                             sequence(5, 3)));
  for (const bool bias : {true, false}) {
    const char* const text = bias ? "" : "bias(false)";
    list.add("RNNCell", text, nn::RNNCell(nn::RNNCellOptions(3, 4).bias(bias)), floats({3}));
    list.add("LSTMCell", text, nn::LSTMCell(nn::LSTMCellOptions(3, 4).bias(bias)), floats({3}));
    list.add("GRUCell", text, nn::GRUCell(nn::GRUCellOptions(3, 4).bias(bias)), floats({3}));
  }
  list.add("RNNCell", "nonlinearity(torch::kReLU)",
           nn::RNNCell(nn::RNNCellOptions(3, 4).nonlinearity(torch::kReLU)), floats({3}));
  list.add("RNNCell", "a given state", nn::RNNCell(3, 4), floats({3}), floats({4}));
  list.add("GRUCell", "a given state", nn::GRUCell(3, 4), floats({3}), floats({4}));
  list.add_call(
      "LSTMCell", "a given state", nn::LSTMCell(3, 4),
      [](nn::LSTMCell& net, const Tensor& x, const Tensor& hidden, const Tensor& cell) {
        return net->forward(x, std::make_tuple(hidden, cell));
      },
      floats({3}), floats({4}), floats({4}));
}

void add_attention_options(ModuleList& list) {
  const auto make = [] { return nn::MultiheadAttentionOptions(8, 2); };
  const std::vector<std::pair<const char*, nn::MultiheadAttentionOptions>> all = {
      {"", make()},
      {"bias(false)", make().bias(false)},
      {"dropout(0.5)", make().dropout(0.5)},
      {"add_bias_kv(true)", make().add_bias_kv(true)},
      {"add_zero_attn(true)", make().add_zero_attn(true)}};
  for (const auto& [text, options] : all) {
    with_batch_second(list.add("MultiheadAttention", text, nn::MultiheadAttention(options),
                               sequence(4, 8), sequence(5, 8), sequence(5, 8)));
  }
  // In C++, keys and values must have the same width.
  with_batch_second(list.add("MultiheadAttention", "kdim(6).vdim(6)",
                             nn::MultiheadAttention(make().kdim(6).vdim(6)), sequence(4, 8),
                             sequence(5, 6), sequence(5, 6)));
  // In each second sample all keys are padding: LibTorch gives NaN, too.
  auto& padded = with_batch_second(list.add_call(
      "MultiheadAttention", "a key_padding_mask", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x, const Tensor& padding) {
        return net->forward(x, x, x, padding);
      },
      sequence(4, 8),
      [](std::int64_t batch) {
        Tensor padding = torch::rand({batch, 4}) > 0.6;
        for (std::int64_t i = 1; i < batch; i += 2) padding[i].fill_(true);
        padding.slice(0, 0, batch, 2).slice(1, 0, 1).fill_(false);
        return padding;
      }));
  padded.options.batch_dimensions = {1, 0};
  with_batch_second(list.add_call(
      "MultiheadAttention", "an attn_mask", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x) {
        const double hidden = -std::numeric_limits<double>::infinity();
        const Tensor mask = torch::full({4, 4}, hidden).triu(1);
        return net->forward(x, x, x, {}, true, mask);
      },
      sequence(4, 8)));
  with_batch_second(list.add_call(
      "MultiheadAttention", "need_weights = false", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x) {
        return std::get<0>(net->forward(x, x, x, {}, false));
      },
      sequence(4, 8)));
}

void add_transformer_modules(ModuleList& list) {
  using LayerOptions = nn::TransformerEncoderLayerOptions;
  using DecoderOptions = nn::TransformerDecoderLayerOptions;
  const MakeInput x = sequence(4, 8);
  add_attention_options(list);
  for (const bool gelu : {false, true}) {
    const char* const text = gelu ? "activation(torch::kGELU)" : "";
    auto encoder = LayerOptions(8, 2).dim_feedforward(16);
    auto decoder = DecoderOptions(8, 2).dim_feedforward(16);
    if (gelu) {
      encoder.activation(torch::kGELU);
      decoder.activation(torch::kGELU);
    }
    with_batch_second(
        list.add("TransformerEncoderLayer", text, nn::TransformerEncoderLayer(encoder), x));
    with_batch_second(list.add("TransformerDecoderLayer", text,
                               nn::TransformerDecoderLayer(decoder), x, sequence(5, 8)));
  }
  const auto encoder = LayerOptions(8, 2).dim_feedforward(16);
  const auto decoder = DecoderOptions(8, 2).dim_feedforward(16);
  with_batch_second(list.add("TransformerEncoder", "",
                             nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2)), x));
  with_batch_second(list.add("TransformerDecoder", "",
                             nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder, 2)), x,
                             sequence(5, 8)));
  with_batch_second(
      list.add("Transformer", "", nn::Transformer(nn::TransformerOptions(8, 2, 1, 1)), x, x));
}

void add_softmax_modules(ModuleList& list) {
  const MakeInput input = floats({3, 4});
  list.add("Softmax", "", nn::Softmax(1), input);
  list.add("Softmin", "", nn::Softmin(1), input);
  list.add("LogSoftmax", "", nn::LogSoftmax(-1), input);
  list.add("Softmax2d", "", nn::Softmax2d(), floats({3, 4, 2}));
  const nn::AdaptiveLogSoftmaxWithLoss adaptive(
      nn::AdaptiveLogSoftmaxWithLossOptions(32, 10, {3, 6}));
  list.add_call(
      "AdaptiveLogSoftmaxWithLoss", "", adaptive,
      [](nn::AdaptiveLogSoftmaxWithLoss& net, const Tensor& x, const Tensor& target) {
        return net->forward(x, target).output;
      },
      floats({32}), integers(0, 10, {}));
  list.add_call(
      "AdaptiveLogSoftmaxWithLoss", "log_prob()", adaptive,
      [](nn::AdaptiveLogSoftmaxWithLoss& net, const Tensor& x) { return net->log_prob(x); },
      floats({32}));
}

void add_activation_modules(ModuleList& list) {
  const MakeInput input = floats({3, 4});
  list.add("ELU", "", nn::ELU(), input);
  list.add("ELU", "alpha(0.7)", nn::ELU(nn::ELUOptions().alpha(0.7)), input);
  list.add("SELU", "", nn::SELU(), input);
  list.add("CELU", "", nn::CELU(), input);
  list.add("CELU", "alpha(0.7)", nn::CELU(nn::CELUOptions().alpha(0.7)), input);
  list.add("GELU", "", nn::GELU(), input);
  list.add("GELU", "approximate(\"tanh\")", nn::GELU(nn::GELUOptions().approximate("tanh")), input);
  list.add("GLU", "", nn::GLU(), input);
  list.add("GLU", "dim(1)", nn::GLU(1), floats({4, 3}));
  list.add("Hardshrink", "", nn::Hardshrink(), input);
  list.add("Hardshrink", "lambda(0.2)", nn::Hardshrink(0.2), input);
  list.add("Hardtanh", "", nn::Hardtanh(), input);
  list.add("Hardtanh", "min_val(-0.3).max_val(0.6)",
           nn::Hardtanh(nn::HardtanhOptions().min_val(-0.3).max_val(0.6)), input);
  list.add("LeakyReLU", "", nn::LeakyReLU(), input);
  list.add("LeakyReLU", "negative_slope(0.3)",
           nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.3)), input);
  list.add("LogSigmoid", "", nn::LogSigmoid(), input);
  list.add("Mish", "", nn::Mish(), input);
  list.add("PReLU", "", nn::PReLU(), input);
  list.add("PReLU", "num_parameters(3).init(0.4)",
           nn::PReLU(nn::PReLUOptions().num_parameters(3).init(0.4)), input);
  list.add("ReLU", "", nn::ReLU(), input);
  list.add_call(
      "ReLU", "inplace(true)", nn::ReLU(nn::ReLUOptions().inplace(true)),
      [](nn::ReLU& net, const Tensor& x) { return net->forward(x + 0.1); }, input);
  list.add("ReLU6", "", nn::ReLU6(), between(-2, 8, {3, 4}));
  list.add("RReLU", "", nn::RReLU(), input);
  list.add("RReLU", "lower(0.2).upper(0.4)", nn::RReLU(nn::RReLUOptions().lower(0.2).upper(0.4)),
           input);
  list.add("SiLU", "", nn::SiLU(), input);
  list.add("Sigmoid", "", nn::Sigmoid(), input);
  list.add("Softplus", "", nn::Softplus(), input);
  list.add("Softplus", "beta(2).threshold(1)",
           nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)), input);
  list.add("Softshrink", "", nn::Softshrink(), input);
  list.add("Softshrink", "lambda(0.2)", nn::Softshrink(0.2), input);
  list.add("Softsign", "", nn::Softsign(), input);
  list.add("Tanh", "", nn::Tanh(), input);
  list.add("Tanhshrink", "", nn::Tanhshrink(), input);
  list.add("Threshold", "", nn::Threshold(0.2, -3), input);
  add_softmax_modules(list);
}

// With the mean over the batch, the default, and with one loss for each sample.
template <class Loss, class Options, class... Inputs>
void add_loss(ModuleList& list, const char* name, Inputs... inputs) {
  list.add(name, "", Loss(), inputs...);
  list.add(name, "reduction(torch::kNone)", Loss(Options().reduction(torch::kNone)), inputs...);
}

void add_loss_modules(ModuleList& list) {
  const MakeInput x = floats({4});
  const MakeInput share = between(0.1, 0.9, {4});
  const MakeInput classes = integers(0, 4, {});
  const MakeInput signs = [](std::int64_t batch) { return torch::randn({batch}).sign(); };
  add_loss<nn::L1Loss, nn::L1LossOptions>(list, "L1Loss", x, x);
  add_loss<nn::MSELoss, nn::MSELossOptions>(list, "MSELoss", x, x);
  add_loss<nn::SmoothL1Loss, nn::SmoothL1LossOptions>(list, "SmoothL1Loss", x, x);
  add_loss<nn::HuberLoss, nn::HuberLossOptions>(list, "HuberLoss", x, x);
  add_loss<nn::KLDivLoss, nn::KLDivLossOptions>(list, "KLDivLoss", x, share);
  add_loss<nn::BCELoss, nn::BCELossOptions>(list, "BCELoss", share, share);
  add_loss<nn::BCEWithLogitsLoss, nn::BCEWithLogitsLossOptions>(list, "BCEWithLogitsLoss", x,
                                                                share);
  add_loss<nn::PoissonNLLLoss, nn::PoissonNLLLossOptions>(list, "PoissonNLLLoss", x, share);
  add_loss<nn::NLLLoss, nn::NLLLossOptions>(list, "NLLLoss", x, classes);
  add_loss<nn::CrossEntropyLoss, nn::CrossEntropyLossOptions>(list, "CrossEntropyLoss", x, classes);
  add_loss<nn::SoftMarginLoss, nn::SoftMarginLossOptions>(list, "SoftMarginLoss", x, x);
  add_loss<nn::HingeEmbeddingLoss, nn::HingeEmbeddingLossOptions>(list, "HingeEmbeddingLoss", x, x);
  add_loss<nn::MultiMarginLoss, nn::MultiMarginLossOptions>(list, "MultiMarginLoss", x, classes);
  add_loss<nn::MultiLabelSoftMarginLoss, nn::MultiLabelSoftMarginLossOptions>(
      list, "MultiLabelSoftMarginLoss", x, share);
  add_loss<nn::MultiLabelMarginLoss, nn::MultiLabelMarginLossOptions>(list, "MultiLabelMarginLoss",
                                                                      x, integers(0, 4, {4}));
  add_loss<nn::CosineEmbeddingLoss, nn::CosineEmbeddingLossOptions>(list, "CosineEmbeddingLoss", x,
                                                                    x, signs);
  add_loss<nn::MarginRankingLoss, nn::MarginRankingLossOptions>(list, "MarginRankingLoss",
                                                                floats({}), floats({}), signs);
  add_loss<nn::TripletMarginLoss, nn::TripletMarginLossOptions>(list, "TripletMarginLoss", x, x, x);
  add_loss<nn::TripletMarginWithDistanceLoss, nn::TripletMarginWithDistanceLossOptions>(
      list, "TripletMarginWithDistanceLoss", x, x, x);
  with_batch_second(list.add_call(
      "CTCLoss", "", nn::CTCLoss(),
      [](nn::CTCLoss& net, const Tensor& logits) {
        const std::int64_t batch = logits.size(1);
        const Tensor targets = torch::ones({batch, 2}, torch::kLong);
        return net->forward(logits.log_softmax(2), targets, torch::full({batch}, 6, torch::kLong),
                            torch::full({batch}, 2, torch::kLong));
      },
      sequence(6, 4)));
}

}  // namespace

std::vector<ExportCase> module_cases() {
  torch::manual_seed(3);
  ModuleList list;
  add_linear_modules(list);
  add_convolution_modules(list);
  add_dropout_modules(list);
  add_embedding_modules(list);
  add_distance_modules(list);
  add_fold_modules(list);
  add_normalization_modules(list);
  add_padding_modules(list);
  add_window_pooling_modules(list);
  add_other_pooling_modules(list);
  add_image_modules(list);
  add_recurrent_modules(list);
  add_transformer_modules(list);
  add_activation_modules(list);
  add_loss_modules(list);
  return list.take();
}

}  // namespace lockstep::testing_support
