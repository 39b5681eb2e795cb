// DALI's side of the engine: the module, loaded when it is first needed, and a pipeline in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/data/augment/dali/module.h>
#include <lockstep/data/augment/dali/plan.h>

namespace lockstep {

struct DaliPipelineOptions {
  std::int64_t batch_size = 1;  ///< At most, of a batch.
  int threads = 1;   ///< DALI's own; they run on the processors of the thread that makes it.
  int prefetch = 2;  ///< Batches under way at once.
  int gpu = -1;      ///< Number of the GPU that executes the operators; -1: none.
};

/// What the pipeline made of a batch, in memory of its own: on the GPU, or the processor's.
class DaliOutput {
 public:
  DaliOutput() = default;
  DaliOutput(const lockstep_dali_functions_v1* functions, const lockstep_dali_output& output)
      : functions_(functions), output_(output) {}
  DaliOutput(DaliOutput&& other) noexcept { *this = std::move(other); }
  DaliOutput& operator=(DaliOutput&& other) noexcept {
    std::swap(functions_, other.functions_);
    std::swap(output_, other.output_);
    return *this;
  }
  ~DaliOutput() {
    if (output_.handle != nullptr) functions_->release(output_.handle);
  }

  void* data() const { return output_.data; }
  std::size_t bytes() const { return output_.bytes; }

 private:
  const lockstep_dali_functions_v1* functions_ = nullptr;
  lockstep_dali_output output_{};
};

/// The images of a batch, where they lie: files, or pixels in the order of the plan.
struct DaliImages {
  std::span<const void* const> data;
  std::span<const std::int64_t>
      shapes;  ///< For each input: its bytes; or channels and sizes, in order.
};

/// Makes batches by a DaliPlan. What it is fed is not copied. One thread calls at a time.
class DaliPipeline {
 public:
  /// ConfigError where the module or DALI is not there, or refuses the plan.
  DaliPipeline(const DaliPlan& plan, const DaliPlanOptions& plan_options,
               const DaliPipelineOptions& options);
  ~DaliPipeline();
  DaliPipeline(const DaliPipeline&) = delete;
  DaliPipeline& operator=(const DaliPipeline&) = delete;

  /// Begins a batch; `images` and `numbers` must stay until pop() has returned it. DataError when
  /// DALI refuses it.
  void run(const DaliImages& images, const DaliNumbers& numbers);
  /// Waits for the oldest batch that was begun. DataError, with DALI's text, when it failed; then
  /// the pipeline is of no more use.
  DaliOutput pop();

 private:
  const lockstep_dali_functions_v1* functions_;
  void* pipeline_ = nullptr;
  std::vector<std::int64_t> counts_;  // of the numbers of each input, for the border
  std::vector<lockstep_dali_feed> feeds_;
};

}  // namespace lockstep
