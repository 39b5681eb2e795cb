// Communication hooks with ranks as threads, on buckets made by hand and through
// DistributedDataParallel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/bucket_memory.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/post_local_sgd.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/phased_work.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;
using torch::Tensor;

// --- PhasedWork
// -------------------------------------------------------------------------------------

// Writes into `log` when it is waited for.
class LoggedWork final : public Work {
 public:
  LoggedWork(std::string name, std::vector<std::string>& log, bool fails = false)
      : name_(std::move(name)), log_(log), fails_(fails) {}
  void wait(std::optional<std::chrono::milliseconds>) override {
    log_.push_back("wait " + name_);
    if (fails_) std::rethrow_exception(error());
  }
  bool is_completed() override { return completed; }
  std::exception_ptr error() const override {
    return fails_ ? std::make_exception_ptr(CommError(name_ + " failed")) : nullptr;
  }
  bool completed = true;

 private:
  std::string name_;
  std::vector<std::string>& log_;
  bool fails_;
};

class PhasedWorkTest : public testing::Test {
 protected:
  std::shared_ptr<LoggedWork> logged(const std::string& name, bool fails = false) {
    log.push_back("start " + name);
    return std::make_shared<LoggedWork>(name, log, fails);
  }
  PhasedWork::Phase phase(const std::string& name, bool fails = false) {
    return [=, this] { return logged(name, fails); };
  }
  std::shared_ptr<PhasedWork> two_phases(const std::string& name) {
    return std::make_shared<PhasedWork>(logged(name + "1"), std::vector{phase(name + "2")});
  }
  std::vector<std::string> log;
};

TEST_F(PhasedWorkTest, StartsEachPhaseWhenTheOneBeforeHasEnded) {
  const auto first = logged("a");
  first->completed = false;
  PhasedWork work(first, {phase("b"), [] { return nullptr; }, phase("c")});
  EXPECT_FALSE(work.is_completed());
  first->completed = true;
  EXPECT_FALSE(work.is_completed()) << "phases are left";
  EXPECT_THAT(log, ElementsAre("start a"));
  EXPECT_TRUE(work.advance());
  EXPECT_THAT(log, ElementsAre("start a", "wait a", "start b"));
  work.wait();
  EXPECT_THAT(log, ElementsAre("start a", "wait a", "start b", "wait b", "start c", "wait c"));
  EXPECT_TRUE(work.is_completed());
  EXPECT_EQ(work.error(), nullptr);
  work.wait();
  EXPECT_EQ(log.size(), 6) << "nothing is left for a second wait";
}

TEST_F(PhasedWorkTest, AllStartTheirNextPhaseBeforeAnyIsWaitedFor) {
  const auto nested = std::make_shared<PhasedWork>(two_phases("n"), std::vector{phase("n3")});
  wait_for_all({two_phases("a"), nested, logged("plain")});
  EXPECT_THAT(log,
              ElementsAre("start n1", "start a1", "start plain", "wait a1", "start a2", "wait n1",
                          "start n2", "wait a2", "wait n2", "start n3", "wait n3", "wait plain"));
}

TEST_F(PhasedWorkTest, EndsWithTheErrorOfAPhase) {
  PhasedWork throws(logged("a"),
                    {[]() -> std::shared_ptr<Work> { throw ConfigError("phase"); }, phase("b")});
  EXPECT_THROW(throws.wait(), ConfigError);
  EXPECT_THROW(throws.wait(), ConfigError) << "also later";
  EXPECT_TRUE(throws.is_completed());
  EXPECT_NE(throws.error(), nullptr);
  EXPECT_THAT(log, ElementsAre("start a", "wait a"));

  PhasedWork fails(logged("c", /*fails=*/true), {phase("d")});
  EXPECT_TRUE(fails.is_completed()) << "no phase will follow";
  EXPECT_NE(fails.error(), nullptr) << "before anybody waited";
  EXPECT_THROW(fails.wait(), CommError);
}

// --- Buckets made by hand
// ---------------------------------------------------------------------------

using Shapes = std::vector<std::vector<std::int64_t>>;

// Parameters of a model, and buckets for them; all ranks make the same.
struct Model : torch::nn::Module {
  explicit Model(const Shapes& shapes, torch::ScalarType type = torch::kFloat32) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      Tensor value = torch::zeros(shapes[i], type);
      if (value.dim() == 4) value = value.to(torch::MemoryFormat::ChannelsLast);
      register_parameter("p" + std::to_string(i), value);
    }
  }
  GradBucket bucket(ProcessGroup& group, const std::vector<std::size_t>& members,
                    std::size_t index = 0, std::uint64_t layout = 0) {
    std::vector<NamedParameter> named;
    for (const std::size_t i : members) named.push_back({"p" + std::to_string(i), parameters()[i]});
    GradBucket bucket = make_bucket(named, group, ParameterMemory::kAsIs);
    bucket.index = index;
    bucket.layout = layout;
    return bucket;
  }
};

