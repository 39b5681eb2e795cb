// DALI's side of the engine: the module, which is loaded on first use, and a pipeline in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/data/augment/dali/module.h>
#include <lockstep/data/augment/dali/plan.h>

namespace lockstep::data {

struct DaliPipelineOptions {
  std::int64_t batch_size = 1;  ///< The largest size of a batch.
  int threads = 1;   ///< DALI's own threads, on the processors of the thread that creates them.
  int prefetch = 2;  ///< Batches in flight at once.
  int gpu = -1;      ///< Index of the GPU that executes the operators; -1: none.
};

/// The pipeline's output for a batch, in the pipeline's own memory: on the GPU or the host.
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

/// Views of the images of a batch: files, or pixels in the plan's layout.
struct DaliImages {
  std::span<const void* const> data;
  std::span<const std::int64_t>
      shapes;  ///< For each file, its bytes; for pixels, three sizes in the order of the layout.
};

/// Makes batches according to a DaliPlan. Does not copy its inputs. Not thread-safe.
class DaliPipeline {
 public:
  /// Throws a ConfigError if the module or DALI is missing, or DALI rejects the plan.
  DaliPipeline(const DaliPlan& plan, const DaliPlanOptions& plan_options,
               const DaliPipelineOptions& options);
  ~DaliPipeline();
  DaliPipeline(const DaliPipeline&) = delete;
  DaliPipeline& operator=(const DaliPipeline&) = delete;

  /// Starts a batch. `images` and `numbers` must stay valid until pop() has returned the batch.
  /// Throws a DataError if DALI rejects it.
  void run(const DaliImages& images, const DaliNumbers& numbers);
  /// Waits for the oldest batch that was started. Throws a DataError with DALI's message if the
  /// batch failed; the pipeline cannot be used after that.
  DaliOutput pop();

 private:
  const lockstep_dali_functions_v1* functions_;
  void* pipeline_ = nullptr;
  std::vector<std::int64_t> counts_;  // numbers of each input, for the module
  std::vector<lockstep_dali_feed> feeds_;
};

}  // namespace lockstep::data
