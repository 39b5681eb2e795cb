// Indexing, and sliding windows over images.
#include <torch/nn/modules/embedding.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

}  // namespace

void add_indexing_cases(CaseList& cases) {
  using torch::indexing::None;
  using torch::indexing::Slice;
  cases.add_net("embedding", nn::Embedding(10, 4), integers(0, 10, {5}));
  cases.add("index_select",
            [](const Tensor& x) { return x.index_select(1, torch::tensor({2, 0, 1, 1})); });
  cases.add("gather", [](const Tensor& x, const Tensor& i) { return x.gather(2, i); },
            {floats({3, 4}), integers(0, 4, {3, 2})});
  cases.add("take_along_dim",
            [](const Tensor& x) { return x.take_along_dim(x.argsort(std::int64_t{2}, false), 2); });
  cases.add("take", [](const Tensor& x, const Tensor& i) { return x.take(i); },
            {floats({3, 4}), integers(0, 12, {5})});
  cases.add("index", [](const Tensor& x) { return x.index({Slice(), torch::tensor({2, 0})}); });
  cases.add("index",
            [](const Tensor& x) {
              return x.index({Slice(), torch::tensor({2, 0}), torch::tensor({1, 3})});
            },
            {floats({3, 4, 2})});
  cases.add(
      "scatter",
      [](const Tensor& x, const Tensor& i, const Tensor& y) { return x.scatter(1, i, y); },
      {floats({5}),
       [](std::int64_t batch) { return torch::tensor({3, 1}).expand({batch, 2}).contiguous(); },
       floats({2})});
  cases.add("scatter", [](const Tensor& x, const Tensor& i) { return x.scatter(1, i, 7.0); },
            {floats({5}), integers(0, 5, {2})});
  cases.add(
      "scatter_add",
      [](const Tensor& x, const Tensor& i, const Tensor& y) { return x.scatter_add(1, i, y); },
      {floats({5}), integers(0, 5, {3}), floats({3})});
  cases.add("one_hot", [](const Tensor& i) { return at::one_hot(i, 6); }, {integers(0, 6, {4})});
  cases.add("unfold", [](const Tensor& x) { return x.unfold(1, 3, 2); }, {floats({9, 4})});
  cases.add("im2col", [](const Tensor& x) { return at::im2col(x, {3, 2}, {1, 2}, {1, 0}, {2, 1}); },
            {floats({2, 7, 8})});
  cases
      .add("col2im",
           [](const Tensor& x) { return at::col2im(x, {6, 8}, {2, 2}, {1, 1}, {0, 0}, {2, 2}); },
           {floats({12, 12})})
      .first_opset = 18;
  // Arguments of unlike sizes.
  cases.add("index_select", [](const Tensor& x) { return x.index_select(1, torch::tensor(2)); });
  cases.add("gather", [](const Tensor& x, const Tensor& i) { return x.gather(1, i); },
            {floats({3, 4}), integers(0, 3, {5, 2})});
  cases.add("take_along_dim", [](const Tensor& x) {
    return x.take_along_dim(torch::tensor({3, 0, 1}).view({1, 1, 3}), 2);
  });
  cases.add("take_along_dim",
            [](const Tensor& x, const Tensor& i) { return x.take_along_dim(i, -1); },
            {floats({1, 4}), integers(0, 4, {3, 2})});
  cases.add("take_along_dim", [](const Tensor& x, const Tensor& i) { return x.take_along_dim(i); },
            {floats({3, 4}), integers(0, 12, {2, 3})});
  const MakeInput distinct = [](std::int64_t batch) {
    return torch::tensor({3, 1}).expand({batch, 2}).contiguous();
  };
  const auto scatter = [](const Tensor& x, const Tensor& i, const Tensor& y) {
    return x.scatter(1, i, y);
  };
  cases.add("scatter", scatter, {floats({5}), distinct, floats({4})});
  cases.add("scatter", scatter,
            {floats({5, 3}),
             [](std::int64_t batch) {
               return torch::tensor({{3, 1}, {0, 2}}).expand({batch, 2, 2}).contiguous();
             },
             floats({6, 4})});
  cases.add(
      "scatter_add",
      [](const Tensor& x, const Tensor& i, const Tensor& y) { return x.scatter_add(1, i, y); },
      {floats({5}), integers(0, 5, {3}), floats({7})});
  // Indices side by side, behind the first dimension, with a gap, and of unlike rank.
  const MakeInput volume = floats({3, 4, 2});
  const Tensor rows = torch::tensor({2, 0, -1});
  const Tensor column = torch::tensor({{1}, {0}});
  cases.add(
      "index",
      [=](const Tensor& x) { return x.index({Slice(), rows, Slice(), torch::tensor({1, 0, 1})}); },
      {volume});
  cases.add("index", [=](const Tensor& x) { return x.index({Slice(), rows, Slice(), column}); },
            {volume});
  cases.add("index", [=](const Tensor& x) { return x.index({Slice(), Slice(), rows, column}); },
            {volume});
  cases.add("index",
            [=](const Tensor& x) {
              return x.index({Slice(), Slice(), torch::tensor({1, 0, 1}), Slice(), rows, column});
            },
            {floats({2, 3, 2, 4, 3})});
  cases.add("index", [=](const Tensor& x) { return x.index({torch::tensor(0), Slice(), rows}); },
            {volume});
  cases.add("index",
            [](const Tensor& x, const Tensor& i) { return x.index({Slice(), i, Slice(), i}); },
            {floats({3, 4, 3}), integers(0, 3, {2})});
  // GatherND takes no indices of int32.
  cases.add("index",
            [](const Tensor& x, const Tensor& i) { return x.index({Slice(), i, Slice(), i}); },
            {floats({3, 4, 3}), rows_of({2, 0}, torch::kInt)});
  cases.add("unfold", [](const Tensor& x) { return x.unfold(-1, 2, 1); }, {floats({4, 5})});
  // Each side differs from the other.
  cases
      .add("col2im",
           [](const Tensor& x) { return at::col2im(x, {6, 8}, {2, 2}, {1, 1}, {1, 0}, {2, 2}); },
           {floats({12, 16})})
      .first_opset = 18;
  cases
      .add("col2im",
           [](const Tensor& x) { return at::col2im(x, {6, 8}, {2, 3}, {1, 2}, {1, 0}, {2, 1}); },
           {floats({12, 16})})
      .first_opset = 18;
  // Diagonals of the matrices of a batch, and of a sample.
  for (const std::int64_t offset : {0, 1, 2, -2}) {
    cases.add("diagonal", [offset](const Tensor& x) { return x.diagonal(offset, 1, 2); });
    cases.add("diagonal", [offset](const Tensor& x) { return x.diagonal(offset, -1, 1); });
    cases.add("diagonal", [offset](const Tensor& x) { return x[0].diagonal(offset); });
  }
}

}  // namespace lockstep::testing_support