Tensor random_like(const Tensor& tensor, std::uint64_t seed) {
  return torch::randn(tensor.sizes(), at::detail::createCPUGenerator(seed),
                      torch::dtype(torch::kFloat64))
      .to(tensor.scalar_type());
}

// Rank's gradient of a step, and the mean over the ranks.
Tensor gradient_of(const Tensor& like, std::size_t place, int step, int rank) {
  return random_like(like, 1000 * place + 10 * static_cast<std::size_t>(step) +
                               static_cast<std::size_t>(rank) + 1);
}
Tensor mean_of(const Tensor& like, std::size_t place, int step, int size) {
  Tensor sum = torch::zeros_like(like, torch::kFloat64);
  for (int rank = 0; rank < size; ++rank) sum += gradient_of(like, place, step, rank);
  return sum / size;
}

double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor wide = b.to(torch::kFloat64);
  return ((a.to(torch::kFloat64) - wide).norm() / wide.norm().clamp_min(1e-20)).item<double>();
}

struct HookCase {
  const char* backend;
  int size;
};

class CommHooks : public testing::TestWithParam<HookCase> {
 protected:
  void run(const std::function<void(ProcessGroup, int rank)>& body) {
    const auto [backend, size] = GetParam();
    EXPECT_EQ(run_group(size, backend, [&](ProcessGroup group) { body(group, group.rank()); }),
              no_errors(size));
  }
};

// Two ranks on Gloo are those of the oracle.
INSTANTIATE_TEST_SUITE_P(Cases, CommHooks,
                         testing::Values(HookCase{"shm", 2}, HookCase{"shm", 3}, HookCase{"gloo", 3}),
                         [](const auto& info) {
                           return info.param.backend + std::to_string(info.param.size);
                         });

// --- Hooks without a memory
// -------------------------------------------------------------------------

TEST_P(CommHooks, AllReduceIsTheMeanAndNoopIsNothing) {
  run([](ProcessGroup group, int rank) {
    Model model(Shapes{{7, 5}, {3}}, torch::kFloat64);
    GradBucket bucket = model.bucket(group, {0, 1});
    bucket.gradients[0].fill_(rank);
    bucket.gradients[1].fill_(-2 * rank);
    noop_hook()(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq(rank).all().item<bool>());
    all_reduce_hook(group)(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq((group.size() - 1) / 2.0).all().item<bool>());
    EXPECT_TRUE(bucket.gradients[1].eq(1.0 - group.size()).all().item<bool>());
  });
}

// Each value is rounded once, and the float32 mean of these once more.
Tensor compressed_mean(const Tensor& like, std::size_t place, int step, int size,
                       torch::ScalarType type) {
  Tensor sum = torch::zeros_like(like, torch::kFloat32);
  for (int rank = 0; rank < size; ++rank) {
    sum += gradient_of(like, place, step, rank).to(type).to(torch::kFloat32);
  }
  return (sum * (1.0f / static_cast<float>(size))).to(type).to(like.scalar_type());
}

TEST_P(CommHooks, CompressionRoundsOnceBeforeAndOnceAfterTheMean) {
  run([](ProcessGroup group, int rank) {
    for (const auto type : {torch::kFloat16, torch::kBFloat16}) {
      const CommHook hook =
          type == torch::kFloat16 ? fp16_compress_hook(group) : bf16_compress_hook(group);
      for (const auto wide : {torch::kFloat32, torch::kFloat64}) {
        Model model(Shapes{{33, 5}, {4, 3, 2, 2}, {6}}, wide);
        // The last step has other buckets under the same indices.
        const std::uint64_t layout = wide == torch::kFloat32 ? 0 : 2;
        std::vector<GradBucket> before = {model.bucket(group, {0}, 0, layout),
                                          model.bucket(group, {1, 2}, 1, layout)};
        std::vector<GradBucket> after = {model.bucket(group, {2, 0, 1}, 0, layout + 1)};
        for (int step = 0; step < 3; ++step) {
          std::vector<std::shared_ptr<Work>> works;
          auto& buckets = step < 2 ? before : after;
          for (GradBucket& bucket : buckets) {
            for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
              bucket.gradients[i].copy_(gradient_of(bucket.gradients[i], i, step, rank));
            }
            works.push_back(hook(bucket));
          }
          wait_for_all(works);
          for (GradBucket& bucket : buckets) {
            for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
              const Tensor expected =
                  compressed_mean(bucket.gradients[i], i, step, group.size(), type);
              EXPECT_TRUE(torch::equal(bucket.gradients[i], expected)) << type << " step " << step;
            }
          }
        }
      }
    }
  });
}

