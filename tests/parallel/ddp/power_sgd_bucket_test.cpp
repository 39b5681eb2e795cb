// The arithmetic of PowerSGD on hand-made buckets of one process, without communication.
#include <lockstep/parallel/comm_hooks/power_sgd_bucket.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <c10/util/Exception.h>
#include <torch/types.h>

namespace lockstep::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using torch::Tensor;

using BucketShapes = std::vector<std::vector<std::int64_t>>;

GradBucket bucket_of(const BucketShapes& shapes, torch::ScalarType type = torch::kFloat64) {
  std::int64_t elements = 0;
  for (const auto& shape : shapes) elements += c10::multiply_integers(shape);
  GradBucket bucket;
  bucket.buffer = torch::zeros({elements}, type);
  std::int64_t begin = 0;
  for (const auto& shape : shapes) {
    const std::int64_t count = c10::multiply_integers(shape);
    bucket.gradients.push_back(bucket.buffer.narrow(0, begin, count).view(shape));
    begin += count;
  }
  return bucket;
}

// Numbers without a pattern, the same in each call.
Tensor waves(at::IntArrayRef shape, double phase) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (torch::arange(count, torch::kFloat64) * 12.9 + phase).sin().view(shape);
}

// Gives the bucket its memory and fills each Q with numbers.
void prepare(PowerSgdBucket& made, const GradBucket& bucket) {
  made.take_memory(torch::zeros({made.elements()}, bucket.buffer.options()), bucket);
  for (const PowerSgdBucket::Batch& batch : made.batches()) {
    batch.q.copy_(waves(batch.q.sizes(), 3));
  }
  made.q_is_known = true;
}

// One step of a group of one rank, whose messages are already their own mean.
void run_step(PowerSgdBucket& made, const GradBucket& bucket) {
  made.begin(bucket.gradients);
  ASSERT_TRUE(made.compute_q(bucket.gradients));
  made.finish(bucket.gradients);
}

bool is_nan_only(const Tensor& tensor) { return tensor.isnan().all().item<bool>(); }

double largest(const Tensor& tensor) { return tensor.abs().max().item<double>(); }

TEST(AsMatrix, HasTheOutermostDimensionInMemoryAsRows) {
  const auto shape_of = [](const Tensor& gradient) { return as_matrix(gradient).sizes().vec(); };
  EXPECT_THAT(shape_of(torch::zeros({})), ElementsAre(1, 1));
  EXPECT_THAT(shape_of(torch::zeros({5})), ElementsAre(5, 1));
  EXPECT_THAT(shape_of(torch::zeros({4, 1, 1})), ElementsAre(4, 1));
  EXPECT_THAT(shape_of(torch::zeros({4, 2, 3})), ElementsAre(4, 6));
  EXPECT_THAT(shape_of(torch::zeros({3, 4}).t()), ElementsAre(3, 4));
  EXPECT_THAT(shape_of(torch::zeros({0, 3})), ElementsAre(0, 0));
  EXPECT_THAT(shape_of(torch::zeros({3, 0})), ElementsAre(3, 0));
  EXPECT_THAT(shape_of(torch::zeros({2, 3}, torch::kComplexDouble)), ElementsAre(2, 6));
  const Tensor rows = torch::arange(2 * 4 * 5 * 3, torch::kFloat64).view({2, 4, 5, 3});
  const Tensor convolution = rows.permute({0, 3, 1, 2});  // in channels_last
  EXPECT_TRUE(as_matrix(convolution).equal(rows.view({2, 60})));
  EXPECT_EQ(as_matrix(convolution).const_data_ptr(), rows.const_data_ptr());
}

// The columns (3, 4) and (1, 2): the second one has 2.2 of the first one's direction (0.6, 0.8).
TEST(Orthogonalize, ByGramSchmidtAddsEpsilonToEachNorm) {
  const Tensor columns =
      torch::tensor({3.0, 1.0, 4.0, 2.0, 2.0, 0.0, 0.0, 8.0}, torch::kFloat64).view({2, 2, 2});
  Tensor matrices = columns.clone();
  orthogonalize(matrices, 1e-14);
  const Tensor expected =
      torch::tensor({0.6, -0.8, 0.8, 0.6, 1.0, 0.0, 0.0, 1.0}, torch::kFloat64).view({2, 2, 2});
  EXPECT_LT(largest(matrices - expected), 1e-12);

  matrices = columns.clone();
  orthogonalize(matrices, 5);
  EXPECT_NEAR(matrices[0][0][0].item<double>(), 3.0 / (5 + 5), 1e-12);
  EXPECT_NEAR(matrices[0][1][0].item<double>(), 4.0 / (5 + 5), 1e-12);
  EXPECT_NEAR(matrices[1][0][0].item<double>(), 2.0 / (2 + 5), 1e-12);
  EXPECT_NEAR(matrices[1][1][1].item<double>(), 8.0 / (8 + 5), 1e-12);
}

