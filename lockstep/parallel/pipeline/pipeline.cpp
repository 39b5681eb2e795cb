#include <lockstep/parallel/pipeline/pipeline.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/process_owned.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/base/caller_state.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/micro_batches.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/parallel/pipeline/pipeline_trace.h>
#include <lockstep/parallel/pipeline/run_workers.h>
#include <lockstep/parallel/pipeline/schedule/executor.h>
#include <lockstep/parallel/pipeline/schedule/mailboxes.h>
#include <lockstep/parallel/pipeline/stage_worker.h>
#include <lockstep/parallel/pipeline/step_tables.h>
#include <lockstep/parallel/pipeline/step_times.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep {

class Pipeline::Impl {
  using Mailboxes = pipeline::Mailboxes<pipeline::StageMessage>;

  class MailboxChannel final : public pipeline::MessageChannel {
   public:
    MailboxChannel(Mailboxes& mailboxes, int worker) : mailboxes_(mailboxes), worker_(worker) {}

    void send(int to, pipeline::StageMessage message) override {
      mailboxes_.send(worker_, to, std::move(message));
    }
    pipeline::StageMessage receive(int from) override { return mailboxes_.receive(from, worker_); }

   private:
    Mailboxes& mailboxes_;
    const int worker_;
  };

 public:
  Impl(std::vector<pipeline::StageModule> modules, std::vector<torch::Device> devices,
       PipelineOptions options)
      : options_(pipeline::with_whole_stages(pipeline::with_numbers_of_table(std::move(options)),
                                             whole_among(modules))),
        devices_(pipeline::with_indices(std::move(devices))),
        mailboxes_(workers(), options_.timeout),
        tables_(options_, static_cast<int>(modules.size()), workers()) {
    if (!options_.tied.empty()) {
      throw ConfigError(
          "Pipeline: PipelineOptions::tied is only for DistributedPipeline; stages in one process "
          "share the tensor directly");
    }
    const pipeline::Table& table = tables_.training(options_.micro_batches);
    for (std::size_t s = 0; s < modules.size(); ++s) {
      pipeline::move_to(modules[s], device_of(table, s));
    }
    tied_ = pipeline::tied_parameters_of(modules, table, devices_);
    pipeline::refuse_to_reduce_ties(*tied_, options_);
    pipeline::refuse_to_share_statistics(modules, table);
    if (options_.measure_memory) {
      memory_ = std::make_unique<pipeline::ActivationMemory>(table.worker_of);
    }
    for (std::size_t s = 0; s < modules.size(); ++s) {
      stages_.push_back(
          std::make_shared<pipeline::Stage>(static_cast<int>(s), std::move(modules[s]),
                                            device_of(table, s), options_.recompute, tied_.get()));
      if (memory_) stages_.back()->count_memory(*memory_);
    }
    for (int w = 0; w < workers(); ++w) {
      std::vector<std::shared_ptr<pipeline::Stage>> own(stages_.size());
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (table.worker_of[s] == w) own[s] = stages_[s];
      }
      channels_.push_back(std::make_unique<MailboxChannel>(mailboxes_, w));
      workers_.push_back(std::make_unique<pipeline::StageWorker>(
          w, devices_[static_cast<std::size_t>(w)], std::move(own), *channels_.back(),
          options_.reduce));
      clocks_.push_back(
          std::make_shared<pipeline::WorkerClock>(devices_[static_cast<std::size_t>(w)]));
    }
    start_threads();
  }

  torch::Tensor step(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y) {
    pipeline::refuse_to_reduce_ties(*tied_, options_);  // a shared weight may have been unfrozen
    pipeline::StepBatch batch = cut(x, true);
    batch.loss = loss;
    std::vector<std::int64_t> sizes;
    for (const Tensors& each : batch.inputs) sizes.push_back(each[0].size(0));
    batch.targets = pipeline::split_batch(y, sizes, "y");
    batch.weights = pipeline::loss_weights(sizes, options_.loss_reduction);
    return pipeline::sum_of_losses(run(tables_.training(batch.plan.micro_batches), batch));
  }

  Tensors forward(const Tensors& x) {
    const pipeline::StepBatch batch = cut(x, false);
    return pipeline::joined_outputs(run(tables_.evaluation(batch.plan.micro_batches), batch));
  }

  const std::vector<std::shared_ptr<pipeline::Stage>>& stages() const { return stages_; }
  const pipeline::Table& table() { return tables_.training(options_.micro_batches); }
  const pipeline::Timeline& timeline() const {
    static const pipeline::Timeline none;
    return times_ ? times_->timeline() : none;
  }
  std::shared_ptr<const pipeline::StepTimes> step_times() const { return times_; }
  const pipeline::ActivationMemory* memory() const { return memory_.get(); }

 private:
  static std::vector<bool> whole_among(const std::vector<pipeline::StageModule>& modules) {
    std::vector<bool> is_whole;
    for (const pipeline::StageModule& module : modules) {
      is_whole.push_back(module.has_whole_backward());
    }
    return is_whole;
  }

  int workers() const { return static_cast<int>(devices_.size()); }

  torch::Device device_of(const pipeline::Table& table, std::size_t stage) const {
    return devices_[static_cast<std::size_t>(table.worker_of[stage])];
  }

  // The devices that hold the caller's batch.
  static std::vector<torch::Device> devices_of(const pipeline::StepBatch& batch) {
    std::vector<torch::Device> devices;
    Tensors tensors = batch.inputs[0];
    if (!batch.targets.empty()) tensors.push_back(batch.targets[0]);
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.defined()) devices.push_back(tensor.device());
    }
    return devices;
  }

  // All workers compute with the same number of threads: sums depend on that number, and the
  // schedule decides which worker has a stage.
  void start_threads() {
    const int each = options_.threads_per_worker > 0
                         ? options_.threads_per_worker
                         : std::max(1, at::get_num_threads() / workers());
    std::vector<std::string> names;
    for (int w = 0; w < workers(); ++w) names.push_back(str("worker ", w));
    threads_ = make_process_owned<detail::ThreadTeam>(std::move(names));
    const std::vector<int> counts(devices_.size(), each);
    detail::set_threads_of_members(*threads_, counts);
    if (devices_.front().is_cpu()) detail::keep_members_apart(*threads_, counts);
  }

  pipeline::StepBatch cut(const Tensors& x, bool training) const {
    threads_->refuse_members();  // a worker would begin a step in the middle of its own
    pipeline::refuse_pipelines_inside_stages();
    if (x.empty() || !x[0].defined() || x[0].dim() < 1 || x[0].size(0) < 1) {
      throw ConfigError("Pipeline: the batch has no samples along dimension 0");
    }
    pipeline::StepBatch batch;
    batch.plan.training = training;
    batch.plan.seed = pipeline::draw_step_seed();
    batch.plan.micro_batches = micro_batches_for(x[0].size(0));
    const auto sizes = pipeline::part_sizes(x[0].size(0), batch.plan.micro_batches);
    batch.inputs = pipeline::split_inputs(x, sizes);
    return batch;
  }

  int micro_batches_for(std::int64_t samples) const {
    if (samples >= options_.micro_batches) return options_.micro_batches;
    if (options_.table) {
      throw ConfigError(str("Pipeline: a batch of ", samples, " samples cannot be cut into the ",
                            options_.micro_batches, " micro-batches of the table ",
                            options_.table->name));
    }
    return static_cast<int>(samples);
  }

  // Returns the results of the last stage.
  std::vector<Tensors> run(const pipeline::Table& table, const pipeline::StepBatch& batch) {
    mailboxes_.reset();
    if (tied_) tied_->begin(batch.plan.micro_batches);
    // An evaluation does not overwrite the measurements of the last step.
    pipeline::ActivationMemory* const memory = batch.plan.training ? memory_.get() : nullptr;
    if (memory) memory->begin();
    for (const auto& worker : workers_) worker->begin(table, batch);
    std::vector<pipeline::Recording> recordings(workers_.size());
    for (const auto& clock : clocks_) clock->begin();
    pipeline::StepFailure failure;
    const parallel::CallerState caller(devices_, devices_of(batch));
    if (devices_.front().is_cpu()) detail::release_helping_threads();
    try {
      pipeline::run_workers(*threads_, mailboxes_, [&](std::size_t i) {
        const parallel::CallerState::Scope like_caller(caller, i);
        const pipeline::CastsPerMicroBatch no_shared_casts;
        const pipeline::ActivationMemory::Watch watch(memory, static_cast<int>(i));
        const auto perform = [&](const pipeline::Action& action) {
          mailboxes_.check();
          workers_[i]->perform(action);
          clocks_[i]->mark();
        };
        clocks_[i]->mark();
        auto failed = pipeline::execute(table.workers[i], perform, recordings[i]);
        if (!failed) return;
        failure.keep(static_cast<int>(i), std::move(*failed));
        mailboxes_.abort();
      });
      if (batch.plan.training) {
        times_ =
            std::make_shared<pipeline::StepTimes>(table.workers, std::move(recordings), clocks_);
      }
      failure.check(table);
    } catch (...) {
      mailboxes_.reset();
      for (const auto& worker : workers_) worker->clear();
      throw;
    }
    return workers_[static_cast<std::size_t>(table.worker_of.back())]->take_results();
  }

  const PipelineOptions options_;
  const std::vector<torch::Device> devices_;
  Mailboxes mailboxes_;
  pipeline::StepTables tables_;
  std::unique_ptr<pipeline::TiedParameters> tied_;
  std::unique_ptr<pipeline::ActivationMemory> memory_;  // null unless memory is measured
  std::vector<std::shared_ptr<pipeline::Stage>> stages_;
  std::vector<std::unique_ptr<MailboxChannel>> channels_;
  std::vector<std::unique_ptr<pipeline::StageWorker>> workers_;
  std::vector<std::shared_ptr<pipeline::WorkerClock>> clocks_;
  std::shared_ptr<const pipeline::StepTimes> times_;  // times of the last step; null before it
  std::shared_ptr<detail::ThreadTeam> threads_;  // last: the threads must end before other members
};