TEST_P(CommHooks, TheSumOfFloat16DoesNotOverflow) {
  run([](ProcessGroup group, int) {
    Model model(Shapes{{5}});
    GradBucket bucket = model.bucket(group, {0});
    bucket.gradients[0].fill_(60000);
    fp16_compress_hook(group)(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq(60000).all().item<bool>()) << bucket.gradients[0];
  });
}

TEST_P(CommHooks, ABucketOfTheTypeItselfIsAveragedAsItIs) {
  run([](ProcessGroup group, int rank) {
    Model model(Shapes{{9}}, torch::kBFloat16);
    GradBucket bucket = model.bucket(group, {0});
    bucket.gradients[0].fill_(rank * 2);
    bf16_compress_hook(group)(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq(group.size() - 1).all().item<bool>());
  });
}

TEST_P(CommHooks, WrappersGiveAUsersHookTheCompressedBucket) {
  run([](ProcessGroup group, int rank) {
    Model model(Shapes{{4, 3, 2, 2}, {6}});
    GradBucket bucket = model.bucket(group, {0, 1});
    bucket.gradients[0].fill_(1 + rank);
    bucket.gradients[1].fill_(3);
    GradBucket rebuilt = model.bucket(group, {1, 0}, 0, /*layout=*/1);  // of the same size
    const GradBucket* given = &bucket;
    const CommHook hook = bf16_compress_wrapper(group, [&](GradBucket& inner) {
      EXPECT_EQ(inner.buffer.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(inner.gradients[0].sizes(), given->gradients[0].sizes());
      EXPECT_EQ(inner.gradients[0].strides(), given->gradients[0].strides());
      inner.gradients[1].mul_(10);  // seen by the reduction: a view of the buffer
      return group.async_all_reduce(inner.buffer, ReduceOp::kMax);
    });
    hook(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq(group.size()).all().item<bool>());
    EXPECT_TRUE(bucket.gradients[1].eq(30).all().item<bool>());
    given = &rebuilt;
    hook(rebuilt)->wait();
  });
}

// Stands in for LibTorch's CPU allocator and counts the bytes that are held, by whatever thread.
class CountedMemory final : public c10::Allocator {
 public:
  CountedMemory() : under_(*c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, this, kPriority); }
  ~CountedMemory() override { c10::SetAllocator(c10::kCPU, &under_, kPriority); }
  c10::DataPtr allocate(std::size_t size) override {
    held += static_cast<std::int64_t>(size);
    c10::DataPtr memory = under_.allocate(size);
    void* const data = memory.get();
    return {data, new Block{std::move(memory), size}, &free, c10::DeviceType::CPU};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  // Static, as blocks may outlive the allocator.
  inline static std::atomic<std::int64_t> held = 0;

 private:
  static constexpr std::uint8_t kPriority = 255;
  struct Block {
    c10::DataPtr memory;
    std::size_t size;
  };
  static void free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    held -= static_cast<std::int64_t>(block->size);
  }
  c10::Allocator& under_;
};

TEST(CommHooksMemory, CompressionForgetsBucketsThatARebuildTookAway) {
  static constexpr std::int64_t kElements = 1 << 18;
  CountedMemory memory;
  const auto body = [](ProcessGroup group) {
    const CommHook hook = fp16_compress_hook(group);
    Model model(Shapes{{16}, {kElements}});
    GradBucket first = model.bucket(group, {0}, 0, 0), second = model.bucket(group, {1}, 1, 0);
    GradBucket rebuilt = model.bucket(group, {0}, 0, 1);
    group.barrier();
    const std::int64_t before = CountedMemory::held;
    group.barrier();
    wait_for_all({hook(first), hook(second)});
    group.barrier();
    ASSERT_GE(CountedMemory::held - before, 2 * 4 * kElements)
        << "each of two ranks has a copy to send and one to receive";
    group.barrier();
    hook(rebuilt)->wait();
    // Gloo's threads let go of the last tensors a moment after the waits.
    const Deadline deadline(std::chrono::seconds(10));
    while (CountedMemory::held - before >= kElements && !deadline.expired()) {
      std::this_thread::yield();
    }
    EXPECT_LT(CountedMemory::held - before, kElements);
    group.barrier();
  };
  EXPECT_EQ(run_group(2, "gloo", body), no_errors(2));
}

// What this process has sent through TCP.
std::uint64_t bytes_sent() {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    const int fd = std::stoi(entry.path().filename());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) bytes += info.tcpi_bytes_sent;
  }
  return bytes;
}

