// What a run tells the outside while it goes on, and the record that it leaves.
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

#include <lockstep/core/gpu_usage.h>
#include <lockstep/formats/logged_values.h>
#include <lockstep/train/task/model_summary.h>

namespace lockstep {

/// Seconds that the training thread of this rank spent in each phase; in a pipeline of threads, the
/// mean over its workers. Communication has only exposed time: the part that backward did not hide,
/// the broadcast of buffers before forward, a pipeline's waits for messages, and the collectives of
/// an optimizer that is divided among the ranks.
struct PhaseSeconds {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double optimizer = 0;
  /// The part of `communication` in which a pipeline's worker waited for another stage's message:
  /// the pipeline's bubble, and the way of the message.
  double stage_waits = 0;
};

/// Seconds of rank 0 until the first step can begin, in this order. A caller of the Trainer that
/// wants the first two known measures them itself.
struct SetupSeconds {
  double group = 0;            ///< the ranks find each other (init_process_group())
  double loader = 0;           ///< the data set is opened, and the loaders are made
  double model = 0;            ///< the model, its parallel form and the optimizer are made
  double synchronization = 0;  ///< all ranks get rank 0's parameters and buffers
};

/// How a value is shown to people.
enum class MetricUnit {
  kNumber,
  kFraction,  ///< from 0 to 1, shown as a percentage
};

/// A value of an evaluation beside its loss.
struct MetricValue {
  std::string name{};  ///< "accuracy", "psnr"
  double value = 0;    ///< not a number where it has no samples
  MetricUnit unit = MetricUnit::kNumber;
};

/// A result of more than one number, such as a confusion matrix.
struct MetricTable {
  std::string name{};
  std::vector<std::string> labels{};  ///< of rows and columns alike; may be empty
  std::vector<std::vector<double>> rows{};
};

/// What an evaluation has found over the samples of all ranks: whatever the task has given.
struct Evaluation {
  double loss = 0;
  bool has_loss = true;               ///< whether the task has given a loss
  std::vector<MetricValue> values{};  ///< in the order in which the task has given them
  std::vector<MetricTable> tables{};
  std::int64_t samples = 0;

  /// The loss for "loss", otherwise the value of that name; nothing if there is none.
  std::optional<double> value_of(const std::string& name) const {
    if (has_loss && name == "loss") return loss;
    for (const MetricValue& each : values) {
      if (each.name == name) return each.value;
    }
    return std::nullopt;
  }
  /// The value "accuracy" of a classifier; 0 where there is none.
  double accuracy() const { return value_of("accuracy").value_or(0); }
};

/// What is known before the first step.
struct RunInfo {
  std::string recipe{};
  std::string strategy{};   ///< "single", "dp", "ddp", "zero1", "pipeline", "hybrid"
  std::string backend{};    ///< "none" with one process, else "shm", "gloo", "nccl"
  std::string loader{};     ///< "native", "cuda", "dali"
  std::string precision{};  ///< "32", "bf16"
  std::string device{};     ///< "cpu", "cuda"
  std::string dataset{};    ///< what is trained on, in words
  /// How the images were split at random into those to train and those to validate on, as a text to
  /// compare: a run does not go on with another one. Empty: they were not, or nobody says.
  std::string split{};
  bool fused_kernels = false;  ///< whether the network has kernels of ours in place of LibTorch's
  int world_size = 1;
  int devices = 1;  ///< devices of this process: strategy dp has a replica on each
  /// Strategy dp: how a batch is shared out, in proportion. Empty: equal parts.
  std::vector<double> device_weights{};
  std::string dp_loss{};  ///< strategy dp: "gathered", "on-each"
  int stages = 0;         ///< of a pipeline
  int workers = 0;        ///< of a pipeline: its threads or ranks
  /// Pipelines: where the model was cut, as the blocks that all stages but the last end with.
  std::vector<std::string> cuts{};
  /// Pipelines whose schedule splits backwards: the stages whose backward it leaves whole.
  std::vector<int> whole_backward{};
  int micro_batches = 0;     ///< of a pipeline
  std::string schedule{};    ///< of a pipeline: "gpipe", "1f1b", "interleaved", "zb-h1", "zbv"
  bool recompute = false;    ///< of a pipeline: forwards run again before the backward
  int threads_per_rank = 0;  ///< of compute
  std::int64_t global_batch = 0;
  std::int64_t accumulate_grad_batches = 1;  ///< batches of an optimizer step
  /// The optimizer's, which the schedule multiplies. Of a schedule plateau that goes on in a
  /// resumed run, the one that it has come to.
  double learning_rate = 0;
  /// What the recipe was told of its model, by name: {"model", "resnet18"}, {"image_size", "224"}.
  std::map<std::string, std::string> recipe_options{};
  std::int64_t first_epoch = 1;  ///< 1, or the epoch that a resumed run goes on with
  std::int64_t first_step = 0;   ///< optimizer steps of that epoch that were done before
  std::string resumed_from{};    ///< the checkpoint of a resumed run; known to rank 0
  std::int64_t max_epochs = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t parameters = 0;  ///< number of trainable scalars
  SetupSeconds setup{};
};

/// After an optimizer step (TrainerOptions::log_every_n_steps). `loss` is rank 0's own, to cost no
/// communication.
struct StepReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< within the epoch, from 1
  std::int64_t steps_per_epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  /// SGD's momentum, Adam's and AdamW's beta1, where the schedule moves it.
  std::optional<double> momentum{};
  std::int64_t images = 0;  ///< of all ranks, in this epoch so far
  double seconds = 0;       ///< of training since the epoch began
};

