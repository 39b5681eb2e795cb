#include <lockstep/cli/trained/model_run.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <utility>

#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/image_type.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/augment/sample_key.h>
#include <lockstep/data/images/image_reader.h>
#include <lockstep/data/loader/image_buffer.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/train/optimization/memory_format.h>

namespace lockstep::cli {
namespace {

std::int64_t batch_size_of(const TrainedModel& model, const ComputeArguments& arguments) {
  if (arguments.batch_size) return *arguments.batch_size;
  const std::string* const text = model.note(kBatchSizeNote);
  if (text == nullptr) return model.recipe.defaults.global_batch;
  std::int64_t size = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, size);
  if (error == std::errc() && stop == end && size > 0) return size;
  throw CheckpointError(lockstep::str(model.weights, ": its ", kBatchSizeNote,
                                      " must be a number of at least 1, got '", *text, "'"));
}

bool is_channels_last(const TrainedModel& model) {
  const std::string* const format = model.note(kMemoryFormatNote);
  return format == nullptr ? model.recipe.channels_last : *format == "channels-last";
}

}  // namespace

LoaderOptions loading_of_run(const TrainedModel& model, const ComputeArguments& arguments,
                             torch::Device device) {
  return {.batch_size = batch_size_of(model, arguments),
          .channels_last = is_channels_last(model),
          .dtype = image_type(precision_of_run(model), LoaderEngineKind::kNative),
          .device = device};
}

Precision precision_of_run(const TrainedModel& model) {
  const std::string* const precision = model.setting("precision");
  return precision == nullptr ? Precision::k32 : parse_precision(*precision);
}

void prepare_module(const TrainedModel& model, torch::Device device) {
  torch::nn::Module& module = model.module();
  if (is_channels_last(model)) train::to_channels_last(module);
  module.to(device);
  module.eval();
}

void add_compute_options(CLI::App& command, ComputeArguments& to) {
  command
      .add_option("--accelerator", to.accelerator,
                  "Device to compute on: auto (a GPU if there is one), cpu or cuda")
      ->capture_default_str();
  command
      .add_option("--batch-size", to.batch_size,
                  "Images per batch (default: that of a rank of the run)")
      ->transform(whole_number<std::int64_t>());
  command
      .add_option("--threads", to.threads,
                  "Compute threads (default: one for each processor available)")
      ->transform(whole_number<int>());
  command.add_option("--workers", to.workers, "Threads that read images")
      ->capture_default_str()
      ->transform(whole_number<int>());
}

torch::Device resolve_compute(const std::string& command, const ComputeArguments& arguments) {
  check_accelerator(command, arguments.accelerator);
  const OptionCheck check(command);
  check.in_range("--threads", arguments.threads, 0, 1024);
  check.in_range("--workers", arguments.workers, 1, 1024);
  if (arguments.batch_size) {
    check.in_range("--batch-size", static_cast<double>(*arguments.batch_size), 1, 1e6);
  }
  at::set_num_threads(launch::prepare_rank(WorkerEnvironment{}, arguments.threads));
  if (arguments.accelerator == "cpu") return torch::kCPU;
  if (torch::cuda::device_count() > 0) return {torch::kCUDA, 0};
  if (arguments.accelerator == "auto") return torch::kCPU;
  throw ConfigError(command +
                    ": --accelerator cuda needs a GPU, but this process sees none; use "
                    "--accelerator auto or cpu");
}

ModelRun::ModelRun(const TrainedModel& model, ImageDataset images, const Augmentation& operators,
                   const ComputeArguments& arguments, torch::Device device)
    : model_(model),
      dataset_(std::move(images)),
      precision_(precision_of_run(model)),
      device_(device),
      workers_(arguments.workers),
      memory_(loading_of_run(model, arguments, device)),
      plan_(operators, dataset_.shape(),
            {.layout = memory_.channels_last ? data::Layout::kChannelsLast : data::Layout::kPlanar,
             .type = data::pixel_type(memory_.dtype)}) {
  prepare_module(model_, device_);
  start_next();
}