TEST(CommHooksTraffic, CompressionHalvesWhatGlooSends) {
  constexpr std::int64_t kElements = 1 << 18;
  EXPECT_EQ(run_group(2, "gloo",
                      [](ProcessGroup group) {
                        Model model(Shapes{{kElements}});
                        GradBucket bucket = model.bucket(group, {0});
                        const auto sent_by = [&](const CommHook& hook) {
                          hook(bucket)->wait();  // connects
                          group.barrier();
                          const std::uint64_t before = bytes_sent();
                          group.barrier();
                          hook(bucket)->wait();
                          group.barrier();
                          const std::uint64_t after = bytes_sent();
                          group.barrier();
                          return static_cast<double>(after - before);
                        };
                        const double plain = sent_by(all_reduce_hook(group));
                        EXPECT_GT(plain, kElements * 4);
                        EXPECT_LT(sent_by(fp16_compress_hook(group)), 0.55 * plain);
                      }),
            no_errors(2));
}

// --- PowerSGD
// ---------------------------------------------------------------------------------------

// One rank's training: gradients of each step into buckets, the hook, and the results by parameter.
class Training {
 public:
  Training(ProcessGroup group, PowerSgd& power_sgd, Model& model)
      : group_(std::move(group)), hook_(power_sgd.hook()), model_(model) {}

  void arrange(const std::vector<std::vector<std::size_t>>& members) {
    members_ = members;
    buckets_.clear();
    ++layout_;
    for (std::size_t i = 0; i < members.size(); ++i)
      buckets_.push_back(model_.bucket(group_, members[i], i, layout_));
  }
  std::vector<Tensor> step(
      const std::function<Tensor(const Tensor& like, std::size_t place)>& gradient) {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (std::size_t i = 0; i < members_[b].size(); ++i) {
        buckets_[b].gradients[i].copy_(gradient(buckets_[b].gradients[i], members_[b][i]));
      }
      works.push_back(hook_(buckets_[b]));
    }
    wait_for_all(works);
    std::vector<Tensor> results(model_.parameters().size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (std::size_t i = 0; i < members_[b].size(); ++i) {
        results[members_[b][i]] = buckets_[b].gradients[i].clone();
      }
    }
    return results;
  }
  std::vector<Tensor> random_step(int step_number) {
    return step([&](const Tensor& like, std::size_t place) {
      return gradient_of(like, place, step_number, group_.rank());
    });
  }

 private:
  ProcessGroup group_;
  CommHook hook_;
  Model& model_;
  std::vector<std::vector<std::size_t>> members_;
  std::vector<GradBucket> buckets_;
  std::uint64_t layout_ = 0;
};

// Two of one shape, a convolution in channels_last, and a vector that travels whole.
const Shapes kShapes = {{20, 30}, {8, 6, 3, 3}, {20, 30}, {11}};
const PowerSgdOptions kAtOnce{.start_power_sgd_iter = 0};

TEST_P(CommHooks, PowerSgdSendsWhatHasLowRankExactly) {
  run([](ProcessGroup group, int rank) {
    struct Setting {
      std::int64_t rank;
      double epsilon;
      bool batch;
    };
    for (const auto& [approximation, epsilon, batch] :
         {Setting{1, 0, false}, Setting{1, 1e-8, true}, Setting{3, 0, true}}) {
      for (const auto type : {torch::kFloat32, torch::kFloat64}) {
        PowerSgd power_sgd(group, {.matrix_approximation_rank = approximation,
                                   .start_power_sgd_iter = 0,
                                   .min_compression_rate = 1,
                                   .orthogonalization_epsilon = epsilon,
                                   .batch_tensors_with_same_shape = batch});
        Model model(kShapes, type);
        Training training(group, power_sgd, model);
        training.arrange({{3, 2}, {1, 0}});
        for (int step = 0; step < 2; ++step) {
          const auto low_rank = [&](const Tensor& like, std::size_t place, int of_rank) {
            const Tensor rows = random_like(like.flatten(1).narrow(1, 0, 1), place + 1);
            const Tensor columns = random_like(like.flatten(1).narrow(0, 0, 1), place + 7);
            return (rows * columns * (1 + of_rank + step)).view(like.sizes());
          };
          const auto results = training.step([&](const Tensor& like, std::size_t place) {
            return place == 3 ? torch::full_like(like, rank) : low_rank(like, place, rank);
          });
          for (std::size_t i = 0; i < 3; ++i) {
            Tensor mean = torch::zeros_like(results[i]);
            for (int of = 0; of < group.size(); ++of)
              mean += low_rank(results[i], i, of) / group.size();
            EXPECT_LT(relative_error(results[i], mean),
                      epsilon == 0 && type == torch::kFloat64 ? 1e-13 : 3e-6)
                << "rank " << approximation << " parameter " << i << " step " << step;
          }
          EXPECT_TRUE(results[3].eq((group.size() - 1) / 2.0).all().item<bool>());
        }
      }
    }
  });
}