/// An evaluation in the middle of an epoch (TrainerOptions::val_check_interval).
struct EvaluationReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< optimizer steps done in the epoch
  std::int64_t steps_per_epoch = 0;
  Evaluation test{};
};

/// What a task shows of its module's work (Task::picture()): pixels of RGB, row by row.
struct RunPicture {
  std::string name{};  ///< "reconstructions"
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> rgb{};  ///< height * width * 3 bytes
};

/// A picture of the module as it is at the end of an epoch.
struct PictureReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t steps_per_epoch = 0;
  RunPicture picture{};
};

/// How the values of a tensor are distributed.
struct RunHistogram {
  std::string name{};  ///< "parameters/conv1.weight", "gradients/conv1.weight"
  Histogram histogram{};
};

/// Parameters after a step, and the gradients that it has used: of all ranks, unscaled and clipped
/// (TrainerOptions::log_histograms_every_n_steps).
struct HistogramReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< within the epoch, from 1
  std::int64_t steps_per_epoch = 0;
  std::vector<RunHistogram> histograms{};
};

/// A part of a run's work on rank 0.
struct ProfiledAction {
  std::string name{};  ///< a phase (see PhaseSeconds), "evaluation", "checkpoint" or "other"
  std::int64_t calls = 0;
  double seconds = 0;  ///< of all calls
};

struct EpochReport {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t steps = 0;  ///< optimizer steps that this run has made of it
  double seconds = 0;      ///< of training, without the evaluation
  double train_loss = 0;   ///< mean over the samples of all ranks
  double images_per_second = 0;
  PhaseSeconds phases{};  ///< of rank 0
  /// The part of `phases.data` until the epoch's first batch was there: the loader starts anew with
  /// each epoch, so that nothing hides it.
  double first_batch_seconds = 0;
  /// What all threads of a rank computed during the training, in seconds of a processor; the mean
  /// over the ranks. A thread that waits by spinning computes.
  double processor_seconds = 0;
  /// For how long the training thread was ready to run and had no processor; the mean over the
  /// ranks. Nothing where the kernel does not tell.
  std::optional<double> processor_wait_seconds{};
  /// The share of their time, from 0 to 1, for which the processors that a rank may use were busy,
  /// with this run or other programs; the mean over the ranks. Nothing where the kernel does not
  /// tell.
  std::optional<double> busy_processors{};
  /// On GPUs, where the driver tells: the mean over the training of the epoch and the ranks.
  std::optional<GpuUsage> gpu{};
  long long rss_bytes = 0;           ///< what rank 0 holds in memory after the evaluation
  std::optional<Evaluation> test{};  ///< nothing where the epoch ended without an evaluation
};

/// The whole run: what `--json` writes.
struct RunReport {
  RunInfo info{};
  /// The run that was resumed had nothing left to train: it is only evaluated.
  bool already_complete = false;
  std::vector<EpochReport> epochs{};
  std::optional<Evaluation> test{};  ///< after the last epoch
  /// Why the run has ended before max_epochs and max_steps, as a sentence without its full stop;
  /// empty where it has not.
  std::string stop_reason{};
  /// From the start of the command to the end of optimizer step 1.
  double seconds_to_first_step = 0;
  /// Images of all ranks that could not be read, with OnCorruptImage::kSkip.
  std::int64_t skipped_images = 0;
  /// With TrainerOptions::profiler, what rank 0 has done in fit(), "other" being the rest of its
  /// time.
  std::vector<ProfiledAction> profile{};
  double seconds_total = 0;      ///< from the start of the command
  long long peak_rss_bytes = 0;  ///< of rank 0
};

/// Receives the events of a run. Every method does nothing by default.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_run_begin(const RunInfo&) {}
  /// Comes after on_run_begin(), with TrainerOptions::model_summary_depth.
  virtual void on_model_summary(const ModelSummary&) {}
  virtual void on_step(const StepReport&) {}
  /// Comes after the on_step() of its step, if that comes.
  virtual void on_histograms(const HistogramReport&) {}
  /// Evaluations at the end of an epoch come with on_epoch_end() alone.
  virtual void on_evaluation(const EvaluationReport&) {}
  /// Whether on_picture() does something. Without such a listener no picture is made.
  virtual bool takes_pictures() const { return false; }
  /// Comes before the on_epoch_end() of its epoch.
  virtual void on_picture(const PictureReport&) {}
  virtual void on_epoch_end(const EpochReport&) {}
  virtual void on_run_end(const RunReport&) {}
  /// The run has failed on rank 0: Trainer::fit() throws `error` next. May come before
  /// on_run_begin(); comes after on_run_end() only where that of another listener has thrown.
  virtual void on_exception(const std::exception& /*error*/) noexcept {}
};

/// A reference to a listener, or a listener that the handle owns. Copies share it.
///
///   options.listeners = {&listener};                                        // must outlive fit()
///   options.listeners.push_back(std::make_unique<SummaryTable>(std::cout));
class ListenerHandle {
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
