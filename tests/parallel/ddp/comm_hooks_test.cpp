// Communication hooks with ranks as threads, on hand-made buckets and through
// DistributedDataParallel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/ddp/phased_work.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/parallel/ddp/comm_hook_cases.h>
#include <tests/support/groups.h>

namespace lockstep::parallel {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::CommHooks;
using testing_support::expect_error;
using testing_support::gradient_of;
using testing_support::HookCase;
using testing_support::Model;
using testing_support::no_errors;
using testing_support::random_like;
using testing_support::relative_error;
using testing_support::run_group;
using testing_support::Shapes;
using torch::Tensor;

// --- PhasedWork ----------------------------------------------------------------------------------

// Writes to `log` when somebody waits for it.
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

TEST_F(PhasedWorkTest, PhasesShareOneTimeout) {
  // Takes 20 ms, and says how much time it was given.
  class SlowWork final : public Work {
   public:
    explicit SlowWork(std::vector<std::optional<std::chrono::milliseconds>>& given)
        : given_(given) {}
    void wait(std::optional<std::chrono::milliseconds> timeout) override {
      given_.push_back(timeout);
      std::this_thread::sleep_for(20ms);
    }
    bool is_completed() override { return true; }
    std::exception_ptr error() const override { return nullptr; }

   private:
    std::vector<std::optional<std::chrono::milliseconds>>& given_;
  };
  std::vector<std::optional<std::chrono::milliseconds>> given;
  const auto slow = [&] { return std::make_shared<SlowWork>(given); };
  PhasedWork(slow(), {slow, slow}).wait(60'000ms);
  ASSERT_EQ(given.size(), 3);
  EXPECT_LE(*given[0], 60'000ms);
  EXPECT_LE(*given[1], 59'980ms);
  EXPECT_LE(*given[2], 59'960ms);
  given.clear();
  PhasedWork(slow(), {slow}).wait();
  EXPECT_THAT(given, ElementsAre(std::nullopt, std::nullopt));
}

TEST_F(PhasedWorkTest, AllStartTheirNextPhaseBeforeAnyIsWaitedFor) {
  const auto nested = std::make_shared<PhasedWork>(two_phases("n"), std::vector{phase("n3")});
  detail::wait_for_all({two_phases("a"), nested, logged("plain")});
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

// Two ranks over Gloo are covered by the PyTorch oracle.
INSTANTIATE_TEST_SUITE_P(
    Cases, CommHooks, testing::Values(HookCase{"shm", 2}, HookCase{"shm", 3}, HookCase{"gloo", 3}),
    [](const auto& info) { return info.param.backend + std::to_string(info.param.size); });

// --- Stateless hooks -----------------------------------------------------------------------------

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

// Each value is rounded once, and so is the float32 mean of the rounded values.
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
        // The last step uses different buckets with the same indices.
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
          detail::wait_for_all(works);
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
    GradBucket rebuilt = model.bucket(group, {1, 0}, 0, /*layout=*/1);  // same size, other order
    const GradBucket* given = &bucket;
    const CommHook hook = bf16_compress_wrapper(group, [&](GradBucket& inner) {
      EXPECT_EQ(inner.buffer.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(inner.is_last, given->is_last);
      EXPECT_EQ(inner.gradients[0].sizes(), given->gradients[0].sizes());
      EXPECT_EQ(inner.gradients[0].strides(), given->gradients[0].strides());
      inner.gradients[1].mul_(10);  // writes through to the buffer, which the reduction then sends
      return group.async_all_reduce(inner.buffer, ReduceOp::kMax);
    });
    hook(bucket)->wait();
    EXPECT_TRUE(bucket.gradients[0].eq(group.size()).all().item<bool>());
    EXPECT_TRUE(bucket.gradients[1].eq(30).all().item<bool>());
    bucket.is_last = true;
    hook(bucket)->wait();
    given = &rebuilt;
    hook(rebuilt)->wait();
  });
}

// Replaces LibTorch's CPU allocator and counts the bytes held by all threads.
class CountedMemory final : public c10::Allocator {
 public:
  CountedMemory() : under_(*c10::GetAllocator(c10::kCPU)) {
    c10::SetAllocator(c10::kCPU, this, kPriority);
  }
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
  // Static, because blocks may outlive the allocator.
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
    detail::wait_for_all({hook(first), hook(second)});
    group.barrier();
    ASSERT_GE(CountedMemory::held - before, 2 * 4 * kElements)
        << "each of two ranks has a copy to send and one to receive";
    group.barrier();
    hook(rebuilt)->wait();
    // Gloo's threads release the last tensors shortly after the waits return.
    const Deadline deadline(std::chrono::seconds(10));
    while (CountedMemory::held - before >= kElements && !deadline.expired()) {
      std::this_thread::yield();
    }
    EXPECT_LT(CountedMemory::held - before, kElements);
    group.barrier();
  };
  EXPECT_EQ(run_group(2, "gloo", body), no_errors(2));
}

// The bytes that this process has sent through TCP.
std::uint64_t bytes_sent() {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    const int fd = std::stoi(entry.path().filename());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
      bytes += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    }
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
                          hook(bucket)->wait();  // connects the ranks first
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

// --- Through DistributedDataParallel -------------------------------------------------------------

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

// The largest relative difference between the gradients and `factor` times their mean over several
// steps. The two buckets are rebuilt after the first step.
double difference_from_mean(ProcessGroup group, const CommHook& hook, double factor = 1) {
  const DdpOptions options{.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4};
  HookNet plain_net, hooked_net;
  DistributedDataParallel<HookNet> plain(plain_net, group, options),
      hooked(hooked_net, group, options);
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
    // An approximation of full rank is exact.
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

// A user's hook gets the real and imaginary parts of complex gradients, in the memory of the cast.
TEST(CommHooksComplex, WrappersGiveAUsersHookRealGradients) {
  const auto body = [](ProcessGroup group) {
    Model model(Shapes{{4, 3}, {5}}, torch::kComplexFloat);
    GradBucket bucket = model.bucket(group, {0, 1});
    const double rank = group.rank();
    bucket.gradients[0].fill_(c10::complex<double>(1, rank));
    bucket.gradients[1].fill_(c10::complex<double>(3 + rank, -2));
    const CommHook hook = bf16_compress_wrapper(group, [&](GradBucket& inner) {
      EXPECT_EQ(inner.buffer.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(inner.buffer.numel(), 2 * bucket.buffer.numel());
      EXPECT_EQ(inner.gradients[0].sizes().vec(), (std::vector<std::int64_t>{4, 3, 2}));
      EXPECT_EQ(inner.gradients[1].sizes().vec(), (std::vector<std::int64_t>{5, 2}));
      EXPECT_TRUE(inner.gradients[0].select(2, 1).eq(rank).all().item<bool>());
      inner.gradients[1].mul_(10);
      return group.async_all_reduce(inner.buffer, ReduceOp::kAverage);
    });
    hook(bucket)->wait();
    const Tensor first = at::view_as_real(bucket.gradients[0]);
    const Tensor second = at::view_as_real(bucket.gradients[1]);
    EXPECT_TRUE(first.select(2, 0).eq(1).all().item<bool>());
    EXPECT_TRUE(first.select(2, 1).eq(0.5).all().item<bool>());
    EXPECT_TRUE(second.select(1, 0).eq(35).all().item<bool>());
    EXPECT_TRUE(second.select(1, 1).eq(-20).all().item<bool>());
  };
  EXPECT_EQ(run_group(2, "shm", body), no_errors(2));
}

}  // namespace
}  // namespace lockstep::parallel