Pipeline::Pipeline(std::vector<pipeline::StageModule> stages, std::vector<torch::Device> devices,
                   PipelineOptions options)
    : impl_(std::make_unique<Impl>(std::move(stages), std::move(devices), std::move(options))) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

torch::Tensor Pipeline::step_with(const PipelineLoss& loss, const Tensors& x,
                                  const torch::Tensor& y) {
  return impl_->step(loss, x, y);
}

Tensors Pipeline::forward(const Tensors& x) { return impl_->forward(x); }

torch::Tensor Pipeline::forward(const torch::Tensor& x) {
  Tensors outputs = impl_->forward({x});
  if (outputs.size() != 1) {
    throw ConfigError(lockstep::str("Pipeline: the last stage returns ", outputs.size(),
                                    " tensors; call forward() with a list of inputs"));
  }
  return outputs[0];
}

void Pipeline::train(bool on) {
  for (const auto& stage : impl_->stages()) stage->module().train(on);
}

Tensors Pipeline::parameters() const {
  Tensors all;
  for (const auto& stage : impl_->stages()) {
    for (const torch::Tensor& parameter : stage->module().parameters()) all.push_back(parameter);
  }
  return optim::distinct(all);
}

const pipeline::Table& Pipeline::table() const { return impl_->table(); }
const pipeline::Timeline& Pipeline::timeline() const { return impl_->timeline(); }
std::shared_ptr<const pipeline::StepTimes> Pipeline::step_times() const {
  return impl_->step_times();
}

void Pipeline::write_trace(const std::filesystem::path& path) const {
  pipeline::write_trace(path, impl_->timeline());
}

std::vector<int> Pipeline::peak_activations() const {
  std::vector<int> peaks;
  for (const auto& stage : impl_->stages()) peaks.push_back(stage->peak_activations());
  return peaks;
}

ActivationBytes Pipeline::peak_activation_bytes() const {
  if (!impl_->memory()) {
    throw ConfigError("Pipeline: peak_activation_bytes() needs PipelineOptions::measure_memory");
  }
  return impl_->memory()->peaks();
}

}  // namespace lockstep