// What the results lack is what the ranks still keep: nothing is lost.
TEST_P(CommHooks, PowerSgdKeepsTheErrorForTheNextStep) {
  run([](ProcessGroup group, int) {
    PowerSgd power_sgd(group, kAtOnce);
    Model model(kShapes);
    Training training(group, power_sgd, model);
    training.arrange({{3, 2, 1, 0}});
    std::vector<Tensor> sent(4), wanted(4);
    for (int step = 0; step < 4; ++step) {
      const auto results = training.random_step(step);
      for (std::size_t i = 0; i < 4; ++i) {
        const Tensor mean = mean_of(results[i], i, step, group.size());
        sent[i] = sent[i].defined() ? sent[i] + results[i] : results[i].to(torch::kFloat64);
        wanted[i] = wanted[i].defined() ? wanted[i] + mean : mean;
        Tensor first = results[i].clone();
        group.broadcast(first);
        EXPECT_TRUE(torch::equal(first, results[i])) << "ranks differ";
      }
      EXPECT_GT(relative_error(sent[0], wanted[0]), 0.1) << "rank 1 cannot send it all";
    }
    for (auto& [name, error] : power_sgd.state_dict(model)) {
      if (!name.starts_with("error.p")) continue;
      const std::size_t i = name.back() - '0';
      group.all_reduce(error, ReduceOp::kAverage);
      // In the order of memory, in which channels come last.
      const Tensor of_shape = i == 1 ? error.view({8, 3, 3, 6}).permute({0, 3, 1, 2}) : error;
      sent[i] += of_shape;
    }
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_LT(relative_error(sent[i], wanted[i]), 1e-6) << i;
  });
}

// Of a gradient that stays the same, power iteration finds the best approximation; random Q do not.
TEST(PowerSgd, WarmStartApproachesTheBestApproximation) {
  for (const bool warm : {true, false}) {
    EXPECT_EQ(run_group(2, "shm",
                        [&](ProcessGroup group) {
                          PowerSgd power_sgd(group, {.matrix_approximation_rank = 2,
                                                     .start_power_sgd_iter = 0,
                                                     .use_error_feedback = false,
                                                     .warm_start = warm});
                          Model model(Shapes{{20, 30}});
                          Training training(group, power_sgd, model);
                          training.arrange({{0}});
                          Tensor result;
                          for (int step = 0; step < 40; ++step) result = training.random_step(0)[0];
                          const Tensor mean = mean_of(result, 0, 0, 2);
                          const Tensor values = at::linalg_svdvals(mean);
                          const double best = values.slice(0, 2).norm().item<double>();
                          const double reached = (mean - result).norm().item<double>();
                          if (warm) {
                            EXPECT_LT(reached, 1.001 * best);
                          } else {
                            EXPECT_GT(reached, 1.01 * best);
                          }
                        }),
              no_errors(2));
  }
}

TEST(PowerSgd, StartsAfterTheGivenStepsAndCounts) {
  EXPECT_EQ(
      run_group(
          2, "shm",
          [](ProcessGroup group) {
            PowerSgd power_sgd(group, {.start_power_sgd_iter = 2});
            Model model(Shapes{{20, 30}, {5}});
            Training training(group, power_sgd, model);
            training.arrange({{1}, {0}});
            for (int step = 0; step < 4; ++step) {
              EXPECT_EQ(power_sgd.statistics().iterations, step);
              const auto results = training.random_step(step);
              const bool exact =
                  relative_error(results[0], mean_of(results[0], 0, step, 2)) < 1e-6;
              EXPECT_EQ(exact, step < 2) << step;
              EXPECT_LT(relative_error(results[1], mean_of(results[1], 1, step, 2)), 1e-6)
                  << "a vector";
              EXPECT_EQ(power_sgd.statistics().elements_before_compression,
                        std::max(0, step - 1) * 605);
              EXPECT_EQ(power_sgd.statistics().elements_after_compression,
                        std::max(0, step - 1) * 55);
            }
            EXPECT_DOUBLE_EQ(power_sgd.statistics().compression_rate(), 11);
          }),
      no_errors(2));
}