TEST(Orthogonalize, ByQrNeedsNoEpsilonEvenForZeros) {
  Tensor matrices = torch::zeros({2, 3, 2}, torch::kFloat64);
  matrices[1].copy_(waves({3, 2}, 1));
  const Tensor before = matrices.clone();
  orthogonalize(matrices, 0);
  const Tensor products = matrices.transpose(1, 2).matmul(matrices);
  EXPECT_LT(largest(products - torch::eye(2, torch::kFloat64)), 1e-12);
  // The columns span what they did before.
  const Tensor projected = matrices[1].matmul(matrices[1].t()).matmul(before[1]);
  EXPECT_LT(largest(projected - before[1]), 1e-12);
}

// LibTorch has no QR of 16 bits, and norms of 16 bits overflow.
TEST(Orthogonalize, ComputesIn32BitsForTypesOf16) {
  for (const auto type : {torch::kFloat16, torch::kBFloat16}) {
    for (const double epsilon : {0.0, 1e-8}) {
      const Tensor matrices = torch::full({1, 4, 1}, 60000, type);
      orthogonalize(matrices, epsilon);
      EXPECT_EQ(matrices.scalar_type(), type);
      EXPECT_LT(largest(matrices.to(torch::kFloat64).abs() - 0.5), 4e-3) << type << epsilon;
    }
  }
}

// A matrix of 20 x 30 has 600 elements, and its P and Q of rank 1 have 50.
TEST(PowerSgdBucket, CompressesWhatGainsMoreThanTheRate) {
  for (const bool compresses : {true, false}) {
    const GradBucket bucket = bucket_of({{20, 30}, {7}});
    PowerSgdBucket made(bucket, {.min_compression_rate = compresses ? 11.99 : 12.0});
    EXPECT_EQ(made.batches().size(), compresses ? 1U : 0U);
    EXPECT_EQ(made.elements_before_compression(), 607);
    EXPECT_EQ(made.elements_after_compression(), compresses ? 57 : 607);
  }
}

TEST(PowerSgdBucket, CapsTheRankAtTheDimensionsOfAMatrix) {
  const GradBucket bucket = bucket_of({{2, 15}, {16, 3}, {20, 30}});
  PowerSgdBucket made(bucket, {.matrix_approximation_rank = 4, .min_compression_rate = 0.5});
  ASSERT_EQ(made.batches().size(), 3U);
  EXPECT_EQ(made.batches()[0].rank, 2);
  EXPECT_EQ(made.batches()[1].rank, 3);
  EXPECT_EQ(made.batches()[2].rank, 4);
  EXPECT_EQ(made.elements_after_compression(), 17 * 2 + 19 * 3 + 50 * 4);
}

