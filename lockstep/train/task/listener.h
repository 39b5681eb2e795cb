// The events of a run while it trains, and the record that it leaves.
//
// The Trainer calls listeners on rank 0 only, always from the training thread. An exception thrown
// by a listener ends the run.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/core/measuring/gpu_usage.h>
#include <lockstep/formats/logged_values.h>
#include <lockstep/train/task/model_summary.h>

namespace lockstep {

/// Seconds that rank 0's training thread spent in each phase; in a pipeline of threads, the mean
/// over its workers. Communication counts exposed time only: the part that backward did not hide,
/// the broadcast of buffers before forward, a pipeline's waits for messages, the collectives of a
/// sharded optimizer, and those of TrainerOptions::on_nan, whose checks belong to the optimizer.
struct LOCKSTEP_API PhaseSeconds {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double optimizer = 0;
  /// The part of `communication` in which a pipeline's worker waited for another stage's message:
  /// the pipeline's bubble, and the transfer of the message.
  double stage_waits = 0;
};

/// Seconds on rank 0 until the first step can begin, in this order. The Trainer's caller measures
/// the first two itself if it wants them reported.
struct LOCKSTEP_API SetupSeconds {
  double group = 0;            ///< the ranks find each other (init_process_group())
  double loader = 0;           ///< the data set is opened, and the loaders are made
  double model = 0;            ///< the model, its parallel form and the optimizer are made
  double synchronization = 0;  ///< all ranks get rank 0's parameters and buffers
};

/// How a value is formatted for people.
enum class MetricUnit {
  kNumber,
  kFraction,  ///< from 0 to 1, shown as a percentage
};

/// A value of an evaluation other than its loss.
struct LOCKSTEP_API MetricValue {
  std::string name{};  ///< "accuracy", "psnr"
  double value = 0;    ///< NaN if it has no samples
  MetricUnit unit = MetricUnit::kNumber;
};

/// A result of more than one number, such as a confusion matrix.
struct LOCKSTEP_API MetricTable {
  std::string name{};
  std::vector<std::string> labels{};  ///< names of rows and columns alike; may be empty
  std::vector<std::vector<double>> rows{};
};

/// The results of an evaluation over the samples of all ranks, as added by the task.
struct LOCKSTEP_API Evaluation {
  double loss = 0;
  bool has_loss = true;               ///< whether the task has added a loss
  std::vector<MetricValue> values{};  ///< in the order in which the task added them
  std::vector<MetricTable> tables{};
  std::int64_t samples = 0;

  /// The loss for "loss", otherwise the value with that name; std::nullopt if there is none.
  std::optional<double> value_of(const std::string& name) const {
    if (has_loss && name == "loss") return loss;
    for (const MetricValue& each : values) {
      if (each.name == name) return each.value;
    }
    return std::nullopt;
  }
  /// The value "accuracy" of a classifier; 0 if there is none.
  double accuracy() const { return value_of("accuracy").value_or(0); }
};

/// Properties of a run that are known before the first step.
struct LOCKSTEP_API RunInfo {
  std::string recipe{};
  std::string strategy{};   ///< "single", "dp", "ddp", "zero1", "pipeline", "hybrid"
  std::string backend{};    ///< "none" with one process, else "shm", "gloo", "nccl"
  std::string loader{};     ///< "native", "cuda", "dali"
  std::string precision{};  ///< "32", "16", "bf16"
  /// Precisions in which this device computes more slowly than in float32. The Trainer sets them.
  std::vector<std::string> slow_precisions{};
  std::string device{};   ///< "cpu", "cuda"
  std::string dataset{};  ///< description of the training data
  /// How the samples were split at random into training and validation samples, as text: a resumed
  /// run must have the same split. Empty: no random split, or unknown.
  std::string split{};
  bool fused_kernels = false;  ///< whether Lockstep's fused kernels replace LibTorch's
  /// Whether they would in precision "32", but not in that of the run.
  bool precision_disables_kernels = false;
  int world_size = 1;
  int devices = 1;  ///< devices of this process: strategy dp has a replica on each
  /// Strategy dp: relative shares of a batch. Empty: equal shares.
  std::vector<double> device_weights{};
  std::string dp_loss{};  ///< strategy dp: "gathered", "on-each"
  int stages = 0;         ///< pipelines only
  int workers = 0;        ///< pipelines only: threads or ranks
  /// Pipelines: where the model was cut, as the last block of every stage except the last.
  std::vector<std::string> cuts{};
  /// Pipelines whose schedule splits backwards: the stages whose backward is not split.
  std::vector<int> whole_backward{};
  int micro_batches = 0;     ///< pipelines only
  std::string schedule{};    ///< pipelines only: "gpipe", "1f1b", "interleaved", "zb-h1", "zbv"
  bool recompute = false;    ///< pipelines only: forwards run again before the backward
  int threads_per_rank = 0;  ///< compute threads
  std::int64_t global_batch = 0;
  std::int64_t accumulate_grad_batches = 1;  ///< batches of an optimizer step
  /// The optimizer's base rate, which the schedule multiplies. If a plateau schedule is resumed,
  /// the rate that it has reached.
  double learning_rate = 0;
  /// Model options of the recipe, by name: {"model", "resnet18"}, {"image_size", "224"}.
  std::map<std::string, std::string> recipe_options{};
  /// File of the initial weights; empty if they are random. A resumed run has that of its
  /// beginning.
  std::string weights{};
  /// What else the run is made from, by name, for records and loggers: {"augmentation", "..."}. The
  /// Trainer adds "early_stopping" and, unless the recipe's options have a model, "model", the type
  /// of the module.
  std::map<std::string, std::string> provenance{};
  /// Text by name that checkpoints keep for programs that use the model, such as the names of its
  /// classes. A resumed run replaces it by its own.
  std::map<std::string, std::string> notes{};
  std::int64_t first_epoch = 1;  ///< 1, or the epoch in which a resumed run continues
  std::int64_t first_step = 0;   ///< optimizer steps of that epoch done by earlier runs
  std::string resumed_from{};    ///< the checkpoint of a resumed run; known to rank 0
  /// Whether a resumed run has nothing left to train. It is only evaluated.
  bool already_complete = false;
  std::int64_t max_epochs = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t parameters = 0;  ///< number of trainable scalars
  SetupSeconds setup{};
};

/// Sent after an optimizer step (TrainerOptions::log_every_n_steps). `loss` is rank 0's own loss,
/// which costs no communication.
struct LOCKSTEP_API StepReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< within the epoch, from 1
  std::int64_t steps_per_epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  /// SGD's momentum or Adam's and AdamW's beta1, if the schedule changes it.
  std::optional<double> momentum{};
  std::int64_t images = 0;  ///< samples of all ranks in this epoch so far
  double seconds = 0;       ///< time spent training since the epoch began
};