// The buckets of the second half are others than those of the first.
TEST_P(CommHooks, PowerSgdGoesOnAfterARestartAndARebuild) {
  run([](ProcessGroup group, int) {
    for (const bool warm : {true, false}) {
      const PowerSgdOptions options{
          .matrix_approximation_rank = 2, .start_power_sgd_iter = 1, .warm_start = warm};
      Model model(kShapes);
      PowerSgd first(group, options), second(group, options);
      Training training(group, first, model), resumed(group, second, model);
      training.arrange({{3, 2}, {1, 0}});
      for (int step = 0; step < 3; ++step) training.random_step(step);
      const auto state = first.state_dict(model);
      second.load_state_dict(model, state);
      EXPECT_EQ(second.statistics().iterations, 3);
      // With random numbers in each step, the arrangement decides who gets which.
      const std::vector<std::vector<std::size_t>> rebuilt = {{0, 1, 2}, {3}};
      training.arrange(rebuilt);
      resumed.arrange(rebuilt);
      for (int step = 3; step < 5; ++step) {
        const auto expected = training.random_step(step), got = resumed.random_step(step);
        for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
      }
      if (!warm) continue;
      PowerSgd whole(group, options);
      Training unchanged(group, whole, model);
      unchanged.arrange({{3, 2}, {1, 0}});
      for (int step = 0; step < 5; ++step) {
        const auto expected = unchanged.random_step(step);
        if (step != 4) continue;
        const auto again = first.state_dict(model), here = whole.state_dict(model);
        ASSERT_EQ(again.size(), 2 + 2 * 3);
        for (std::size_t i = 0; i < again.size(); ++i) {
          EXPECT_EQ(again[i].first, here[i].first);
          // Over Gloo the order of additions depends on the place in the buffer.
          EXPECT_LT(relative_error(again[i].second, here[i].second), 1e-4)
              << again[i].first << ": the rebuild lost it";
        }
      }
    }
  });
}

// An unused layer's gradient of zero makes Q zero, which must not stay so, nor become NaN.
TEST(PowerSgd, RecoversFromZeroAndFromInfinity) {
  for (const double epsilon : {0.0, 1e-8}) {
    EXPECT_EQ(
        run_group(
            2, "shm",
            [&](ProcessGroup group) {
              PowerSgd power_sgd(group,
                                 {.start_power_sgd_iter = 0, .orthogonalization_epsilon = epsilon});
              Model model(Shapes{{20, 30}});
              Training training(group, power_sgd, model);
              training.arrange({{0}});
              const auto ones = [](double value) {
                return [value](const Tensor& like, std::size_t) {
                  return torch::full_like(like, value);
                };
              };
              EXPECT_TRUE(training.step(ones(0))[0].eq(0).all().item<bool>());
              EXPECT_LT(relative_error(training.step(ones(2))[0], torch::full({20, 30}, 2)),
                        1e-6);
              const double infinite =
                  group.rank() == 1 ? std::numeric_limits<double>::infinity() : 2.0;
              EXPECT_TRUE(training.step(ones(infinite))[0].isnan().all().item<bool>())
                  << "seen on both ranks";
              EXPECT_LT(relative_error(training.step(ones(2))[0], torch::full({20, 30}, 2)),
                        1e-6);
            }),
        no_errors(2));
  }
}

// M and P fit into float16, Q does not: of rank 0 alone, but all ranks must begin anew.
TEST(PowerSgd, RecoversFromAQThatOverflows) {
  enum class Then { kGoesOn, kIsRebuilt, kIsResumed };
  for (const Then then : {Then::kGoesOn, Then::kIsRebuilt, Then::kIsResumed}) {
    const auto body = [then](ProcessGroup group) {
      PowerSgd power_sgd(group, kAtOnce), other(group, kAtOnce);
      Model model(Shapes{{64, 64}}, torch::kFloat16);
      Training training(group, power_sgd, model), resumed(group, other, model);
      training.arrange({{0}});
      const auto filled = [](Training& with, double value) {
        return with.step(
            [value](const Tensor& like, std::size_t) { return torch::full_like(like, value); })[0];
      };
      EXPECT_TRUE(filled(training, group.rank() == 0 ? 20000 : 2).isnan().all().item<bool>());
      const auto state = power_sgd.state_dict(model);
      EXPECT_EQ(state.size(), 3) << "iteration, seeds and error, but no Q";
      if (then == Then::kIsRebuilt) training.arrange({{0}});
      if (then == Then::kIsResumed) {
        other.load_state_dict(model, state);
        resumed.arrange({{0}});
      }
      for (int step = 0; step < 2; ++step) {
        const Tensor result = filled(then == Then::kIsResumed ? resumed : training, 2);
        EXPECT_LT(relative_error(result, torch::full({64, 64}, 2)), 3e-3)
            << static_cast<int>(then) << " step " << step;
      }
    };
    EXPECT_EQ(run_group(2, "shm", body), no_errors(2));
  }
}

TEST(PowerSgd, CompressesInsideOfACastAndWithoutErrorFeedback) {
  EXPECT_EQ(
      run_group(
          2, "shm",
          [](ProcessGroup group) {
            PowerSgd power_sgd(group, {.start_power_sgd_iter = 0,
                                       .use_error_feedback = false,
                                       .batch_tensors_with_same_shape = true});
            const CommHook hook = fp16_compress_wrapper(group, power_sgd.hook());
            Model model(Shapes{{20, 30}, {20, 30}});
            GradBucket bucket = model.bucket(group, {0, 1});
            bucket.gradients[0].fill_(1 + group.rank());
            bucket.gradients[1].fill_(-3);
            hook(bucket)->wait();
            EXPECT_LT(relative_error(bucket.gradients[0], torch::full({20, 30}, 1.5)), 3e-3);
            EXPECT_LT(relative_error(bucket.gradients[1], torch::full({20, 30}, -3)), 3e-3);
          }),
      no_errors(2));
}

