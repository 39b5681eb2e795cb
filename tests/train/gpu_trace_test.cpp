// GpuTrace on events from a double of LibTorch's CUDA profiler interface. No GPU is needed.
#include <lockstep/train/measuring/gpu_trace.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include <lockstep/core/trace/span_recorder.h>

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

// The stream's time advances by one second per event.
class CudaDouble final : public ProfilerStubs {
 public:
  void record(c10::DeviceIndex*, ProfilerVoidEventStub* event, std::int64_t*) const override {
    if (fails) throw std::runtime_error("no such device");
    *event = std::make_shared<double>(now);
    now += 1e6;
  }
  float elapsed(const ProfilerVoidEventStub* first,
                const ProfilerVoidEventStub* second) const override {
    return static_cast<float>(*static_cast<const double*>(second->get()) -
                              *static_cast<const double*>(first->get()));
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { ranges.emplace_back(name); }
  void rangePop() const override { ranges.emplace_back("end"); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override { op(0); }
  void synchronize() const override {}

  mutable double now = 0;
  mutable std::vector<std::string> ranges{};
  bool fails = false;
};

class GpuTraceTest : public ::testing::Test {
 protected:
  GpuTraceTest() : before_(torch::profiler::impl::cudaStubs()) {
    torch::profiler::impl::registerCUDAMethods(&cuda_);
    start_recording();
  }
  ~GpuTraceTest() override {
    stop_recording(Clock::time_point::max());
    torch::profiler::impl::registerCUDAMethods(const_cast<ProfilerStubs*>(before_));
  }

  CudaDouble cuda_;

 private:
  const ProfilerStubs* const before_;
};

TEST_F(GpuTraceTest, HasAnNvtxRangeForEachScopeAndAGpuSpanForEachPhase) {
  GpuTrace::instance().start();
  {
    const SpanScope step("step", "step", 3);
    const SpanScope phase("forward", "phase");
  }
  {
    const SpanScope phase("optimizer", "phase");
  }
  std::thread([] { const SpanScope load("load batch", "data", 7); }).join();
  const Clock::time_point until = Clock::now();
  const std::vector<Span> spans = GpuTrace::instance().stop(Clock::time_point::min());
  EXPECT_THAT(cuda_.ranges, ElementsAre("step 3", "forward", "end", "end", "optimizer", "end",
                                        "load batch 7", "end"));
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "forward");
  EXPECT_EQ(spans[1].name, "optimizer");
  for (const Span& span : spans) {
    EXPECT_EQ(span.category, "gpu");
    EXPECT_EQ(span.end - span.begin, std::chrono::seconds(1));
  }
  EXPECT_EQ(spans[1].begin - spans[0].end, std::chrono::seconds(1));
  // The stream has finished when GpuTrace reads the clock.
  EXPECT_GE(spans[1].end + std::chrono::seconds(1), until);
}

TEST_F(GpuTraceTest, LeavesOutWhatEndedBefore) {
  GpuTrace::instance().start();
  for (int i = 0; i < 5; ++i) const SpanScope phase("forward", "phase");
  // The last phase ended one second ago, the one before it three seconds ago.
  const auto spans = GpuTrace::instance().stop(Clock::now() - std::chrono::milliseconds(2500));
  EXPECT_EQ(spans.size(), 1U);
}

TEST_F(GpuTraceTest, ForgetsTheOldestPhases) {
  GpuTrace::instance().start();
  for (int i = 0; i < 5000; ++i) const SpanScope phase("forward", "phase");
  EXPECT_EQ(GpuTrace::instance().stop(Clock::time_point::min()).size(), 4095U);
}

TEST_F(GpuTraceTest, GoesWithoutEventsThatFail) {
  cuda_.fails = true;
  GpuTrace::instance().start();
  {
    const SpanScope phase("forward", "phase");
  }
  EXPECT_THAT(GpuTrace::instance().stop(Clock::time_point::min()), IsEmpty());
  EXPECT_THAT(cuda_.ranges, ElementsAre("forward", "end"));
  {
    const SpanScope phase("optimizer", "phase");
  }
  EXPECT_THAT(cuda_.ranges, ElementsAre("forward", "end")) << "no ranges without a trace";
}

}  // namespace
}  // namespace lockstep::train