// Reads the batch that begins with image `first`. Thread t reads every workers_-th image from t on.
PreparedImages ModelRun::prepare(std::int64_t first) const {
  const auto count =
      static_cast<std::size_t>(std::min(memory_.batch_size, dataset_.size() - first));
  const Batch memory = data::make_image_buffer(memory_, plan_.output_shape());
  auto* const bytes = static_cast<std::byte*>(memory.images.data_ptr());
  auto* const labels = memory.labels.data_ptr<std::int64_t>();
  std::vector<std::string> files(count), reasons(count);
  const auto read = [&](std::size_t thread) {
    ImageReader reader;
    for (std::size_t i = thread; i < count; i += static_cast<std::size_t>(workers_)) {
      const std::int64_t index = first + static_cast<std::int64_t>(i);
      try {
        dataset_.read(index, reader);
        files[i] = reader.name();
        plan_.apply(reader, {.sample = static_cast<std::uint64_t>(index)},
                    bytes + static_cast<std::int64_t>(i) * plan_.output_bytes());
        labels[i] = dataset_.label(index);
      } catch (const DataError& error) {
        reasons[i] = first_line(error);
      }
    }
  };
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < std::min(count, static_cast<std::size_t>(workers_)); ++i) {
    others.push_back(std::async(std::launch::async, read, i));
  }
  read(0);
  for (std::future<void>& other : others) other.get();

  // Moves the images that were read to the front.
  PreparedImages prepared{.count = static_cast<std::int64_t>(count)};
  ModelBatch& batch = prepared.batch;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::int64_t>(i);
    if (!reasons[i].empty()) {
      prepared.unreadable.push_back({first + from, std::move(reasons[i])});
      continue;
    }
    const auto to = static_cast<std::int64_t>(batch.indices.size());
    if (to != from) {
      memory.images[to].copy_(memory.images[from]);
      labels[to] = labels[i];
    }
    batch.indices.push_back(first + from);
    batch.files.push_back(std::move(files[i]));
  }
  const Batch readable =
      data::first_images(memory, static_cast<std::int64_t>(batch.indices.size()));
  batch.images = readable.images;
  batch.labels = readable.labels;
  return prepared;
}

void ModelRun::start_next() {
  if (done_ == dataset_.size()) return;
  next_ = std::async(std::launch::async, [this, first = done_] { return prepare(first); });
}

bool ModelRun::next(ModelBatch& batch) {
  while (next_.valid()) {
    PreparedImages prepared = next_.get();
    done_ += prepared.count;
    start_next();
    std::move(prepared.unreadable.begin(), prepared.unreadable.end(),
              std::back_inserter(unreadable_));
    if (prepared.batch.indices.empty()) continue;
    batch = std::move(prepared.batch);
    compute(batch);
    return true;
  }
  return false;
}

void ModelRun::compute(ModelBatch& batch) const {
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision_, device_.type());
  batch.images = batch.images.to(device_);
  batch.labels = batch.labels.to(device_);
  batch.output = model_.task->forward(model_.task->module(), batch.images);
  const auto classes = static_cast<std::int64_t>(model_.classes.size());
  if (classes == 0 || batch.output.size(1) == classes) return;
  throw CheckpointError(lockstep::str(model_.weights, " names ", classes,
                                      " classes, but its network has ", batch.output.size(1),
                                      " outputs"));
}

std::vector<double> sample_losses(const TrainedModel& model, const ModelBatch& batch) {
  const torch::NoGradGuard no_grad;
  std::vector<double> losses;
  if (const ClassificationTask* const classifier = model.classifier()) {
    const torch::Tensor all = classifier->sample_losses(batch.output, batch.labels).cpu();
    for (std::int64_t i = 0; i < all.size(0); ++i) losses.push_back(all[i].item<double>());
    return losses;
  }
  const torch::Tensor targets = model.task->targets(batch.samples());
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const torch::Tensor loss =
        model.task->loss(batch.output.narrow(0, i, 1), targets.narrow(0, i, 1));
    losses.push_back(loss.item<double>());
  }
  return losses;
}

}  // namespace lockstep::cli