template <class Expected>
void expect_error(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    ADD_FAILURE() << "no error that says " << text;
  } catch (const Expected& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(CommHooksErrors, SayWhatCannotBe) {
  EXPECT_EQ(
      run_group(
          1, "auto",
          [](ProcessGroup group) {
            for (const auto& [options, text] : std::vector<std::pair<PowerSgdOptions, std::string>>{
                     {{.matrix_approximation_rank = 0},
                      "matrix_approximation_rank must be at least 1, got 0"},
                     {{.start_power_sgd_iter = -1},
                      "start_power_sgd_iter must be at least 0, got -1"},
                     {{.min_compression_rate = 0}, "min_compression_rate must be above 0, got 0"},
                     {{.orthogonalization_epsilon = -1},
                      "orthogonalization_epsilon must be at least 0, got -1"}}) {
              expect_error<ConfigError>([&, &options = options] { PowerSgd(group, options); },
                                        text);
            }
            expect_error<ConfigError>([&] { post_local_sgd_hook(group, std::nullopt, -1); },
                                      "got -1");
            expect_error<ConfigError>([&] { PeriodicModelAverager(group, {}, {.period = 0}); },
                                      "got 0, 0 and 0");

            const Model model(Shapes{{20, 30}});
            PowerSgd power_sgd(group);
            const auto one = torch::tensor(std::int64_t{1});
            const PowerSgd::NamedTensors good = {{"iteration", one}, {"seeds_drawn", one}};
            for (const auto& [name, shape, text] :
                 std::vector<std::tuple<std::string, std::vector<std::int64_t>, std::string>>{
                     {"q.p0", {20, 1}, "'q.p0' has shape [20, 1], expected [30, 1]"},
                     {"error.p0", {600}, "'error.p0' has shape [600], expected [20, 30]"},
                     {"q.p1", {30, 1}, "'q.p1', which is no parameter of the module"},
                     {"p0", {20, 30}, "'p0', which is no parameter of the module"}}) {
              auto state = good;
              state.emplace_back(name, torch::zeros(shape));
              expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, state); }, text);
            }
            expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, {good[0]}); },
                                          "no 'seeds_drawn'");
            EXPECT_EQ(power_sgd.statistics().iterations, 0) << "nothing was changed";
          }),
      no_errors(1));
}

// --- Post-local SGD
// ---------------------------------------------------------------------------------

TEST(PostLocalSgd, AveragesGloballyThenInsideOfSubgroupsThenNotAtAll) {
  for (const std::string backend : {"shm", "gloo"}) {
    EXPECT_EQ(run_group(4, backend,
                        [](ProcessGroup group) {
                          const int rank = group.rank();
                          const auto pair = group.split(rank / 2);
                          const CommHook with_pair = post_local_sgd_hook(group, pair, 2);
                          const CommHook alone = post_local_sgd_hook(group, std::nullopt, 1);
                          Model model(Shapes{{3}, {4}});
                          std::vector<GradBucket> buckets = {model.bucket(group, {1}, 0),
                                                             model.bucket(group, {0}, 1)};
                          const double of_pair = rank / 2 * 2 + 0.5;
                          for (int step = 0; step < 3; ++step) {
                            for (const auto& [hook, expected] :
                                 {std::pair(with_pair, step < 2 ? 1.5 : of_pair),
                                  std::pair(alone, step < 1 ? 1.5 : rank)}) {
                              for (GradBucket& bucket : buckets) {
                                bucket.buffer.fill_(rank);
                                hook(bucket)->wait();
                                EXPECT_TRUE(bucket.gradients[0].eq(expected).all().item<bool>())
                                    << "step " << step;
                              }
                            }
                          }
                        }),
              no_errors(4));
  }
}

