// Operators that move elements without computing any.
#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_shape_cases(CaseList& cases) {
  const std::vector<MakeInput> image = {floats({4, 6, 8})};
  cases.add("view", [](const Tensor& x) { return x.view({-1, 12}); });
  cases.add("view_as", [](const Tensor& x, const Tensor& y) { return x.view_as(y); },
            {floats({3, 4}), floats({12})});
  cases.add("reshape", [](const Tensor& x) { return x.transpose(1, 2).reshape({-1, 6}); });
  cases.add("reshape_as", [](const Tensor& x, const Tensor& y) { return x.reshape_as(y); },
            {floats({3, 4}), floats({2, 6})});
  cases.add("ravel", [](const Tensor& x) { return x.ravel(); });
  cases.add("flatten", [](const Tensor& x) { return x.flatten(1); }, image);
  cases.add("flatten", [](const Tensor& x) { return x.flatten(0, 1); }, image);
  // Dimensions of size 0, which Reshape would replace with the input's sizes.
  cases.add("flatten",
            [](const Tensor& x) { return x.slice(1, 0, 0).transpose(1, 2).flatten(0, 1); });
  cases.add("reshape", [](const Tensor& x) { return x.slice(1, 0, 0).reshape({0, 5}); });
  cases.add("unflatten", [](const Tensor& x) { return x.unflatten(2, {2, 2}); });
  cases.add("squeeze", [](const Tensor& x) { return x.squeeze(2); }, {floats({3, 1, 4})});
  cases.add("unsqueeze", [](const Tensor& x) { return x.unsqueeze(-1); });
  cases.add("transpose", [](const Tensor& x) { return x.transpose(0, 2); });
  cases.add("t", [](const Tensor& x) { return x.t(); }, {floats({4})});
  cases.add("permute", [](const Tensor& x) { return x.permute({0, 2, 3, 1}); }, image);
  cases.add("movedim", [](const Tensor& x) { return x.movedim(1, -1); }, image);
  cases.add("contiguous", [](const Tensor& x) { return x.transpose(1, 2).contiguous(); });
  cases.add("clone", [](const Tensor& x) { return x.clone() + 1; });
  cases.add("detach", [](const Tensor& x) { return x.detach() + 1; });
  cases.add("detach", [](const Tensor& x) {
    Tensor y = x + 1;
    return y.detach_() * 2;
  });
  cases.add("lift_fresh_copy", [](const Tensor& x) { return at::lift_fresh_copy(x) + 1; });
  cases.add("alias", [](const Tensor& x) { return at::alias(x) + 1; });
  cases.add("expand", [](const Tensor& x) { return x.unsqueeze(1).expand({-1, 5, 3, 4}); });
  cases.add("expand_as", [](const Tensor& x, const Tensor& y) { return x.expand_as(y); },
            {floats({1, 4}), floats({3, 4})});
  cases.add("broadcast_to",
            [](const Tensor& x) { return torch::ones({4}).broadcast_to({3, 4}) + x; });
  cases.add("broadcast_tensors", [](const Tensor& x) {
    return at::broadcast_tensors({torch::arange(4, torch::kFloat), x, x.select(2, 0).unsqueeze(2)});
  });
  cases.add("mT", [](const Tensor& x) { return x.mT() + 1; });
  // Tensors of fewer dimensions get some.
  cases.add("hstack", [](const Tensor& x) { return at::hstack({x, x + 1}); });
  cases.add("hstack", [](const Tensor& x) { return at::hstack({x.flatten(), x.amax()}); });
  cases.add("vstack", [](const Tensor& x) { return at::vstack({x, x + 1}); });
  cases.add("vstack", [](const Tensor& x) { return at::vstack({x.flatten(), x.flatten() + 1}); });
  for (const std::int64_t last : {2, 1, 0}) {
    cases.add("dstack", [last](const Tensor& x) {
      const Tensor fewer = last == 2 ? x : last == 1 ? x.amax(2) : x.amax({1, 2});
      return at::dstack({fewer, fewer + 1});
    });
  }
  cases.add("repeat", [](const Tensor& x) { return x.repeat({1, 2, 1, 3}); });
  cases.add("tile", [](const Tensor& x) { return x.tile({2, 3}); });
  cases.add("repeat_interleave", [](const Tensor& x) { return x.repeat_interleave(3, 1); });
  cases.add("cat", [](const Tensor& x, const Tensor& y) { return at::cat({x, y}, 1); },
            {floats({3, 4}), floats({2, 4})});
  cases.add("stack", [](const Tensor& x) { return at::stack({x, x + 1}, 1); });
  cases.add("split", [](const Tensor& x) { return x.split(3, 2); }, image);
  cases.add(
      "split_with_sizes", [](const Tensor& x) { return x.split_with_sizes({1, 5}, 2); }, image);
  cases.add("chunk", [](const Tensor& x) { return x.chunk(3, 3); }, image);
  cases.add("tensor_split", [](const Tensor& x) { return x.tensor_split(3, 3); }, image);
  cases.add("unsafe_chunk", [](const Tensor& x) { return x.unsafe_chunk(2, 1); }, image);
  cases.add("unsafe_split", [](const Tensor& x) { return x.unsafe_split(2, 1); }, image);
  cases.add(
      "unsafe_split_with_sizes",
      [](const Tensor& x) { return x.unsafe_split_with_sizes({1, 3}, 1); }, image);
  cases.add("unbind", [](const Tensor& x) { return x.unbind(1); });
  cases.add("select", [](const Tensor& x) { return x.select(1, -1); });
  cases.add("slice", [](const Tensor& x) { return x.slice(2, 1, 7, 2); }, image);
  cases.add("slice", [](const Tensor& x) { return x.slice(1, -2); }, image);
  cases.add("narrow", [](const Tensor& x) { return x.narrow(2, 1, 3); }, image);
  cases.add("flip", [](const Tensor& x) { return x.flip({1, 2}); });
  cases.add("roll", [](const Tensor& x) { return x.roll({1, -2}, {1, 2}); });
  cases.add("pixel_shuffle", [](const Tensor& x) { return at::pixel_shuffle(x, 2); }, image);
  cases.add("pixel_shuffle", [](const Tensor& x) { return at::pixel_shuffle(x[0], 2); }, image);
  cases.add("pixel_unshuffle", [](const Tensor& x) { return at::pixel_unshuffle(x, 2); }, image);
  cases.add("pixel_unshuffle", [](const Tensor& x) { return at::pixel_unshuffle(x[0], 2); }, image);
  cases.add("channel_shuffle", [](const Tensor& x) { return at::channel_shuffle(x, 2); }, image);
  cases.add("tril", [](const Tensor& x) { return x.tril(1); });
  cases.add("triu", [](const Tensor& x) { return x.triu(-1); });
  cases.add("to", [](const Tensor& x) { return x.to(torch::kLong).to(torch::kFloat) * 0.5; });
  cases.add("type_as", [](const Tensor& x, const Tensor& n) { return n.type_as(x) * x; },
            {floats({4}), integers(0, 5, {4})});
  cases.add("narrow", [](const Tensor& x) { return x.narrow(2, -4, 3); }, image);
  cases.add("narrow", [](const Tensor& x) { return x.narrow(-1, -8, 8); }, image);
  // cat() skips an empty tensor of one dimension.
  cases.add("cat", [](const Tensor& x) {
    return at::cat({torch::empty({0}), x, torch::empty({0}), x + 1}, 2);
  });
  cases.add("cat", [](const Tensor& x) { return at::cat({x.slice(1, 0, 0), x}, 1); });
  cases.add("stack", [](const Tensor& x) { return at::stack({x, x + 1}, -1); });
  // Without a dimension all elements are repeated, which may be a multiple of the batch and some.
  cases.add("repeat_interleave", [](const Tensor& x) { return x.repeat_interleave(2); });
  cases.add("repeat_interleave", [](const Tensor& x) {
    return at::cat({x.flatten(), torch::arange(5, torch::kFloat)}).repeat_interleave(3);
  });
  cases.add("repeat_interleave", [](const Tensor& x) { return x.repeat_interleave(3, -1); });
  // Tensors without dimensions.
  cases.add("flatten", [](const Tensor& x) { return x.amax().flatten(); });
  cases.add("repeat", [](const Tensor& x) { return x.amax().repeat({2, 3}); });
  cases.add("expand", [](const Tensor& x) { return x.amax().expand({2, 3}); });
  cases.add("transpose", [](const Tensor& x) { return x.amax().transpose(0, 0); });
  // Dimensions and ends that count from behind, and more than a turn.
  cases.add("slice", [](const Tensor& x) { return x.slice(2, -5, -1, 2); }, image);
  cases.add("slice", [](const Tensor& x) { return x.slice(0, 0, -1); }, image);
  cases.add("chunk", [](const Tensor& x) { return x.chunk(3, -2); }, image);
  cases.add("chunk", [](const Tensor& x) { return x.chunk(1, 1); }, image);
  cases.add("unbind", [](const Tensor& x) { return x.unbind(-1); });
  cases.add("roll", [](const Tensor& x) { return x.roll({5, -7}, {1, -1}); });
  cases.add("permute", [](const Tensor& x) { return x.permute({0, -1, 1, 2}); }, image);
  cases.add(
      "movedim",
      [](const Tensor& x) {
        return x.movedim(torch::IntArrayRef{1, -2}, torch::IntArrayRef{-1, 1});
      },
      image);
  cases.add("t", [](const Tensor& x) { return x.select(1, 0).t(); }, {floats({4})});
  // Without dimensions all elements are one row.
  for (const std::int64_t shift : {5, -31}) {
    cases.add("roll", [shift](const Tensor& x) { return x[0].roll(shift); });
  }
  // The batch is in another dimension than the first, or in another input.
  cases
      .add("expand", [](const Tensor& x) { return x.unsqueeze(0).expand({2, -1, -1, -1}); },
           {[](std::int64_t batch) { return torch::randn({5, batch, 3}); }})
      .options.batch_dimensions = {1};
  cases
      .add("expand",
           [](const Tensor& row, const Tensor& x) {
             return x.unsqueeze(1).expand({-1, 2, 4}) + row;
           },
           {[](std::int64_t) { return torch::arange(4, torch::kFloat); }, floats({4})})
      .options.batch_dimensions = {-1, 0};
  // Members of unlike types.
  const std::vector<MakeInput> unlike = {floats({4}), integers(-3, 5, {4})};
  cases.add("cat", [](const Tensor& x, const Tensor& n) { return at::cat({n, x}, 1); }, unlike);
  cases.add("stack", [](const Tensor& x, const Tensor& n) { return at::stack({n, x}, 1); }, unlike);
  cases.add("to", [](const Tensor& x) { return x.to(torch::kBool); },
            {rows_of({0, -0.0, 0.25, -2})});
}

}  // namespace lockstep::testing_support