/// An evaluation in the middle of an epoch (TrainerOptions::val_check_interval).
struct LOCKSTEP_API EvaluationReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< optimizer steps done in the epoch
  std::int64_t steps_per_epoch = 0;
  Evaluation test{};  ///< on the validation data
};

/// A picture of the module's output (Task::picture()): RGB pixels, row by row.
struct LOCKSTEP_API RunPicture {
  std::string name{};  ///< "reconstructions"
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> rgb{};  ///< height * width * 3 bytes
};

/// A picture of the module's output at the end of an epoch.
struct LOCKSTEP_API PictureReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t steps_per_epoch = 0;
  RunPicture picture{};
};

/// The distribution of a tensor's values.
struct LOCKSTEP_API RunHistogram {
  std::string name{};  ///< "parameters/conv1.weight", "gradients/conv1.weight"
  Histogram histogram{};
};

/// Histograms of the parameters after a step, and of the gradients that it used: reduced over all
/// ranks, unscaled and clipped (TrainerOptions::log_histograms_every_n_steps).
struct LOCKSTEP_API HistogramReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< within the epoch, from 1
  std::int64_t steps_per_epoch = 0;
  std::vector<RunHistogram> histograms{};
};

/// A part of a run's work on rank 0.
struct LOCKSTEP_API ProfiledAction {
  std::string name{};  ///< a phase (see PhaseSeconds), "evaluation", "checkpoint" or "other"
  std::int64_t calls = 0;
  double seconds = 0;  ///< total over all calls
};

struct LOCKSTEP_API EpochReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t steps = 0;  ///< optimizer steps that this run made in the epoch
  /// Optimizer steps of the whole epoch, some of which a run before it was resumed may have made; 0
  /// if unknown.
  std::int64_t steps_per_epoch = 0;
  double seconds = 0;     ///< time spent training, without the evaluation
  double train_loss = 0;  ///< mean over the samples of all ranks
  double images_per_second = 0;
  PhaseSeconds phases{};  ///< phases of rank 0
  /// The part of `phases.data` before the epoch's first batch. The loader restarts with each epoch,
  /// so nothing hides this time.
  double first_batch_seconds = 0;
  /// Processor time of all threads of a rank during training, in seconds; the mean over the ranks.
  /// Includes threads that wait by spinning.
  double processor_seconds = 0;
  /// Seconds for which the training thread was ready to run but had no processor; the mean over the
  /// ranks. Absent if the kernel does not report it.
  std::optional<double> processor_wait_seconds{};
  /// Share of time, from 0 to 1, for which the processors available to a rank were busy with this
  /// run or other programs; the mean over the ranks. Absent if the kernel does not report it.
  std::optional<double> busy_processors{};
  /// GPU usage, the mean over the epoch's training and the ranks. Absent on CPUs, and if the driver
  /// does not report it.
  std::optional<GpuUsage> gpu{};
  long long rss_bytes = 0;  ///< rank 0's resident memory after the evaluation
  /// On the validation data; absent if the epoch ended without an evaluation.
  std::optional<Evaluation> test{};
};