TEST(PostLocalSgd, AveragesParametersEveryPeriod) {
  EXPECT_EQ(run_group(2, "shm",
                      [](ProcessGroup group) {
                        torch::nn::Module module;
                        module.register_parameter("a", torch::zeros({3}));
                        module.register_parameter("b", torch::zeros({2, 2}, torch::kFloat64));
                        module.register_parameter("frozen", torch::zeros({2}),
                                                  /*requires_grad=*/false);
                        PeriodicModelAverager averager(group, module.parameters(),
                                                       {.period = 2, .warmup_steps = 1});
                        PeriodicModelAverager resumed(
                            group, {}, {.period = 2, .warmup_steps = 1, .first_step = 3});
                        for (int step = 0; step < 5; ++step) {
                          const torch::NoGradGuard no_grad;
                          for (auto& parameter : module.parameters())
                            parameter.fill_(group.rank() + step);
                          const bool averages = step == 1 || step == 3;
                          EXPECT_EQ(averager.average_parameters(), averages);
                          for (const auto& item : module.named_parameters()) {
                            const double expected =
                                step + (averages && item.key() != "frozen" ? 0.5 : group.rank());
                            EXPECT_TRUE(item.value().eq(expected).all().item<bool>())
                                << item.key() << " step " << step;
                          }
                        }
                        EXPECT_TRUE(resumed.average_parameters());
                        EXPECT_EQ(resumed.step(), 4);
                      }),
            no_errors(2));
}

// --- Through DistributedDataParallel
// ----------------------------------------------------------------

struct HookNetImpl : torch::nn::Module {
  HookNetImpl()
      : fc1(register_module("fc1", torch::nn::Linear(6, 8))),
        fc2(register_module("fc2", torch::nn::Linear(8, 3))) {
    const torch::NoGradGuard no_grad;
    std::uint64_t seed = 0;
    for (auto& parameter : parameters()) parameter.copy_(random_like(parameter, ++seed));
  }
  Tensor forward(const Tensor& x) { return fc2(torch::tanh(fc1(x))); }
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(HookNet);

// Largest relative difference of the gradients from `factor` times the mean's, over some steps: the
// buckets (two of them) are rebuilt after the first.
double difference_from_mean(ProcessGroup group, const CommHook& hook, double factor = 1) {
  const DdpOptions options{.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4};
  HookNet plain_net, hooked_net;
  DistributedDataParallel<HookNet> plain(plain_net, group, options), hooked(hooked_net, group, options);
  hooked.register_comm_hook(hook);
  double largest = 0;
  for (int step = 0; step < 3; ++step) {
    const Tensor x =
        random_like(torch::zeros({5, 6}), static_cast<std::uint64_t>(10 * step + group.rank() + 1));
    for (auto* ddp : {&plain, &hooked}) {
      ddp->module()->zero_grad();
      ddp->forward(x).pow(2).sum().backward();
    }
    for (std::size_t i = 0; i < plain_net->parameters().size(); ++i) {
      largest = std::max(largest, relative_error(hooked_net->parameters()[i].grad(),
                                                      factor * plain_net->parameters()[i].grad()));
    }
  }
  return largest;
}

TEST_P(CommHooks, WorkInBackward) {
  run([](ProcessGroup group, int) {
    EXPECT_EQ(difference_from_mean(group, all_reduce_hook(group)), 0);
    EXPECT_LT(difference_from_mean(group, fp16_compress_hook(group)), 2e-3);
    EXPECT_LT(difference_from_mean(group, bf16_compress_hook(group)), 2e-2);
    // A product of full rank lacks nothing.
    PowerSgd power_sgd(
        group,
        {.matrix_approximation_rank = 8, .start_power_sgd_iter = 0, .min_compression_rate = 0.01});
    EXPECT_LT(difference_from_mean(group, power_sgd.hook()), 1e-5);
    EXPECT_EQ(power_sgd.statistics().iterations, 3);
    const CommHook of_user = [group](GradBucket& bucket) mutable {
      bucket.buffer.mul_(-2);
      return group.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
    };
    EXPECT_LT(difference_from_mean(group, of_user, -2), 1e-6);
  });
}

TEST(CommHooksErrors, AHookThatReturnsNothingIsRefusedAlsoInsideOfACast) {
  const CommHook hook = [](GradBucket&) { return nullptr; };
  const auto body = [&](ProcessGroup group, bool cast) {
    expect_error<ConfigError>(
        [&] { difference_from_mean(group, cast ? fp16_compress_wrapper(group, hook) : hook); },
        "a communication hook returned no Work; return a completed one instead");
  };
  for (const bool cast : {false, true}) {
    EXPECT_EQ(run_group(1, "auto", [&](ProcessGroup group) { body(group, cast); }), no_errors(1));
  }
}

TEST(CommHooksErrors, AHookThatThrowsEndsTheBackwardOfAllRanks) {
  for (const std::string backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [](ProcessGroup group) {
      difference_from_mean(group, [group](GradBucket& bucket) mutable {
        if (group.rank() == 1 && bucket.index == 1) throw std::runtime_error("the hook had enough");
        return group.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
      });
    });
    EXPECT_EQ(errors[1], "the hook had enough") << backend;
    EXPECT_THAT(errors[0], HasSubstr("the hook had enough")) << backend;
  }
}

}  // namespace
}  // namespace lockstep
