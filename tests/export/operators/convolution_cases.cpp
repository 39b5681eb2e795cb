// Convolutions and transposed convolutions in one to three dimensions.
#include <torch/nn/modules/conv.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;

}  // namespace

void add_convolution_cases(CaseList& cases) {
  const char* const plain = "_convolution";
  cases.add_net(plain, nn::Conv1d(nn::Conv1dOptions(3, 4, 3).stride(2).padding(1)), floats({3, 9}));
  cases.add_net(plain,
                nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).dilation(2).groups(2).bias(false)),
                floats({4, 8, 9}));
  cases.add_net(plain, nn::Conv3d(nn::Conv3dOptions(2, 3, 2).padding(1)), floats({2, 4, 5, 6}));
  cases.add_net(plain, nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 4, 3).stride(2)),
                floats({3, 6}));
  cases.add_net(
      plain,
      nn::ConvTranspose2d(
          nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1).groups(2)),
      floats({4, 5, 6}));
  cases.add_net(plain, nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2).stride(2)),
                floats({2, 3, 4, 3}));
  // Each side differs from the other.
  cases.add_net(plain, nn::Conv2d(nn::Conv2dOptions(2, 3, {3, 2}).stride({1, 2}).padding({2, 1})),
                floats({2, 6, 7}));
  cases.add_net(plain,
                nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 3, {3, 2})
                                        .stride({2, 3})
                                        .padding({1, 0})
                                        .output_padding({1, 2})
                                        .dilation({2, 1})),
                floats({2, 5, 4}));
  cases.add_net("_convolution_mode",
                nn::Conv2d(nn::Conv2dOptions(3, 4, {4, 3}).padding(torch::kSame)),
                floats({3, 7, 8}));
  cases.add_net(
      "_convolution_mode",
      nn::Conv2d(nn::Conv2dOptions(2, 4, {4, 3}).padding(torch::kSame).dilation({1, 2}).groups(2)),
      floats({2, 7, 8}));
  cases.add_net("_convolution_mode",
                nn::Conv1d(nn::Conv1dOptions(3, 4, 3).padding(torch::kValid).stride(2)),
                floats({3, 8}));
  // One number for all dimensions.
  const torch::Tensor filter = torch::randn({2, 2, 3, 3});
  cases.add(plain, [filter](const torch::Tensor& x) { return at::conv2d(x, filter, {}, 2, 1, 2); },
            {floats({2, 9, 8})});
  cases.add(
      plain,
      [filter](const torch::Tensor& x) { return at::conv_transpose2d(x, filter, {}, 2, 1, 1); },
      {floats({2, 4, 5})});
}

}  // namespace lockstep::testing_support