// Matrices that have only their rows or their columns in common are apart.
TEST(PowerSgdBucket, PutsMatricesOfOneShapeTogether) {
  const GradBucket bucket = bucket_of({{20, 30}, {20, 31}, {21, 30}, {20, 30}, {9}, {20, 30}});
  const auto members = [&](bool batch_tensors) {
    PowerSgdBucket made(bucket, {.batch_tensors_with_same_shape = batch_tensors});
    std::vector<std::vector<std::size_t>> all;
    for (const PowerSgdBucket::Batch& batch : made.batches()) all.push_back(batch.members);
    return all;
  };
  EXPECT_THAT(members(false), ElementsAre(ElementsAre(0), ElementsAre(3), ElementsAre(5),
                                          ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(members(true), ElementsAre(ElementsAre(0, 3, 5), ElementsAre(1), ElementsAre(2)));
}

// P has 20 elements and Q has 30, which begin at the next multiple of 64.
TEST(PowerSgdBucket, BeginsQAtACacheLine) {
  const std::pair<std::int64_t, std::int64_t> cases[] = {
      {0, 64}, {11, 64}, {44, 64}, {45, 128}, {108, 128}};
  for (const auto& [whole, q_begin] : cases) {
    const GradBucket bucket = bucket_of({{20, 30}, {whole}});
    PowerSgdBucket made(bucket, {});
    ASSERT_EQ(made.elements(), q_begin + 30) << whole;
    const Tensor memory = torch::zeros({made.elements()}, torch::kFloat64);
    made.take_memory(memory, bucket);
    EXPECT_EQ(made.first_message.numel(), 20 + whole);
    EXPECT_EQ(made.first_message.storage_offset(), 0);
    EXPECT_EQ(made.second_message.numel(), 30);
    EXPECT_EQ(made.second_message.storage_offset(), q_begin) << whole;
    EXPECT_THAT(made.batches()[0].p.sizes().vec(), ElementsAre(1, 20, 1));
    EXPECT_THAT(made.batches()[0].q.sizes().vec(), ElementsAre(1, 30, 1));
  }
}

// What the result lacks is added to the next gradient. Without feedback it is lost.
TEST(PowerSgdBucket, KeepsWhatTheResultLacks) {
  for (const bool batch_tensors : {false, true}) {
    for (const bool feedback : {true, false}) {
      const GradBucket bucket = bucket_of({{20, 30}, {5}, {20, 30}});
      PowerSgdBucket made(
          bucket, {.use_error_feedback = feedback, .batch_tensors_with_same_shape = batch_tensors});
      prepare(made, bucket);
      Tensor sent = torch::zeros({2, 20, 30}, torch::kFloat64), wanted = sent.clone();
      for (int step = 0; step < 3; ++step) {
        for (std::size_t i = 0; i < 3; ++i) {
          const double phase = static_cast<double>(i) + 10 * step;
          bucket.gradients[i].copy_(waves(bucket.gradients[i].sizes(), phase));
        }
        for (const int i : {0, 1}) wanted[i] += bucket.gradients[static_cast<std::size_t>(2 * i)];
        run_step(made, bucket);
        for (const int i : {0, 1}) sent[i] += bucket.gradients[static_cast<std::size_t>(2 * i)];
        EXPECT_TRUE(bucket.gradients[1].equal(waves({5}, 1 + 10 * step))) << "sent as it is";
      }
      EXPECT_GT(largest(sent - wanted), 0.1) << "rank 1 cannot send it all";
      std::vector<Tensor> errors;
      for (const PowerSgdBucket::Batch& batch : made.batches()) {
        EXPECT_EQ(batch.error.defined(), feedback);
        EXPECT_FALSE(batch.input.defined()) << "no step is in progress";
        if (feedback) errors.push_back(batch.error);
      }
      if (feedback) EXPECT_LT(largest(sent + torch::cat(errors) - wanted), 1e-12);
    }
  }
}

class KeptWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;
};

// A low-rank gradient is sent exactly, whatever its layout, into the memory that it has. LibTorch
// warns of a result whose tensor has another shape.
TEST(PowerSgdBucket, WritesTheResultIntoTheGradientsMemory) {
  GradBucket bucket = bucket_of({{20, 30}, {8 * 3 * 3 * 6}});
  bucket.gradients[1] = bucket.gradients[1].view({8, 3, 3, 6}).permute({0, 3, 1, 2});
  const Tensor matrix = waves({20, 1}, 1) * waves({1, 30}, 2);
  const Tensor convolution = waves({8, 1, 1, 1}, 3) * waves({1, 6, 3, 3}, 4);
  PowerSgdBucket made(bucket, {});
  ASSERT_EQ(made.batches().size(), 2U);
  prepare(made, bucket);
  const Tensor buffer = bucket.buffer;
  KeptWarnings warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    for (int step = 1; step <= 2; ++step) {
      bucket.gradients[0].copy_(matrix * step);
      bucket.gradients[1].copy_(convolution * step);
      const std::vector<const void*> before = {bucket.gradients[0].const_data_ptr(),
                                               bucket.gradients[1].const_data_ptr()};
      run_step(made, bucket);
      EXPECT_LT(largest(bucket.gradients[0] - matrix * step), 1e-12) << step;
      EXPECT_LT(largest(bucket.gradients[1] - convolution * step), 1e-12) << step;
      for (const std::size_t i : {0U, 1U}) {
        EXPECT_EQ(bucket.gradients[i].const_data_ptr(), before[i]);
        EXPECT_LT(largest(made.batches()[i].error), 1e-12) << "nothing is left";
      }
    }
  }
  for (const std::string& message : warnings.messages) {
    EXPECT_THAT(message, Not(HasSubstr("resized")));
  }
  EXPECT_TRUE(bucket.gradients[0].is_alias_of(buffer));
}