/// The best value of the run's evaluations, also of those before it was resumed, by the metric that
/// CheckpointOptions::save_top_k, early stopping or the schedule plateau watches, in this order; of
/// other runs, by CheckpointOptions::monitor and mode, which are the smallest loss unless they are
/// set. An evaluation made only because the run stops does not count.
struct LOCKSTEP_API BestEvaluation {
  std::string name{};  ///< "loss", "accuracy", "train_loss"
  double value = 0;
  MetricUnit unit = MetricUnit::kNumber;
  std::int64_t epoch = 0;  ///< from 1
  /// The file with the weights of that moment, if a checkpoint of it is kept; known to rank 0.
  std::string weights{};
};

/// The whole run: what `--json` writes.
struct LOCKSTEP_API RunReport {
  RunInfo info{};
  /// True if a resumed run had nothing left to train and was only evaluated.
  bool already_complete = false;
  std::vector<EpochReport> epochs{};
  std::optional<Evaluation> test{};  ///< after the last epoch, on the validation data
  std::optional<BestEvaluation> best{};
  /// Why the run ended before max_epochs and max_steps, as a sentence without its full stop; empty
  /// if it did not.
  std::string stop_reason{};
  /// Whether TrainerOptions::stop_request or max_time_seconds ended the run before its last step.
  /// It continues there when it is resumed.
  bool interrupted = false;
  /// StopRequest::signal() of the request that ended the run; 0 if there was none.
  int stop_signal = 0;
  /// The folder of the checkpoint in which an interrupted run is saved; known to rank 0. Empty if
  /// the run keeps none.
  std::string saved_in{};
  /// From the start of the command to the end of this run's first optimizer step.
  double seconds_to_first_step = 0;
  /// Number of unreadable images on all ranks, with OnCorruptImage::kSkip.
  std::int64_t skipped_images = 0;
  /// With TrainerOptions::profiler, the time of rank 0 in fit() by action; "other" is the rest.
  std::vector<ProfiledAction> profile{};
  double seconds_total = 0;      ///< from the start of the command
  long long peak_rss_bytes = 0;  ///< memory of rank 0
};

/// Receives the events of a run. Every method does nothing by default.
class LOCKSTEP_API Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_run_begin(const RunInfo&) {}
  /// Called after on_run_begin(), with TrainerOptions::model_summary_depth.
  virtual void on_model_summary(const ModelSummary&) {}
  virtual void on_step(const StepReport&) {}
  /// Called after the on_step() of the same step, if that step is reported.
  virtual void on_histograms(const HistogramReport&) {}
  /// Not called for evaluations at the end of an epoch, which on_epoch_end() reports.
  virtual void on_evaluation(const EvaluationReport&) {}
  /// Whether on_picture() does anything. If no listener takes pictures, none are made.
  virtual bool takes_pictures() const { return false; }
  /// Called before the on_epoch_end() of the same epoch.
  virtual void on_picture(const PictureReport&) {}
  virtual void on_epoch_end(const EpochReport&) {}
  virtual void on_run_end(const RunReport&) {}
  /// Called when the run has failed on rank 0, before Trainer::fit() throws `error`. May be called
  /// before on_run_begin(). Called after on_run_end() only if another listener's on_run_end()
  /// threw.
  virtual void on_exception(const std::exception& /*error*/) noexcept {}
};

/// A reference to a listener, or a listener that the handle owns. Copies share it.
///
///   options.listeners = {&listener};                                        // must outlive fit()
///   options.listeners.push_back(std::make_unique<LossCurve>("loss.svg"));  // a class of yours
class LOCKSTEP_API ListenerHandle {
 public:
  ListenerHandle(Listener* listener) : listener_(listener, [](Listener*) {}) {}
  template <std::derived_from<Listener> Kind>
  ListenerHandle(std::unique_ptr<Kind> listener) : listener_(std::move(listener)) {}
  template <std::derived_from<Listener> Kind>
  ListenerHandle(std::shared_ptr<Kind> listener) : listener_(std::move(listener)) {}

  Listener& operator*() const { return *listener_; }
  Listener* operator->() const { return listener_.get(); }
  explicit operator bool() const { return listener_ != nullptr; }

 private:
  std::shared_ptr<Listener> listener_;
};

}  // namespace lockstep