// A Q that became zero with its gradient does not stay zero.
TEST(PowerSgdBucket, RecoversFromAGradientOfZero) {
  const GradBucket bucket = bucket_of({{20, 30}});
  PowerSgdBucket made(bucket, {});
  prepare(made, bucket);
  run_step(made, bucket);
  EXPECT_EQ(largest(bucket.gradients[0]), 0);
  EXPECT_EQ(largest(made.second_message), 0);
  bucket.gradients[0].fill_(2);
  run_step(made, bucket);
  EXPECT_LT(largest(bucket.gradients[0] - 2), 1e-12);
}

// What arrived uncompressed is still the mean of the ranks.
TEST(PowerSgdBucket, BeginsAnewAfterAPThatIsNotFinite) {
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const GradBucket bucket = bucket_of({{20, 30}, {5}});
    PowerSgdBucket made(bucket, {});
    prepare(made, bucket);
    bucket.gradients[0].copy_(waves({20, 30}, 1));
    run_step(made, bucket);
    ASSERT_GT(largest(made.batches()[0].error), 0.1);
    bucket.gradients[0].fill_(1)[3][4] = value;
    bucket.gradients[1].fill_(3);
    made.begin(bucket.gradients);
    made.first_message.narrow(0, 20, 5).fill_(7);
    EXPECT_FALSE(made.compute_q(bucket.gradients));
    EXPECT_TRUE(is_nan_only(bucket.gradients[0]));
    EXPECT_TRUE(bucket.gradients[1].eq(7).all().item<bool>());
    EXPECT_EQ(largest(made.batches()[0].error), 0);
    EXPECT_FALSE(made.batches()[0].input.defined());
    EXPECT_TRUE(made.q_is_known) << "Q did not overflow";

    const Tensor low_rank = waves({20, 1}, 5) * waves({1, 30}, 6);
    bucket.gradients[0].copy_(low_rank);
    run_step(made, bucket);
    EXPECT_LT(largest(bucket.gradients[0] - low_rank), 1e-12);
  }
}

// An infinity among the uncompressed gradients is not one of P.
TEST(PowerSgdBucket, LeavesCompressedGradientsAloneIfOthersAreNotFinite) {
  const GradBucket bucket = bucket_of({{20, 30}, {5}});
  PowerSgdBucket made(bucket, {});
  prepare(made, bucket);
  bucket.gradients[0].fill_(2);
  bucket.gradients[1].fill_(std::numeric_limits<double>::infinity());
  run_step(made, bucket);
  EXPECT_LT(largest(bucket.gradients[0] - 2), 1e-12);
  EXPECT_TRUE(bucket.gradients[1].isinf().all().item<bool>());
  EXPECT_TRUE(made.q_is_known);
}

TEST(PowerSgdBucket, ForgetsAQThatIsNotFinite) {
  for (const bool feedback : {true, false}) {
    const GradBucket bucket = bucket_of({{20, 30}, {5}});
    PowerSgdBucket made(bucket, {.use_error_feedback = feedback});
    prepare(made, bucket);
    bucket.gradients[0].copy_(waves({20, 30}, 1));
    bucket.gradients[1].fill_(3);
    made.begin(bucket.gradients);
    ASSERT_TRUE(made.compute_q(bucket.gradients));
    made.second_message[29] = std::numeric_limits<double>::infinity();
    made.finish(bucket.gradients);
    EXPECT_TRUE(is_nan_only(bucket.gradients[0]));
    EXPECT_TRUE(bucket.gradients[1].eq(3).all().item<bool>());
    EXPECT_FALSE(made.q_is_known);
    if (feedback) EXPECT_EQ(largest(made.batches()[0].error), 0);
  }
}

TEST(PowerSgdBucket, KnowsItsLayout) {
  GradBucket bucket = bucket_of({{20, 30}});
  bucket.layout = 9;
  EXPECT_EQ(PowerSgdBucket(bucket, {}).layout(), 9U);
  EXPECT_FALSE(PowerSgdBucket(bucket, {}).q_is_known);
}

}  // namespace
}  // namespace lockstep::parallel
