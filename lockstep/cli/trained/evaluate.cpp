// lockstep evaluate CHECKPOINT
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/commands.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/cli/trained/aligned_rows.h>
#include <lockstep/cli/trained/class_scores.h>
#include <lockstep/cli/trained/evaluated_data.h>
#include <lockstep/cli/trained/model_run.h>
#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/cli/trained/worst_images.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/optim/options.h>
#include <lockstep/report/contact_sheet.h>
#include <lockstep/report/csv_cell.h>
#include <lockstep/report/image_bar.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/text.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/task/metrics.h>
#include <lockstep/train/task/standard_metrics.h>

namespace lockstep::cli {
namespace {

constexpr const char* kEvaluate = "evaluate";
constexpr std::int64_t kMostWorst = 1000;
constexpr std::size_t kMostPrinted = 5;          // worst images
constexpr std::size_t kMostPrintedClasses = 16;  // in a confusion matrix

struct EvaluateArguments {
  TrainedArguments trained;
  ComputeArguments compute;
  EvaluatedDataArguments data;
  std::int64_t worst = 16;
  bool has_worst = false;  ///< whether the user has given it
  std::string sheet;
  std::string csv;
  std::string json;
};

struct EvaluatedModel {
  Evaluation evaluation;
  std::vector<EvaluatedImage> images;  // only readable ones
  std::vector<CorruptImage> unreadable;
  std::vector<ClassScores> classes;  // classifiers only
  MetricTable confusion;             // classifiers only
};

// Throws DataError if the network has another number of outputs than the data set has classes.
void require_outputs(const TrainedModel& model, const ModelBatch& batch,
                     const ImageDataset& images) {
  if (batch.output.size(1) == images.num_classes()) return;
  throw DataError(lockstep::str(kEvaluate, ": ", images.name(), " has ", images.num_classes(),
                                " classes, but the network of ", model.weights, " has ",
                                batch.output.size(1), " outputs"));
}

// `file` is the path that was opened for the image. An image of a pack is named as `predict` does.
EvaluatedImage named_image(const ImageOrigin& origin, const std::string& file) {
  return {.index = origin.index,
          .file = origin.file.empty() ? file : str(origin.file, '#', origin.index)};
}

// Adds the images of the batch to `result`, and to `worst` those that belong there.
void add_images(const TrainedModel& model, const ModelBatch& batch, const ImageDataset& images,
                EvaluatedModel& result, WorstImages& worst) {
  const std::vector<double> losses = sample_losses(model, batch);
  const ClassificationTask* const classifier = model.classifier();
  torch::Tensor probabilities, predicted;
  if (classifier != nullptr) {
    predicted = batch.output.argmax(1).cpu();  // as accuracy and confusion matrix have it
    probabilities = classifier->probabilities(batch.output).cpu();
  }
  const torch::Tensor labels = batch.labels.cpu();
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    EvaluatedImage image = named_image(images.origin(batch.indices[at]), batch.files[at]);
    image.loss = losses[at];
    if (classifier != nullptr) {
      image.label = labels[i].item<std::int64_t>();
      image.predicted = predicted[i].item<std::int64_t>();
      image.probability = probabilities[i][image.predicted].item<double>();
    }
    worst.add(image, batch.images[i], batch.output[i]);
    result.images.push_back(std::move(image));
  }
}

EvaluatedModel evaluate_model(const EvaluateArguments& arguments, const TrainedModel& model,
                              const ImageDataset& images, torch::Device device,
                              WorstImages& worst) {
  EvaluatedModel result;
  const bool classifies = model.classifier() != nullptr;
  std::optional<ConfusionMatrix> confusion;
  if (classifies) confusion.emplace(images.num_classes(), names_of_classes(images));
  Metrics metrics(model.task->metrics());
  report::ImageBar bar(std::cerr, detect_terminal(STDERR_FILENO), "evaluating", images.size());
  ModelRun run(model, images, model.recipe.test_augmentation, arguments.compute, device);
  const torch::NoGradGuard no_grad;
  for (ModelBatch batch; run.next(batch);) {
    if (classifies) require_outputs(model, batch, images);
    model.task->evaluate(batch.output, model.task->targets(batch.samples()), metrics);
    if (confusion) confusion->update(batch.output, batch.labels);
    add_images(model, batch, images, result, worst);
    bar(run.done());
  }
  result.unreadable = run.unreadable();
  for (CorruptImage& image : result.unreadable) image.index = images.origin(image.index).index;
  if (result.images.empty()) {
    throw DataError(lockstep::str(kEvaluate, ": none of the ", amount_of(images.size(), "image"),
                                  " of ", images.name(),
                                  " can be read; the first: ", result.unreadable.at(0).reason));
  }
  result.evaluation = metrics.mean();
  if (!confusion) return result;
  result.confusion = confusion->tables().at(0);
  result.classes = class_scores(result.confusion);
  return result;
}

// Sorts the images of a split at random by their places in the folder or pack. They were evaluated
// in the order of the run's evaluations, so that the sums are equal.
void sort_by_place(EvaluatedModel& result) {
  std::ranges::sort(result.images, {}, &EvaluatedImage::index);
  std::ranges::sort(result.unreadable, {}, &CorruptImage::index);
}

std::string fraction_text(const std::optional<double>& fraction) {
  return fraction ? report::percent_text(*fraction) : "-";
}

std::string loss_text(double loss) { return report::metric_text({.name = "loss", .value = loss}); }

void print_classes(const std::vector<ClassScores>& classes) {
  std::vector<std::vector<std::string>> rows = {{"class", "images", "precision", "recall", "F1"}};
  for (const ClassScores& each : classes) {
    rows.push_back({each.name, std::to_string(each.images), fraction_text(each.precision),
                    fraction_text(each.recall), fraction_text(each.f1)});
  }
  const ClassScores mean = mean_scores(classes);
  rows.push_back({"(mean)", std::to_string(mean.images), fraction_text(mean.precision),
                  fraction_text(mean.recall), fraction_text(mean.f1)});
  std::cout << '\n';
  print_aligned(std::cout, rows, "lrrrr");
}

void print_confusion(const MetricTable& confusion) {
  std::cout << '\n';
  if (confusion.rows.size() > kMostPrintedClasses) {
    std::cout << "the confusion matrix of " << confusion.rows.size()
              << " classes is too large to print; write it with --json FILE\n";
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"class \\ predicted"}};
  rows[0].insert(rows[0].end(), confusion.labels.begin(), confusion.labels.end());
  for (std::size_t i = 0; i < confusion.rows.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(confusion.labels[i]);
    for (const double count : confusion.rows[i]) row.push_back(report::count_text(count));
  }
  print_aligned(std::cout, rows, 'l' + std::string(confusion.labels.size(), 'r'));
}

void print_worst(const TrainedModel& model, const std::vector<EvaluatedImage>& worst) {
  if (worst.empty()) return;
  const bool classifies = model.classifier() != nullptr;
  std::vector<std::vector<std::string>> rows;
  if (classifies) {
    rows.push_back({"largest losses", "class", "predicted", "probability", "loss"});
  } else {
    rows.push_back({"largest losses", "loss"});
  }
  for (std::size_t i = 0; i < std::min(worst.size(), kMostPrinted); ++i) {
    const EvaluatedImage& image = worst[i];
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(image.name());
    if (classifies) {
      row.insert(row.end(), {model.class_name(image.label), model.class_name(image.predicted),
                             report::percent_text(image.probability)});
    }
    row.push_back(loss_text(image.loss));
  }
  std::cout << '\n';
  print_aligned(std::cout, rows, classifies ? "lllrr" : "lr");
}

void print_evaluation(const TrainedModel& model, const EvaluatedData& data,
                      const EvaluatedModel& result, const std::vector<EvaluatedImage>& worst) {
  std::cout << "checkpoint " << checkpoint_text(model) << '\n'
            << model.recipe.name << ": " << data.description << ", " << data.split << ": "
            << amount_of(result.evaluation.samples, "image") << ", "
            << (result.classes.empty() ? "" : "accuracy ")
            << report::evaluation_text(result.evaluation)
            << (model.averaged ? ", averaged weights" : "") << '\n';
  if (!result.classes.empty()) {
    print_classes(result.classes);
    print_confusion(result.confusion);
  }
  print_worst(model, worst);
  for (const CorruptImage& image : result.unreadable) {
    std::cout << "unreadable  " << with_flags(image.reason) << '\n';
  }
  report::flush_output(std::cout);
}

std::string csv_of(const TrainedModel& model, const std::vector<EvaluatedImage>& images) {
  const bool classifies = model.classifier() != nullptr;
  std::string text = classifies ? "image,class,predicted,probability,loss\n" : "image,loss\n";
  for (const EvaluatedImage& image : images) {
    text += report::csv_cell(image.name());
    if (classifies) {
      text += ',' + report::csv_cell(model.class_name(image.label)) + ',' +
              report::csv_cell(model.class_name(image.predicted)) + ',' +
              exact_text(image.probability);
    }
    text += ',' + exact_text(image.loss) + '\n';
  }
  return text;
}

nlohmann::ordered_json json_of(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json json_of(const ClassScores& scores) {
  return {{"name", scores.name},
          {"images", scores.images},
          {"predicted", scores.predicted},
          {"correct", scores.correct},
          {"precision", json_of(scores.precision)},
          {"recall", json_of(scores.recall)},
          {"f1", json_of(scores.f1)}};
}

nlohmann::ordered_json json_of(const TrainedModel& model, const EvaluatedImage& image) {
  nlohmann::ordered_json json{{"image", image.name()}, {"index", image.index}};
  if (model.classifier() != nullptr) {
    json["class"] = model.class_name(image.label);
    json["predicted"] = model.class_name(image.predicted);
    json["probability"] = image.probability;
  }
  json["loss"] = image.loss;
  return json;
}

// What the results are of.
nlohmann::ordered_json evaluation_json(const TrainedModel& model, const EvaluatedData& data) {
  nlohmann::ordered_json json = checkpoint_json(model);
  json["recipe"] = model.recipe.name;
  json["recipe_options"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : model.recipe.choices) json["recipe_options"][name] = value;
  json["averaged"] = model.averaged;
  json["dataset"] = data.description;
  json["split"] = data.split;
  return json;
}

void write_evaluation(const EvaluateArguments& arguments, const TrainedModel& model,
                      const EvaluatedData& data, const EvaluatedModel& result,
                      const std::vector<EvaluatedImage>& worst) {
  using Json = nlohmann::ordered_json;
  Json json = evaluation_json(model, data);
  json["images"] = result.evaluation.samples;
  json["unreadable"] = Json::array();
  json["loss"] = result.evaluation.loss;
  for (const CorruptImage& image : result.unreadable) {
    json["unreadable"].push_back({{"index", image.index}, {"reason", with_flags(image.reason)}});
  }
  for (const MetricValue& value : result.evaluation.values) json[value.name] = value.value;
  if (!result.classes.empty()) {
    json["classes"] = Json::array();
    for (const ClassScores& each : result.classes) json["classes"].push_back(json_of(each));
    const ClassScores mean = mean_scores(result.classes);
    json["mean"] = {{"precision", json_of(mean.precision)},
                    {"recall", json_of(mean.recall)},
                    {"f1", json_of(mean.f1)}};
    json["confusion"] = {{"labels", result.confusion.labels}, {"rows", Json::array()}};
    for (const std::vector<double>& row : result.confusion.rows) {  // counts
      json["confusion"]["rows"].push_back(std::vector<std::int64_t>(row.begin(), row.end()));
    }
  }
  json["worst"] = Json::array();
  for (const EvaluatedImage& image : worst) json["worst"].push_back(json_of(model, image));
  report::write_text_file(arguments.json, bench::json_text(json));
}

template <BatchOfTensors B>
Evaluation evaluate_batches(const TrainedModel& model, BatchLoader<B> loader,
                            torch::Device device) {
  auto& task = dynamic_cast<BatchTask<B>&>(*model.loss_task);
  Metrics metrics(task.metrics());
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision_of_run(model), device.type());
  for (B batch; loader.next(batch);) task.evaluation_step(batch, metrics);
  return metrics.mean();
}

// Evaluates a model that computes its own loss, in the batches of the run's evaluations.
Evaluation evaluate_loss(const EvaluateArguments& arguments, const TrainedModel& model,
                         const EvaluatedData& data, torch::Device device) {
  prepare_module(model, device);
  LoaderOptions options = loading_of_run(model, arguments.compute, device);
  options.threads = arguments.compute.workers;
  if (data.tensors) {
    options.dtype = LoaderOptions().dtype;  // that of images
    const EvaluationSampler sampler(data.tensors->size(), 0, 1);
    return evaluate_batches(model, BatchLoader<Tensors>(data.tensors, sampler, options), device);
  }
  const EvaluationSampler sampler(data.images.size(), 0, 1);
  return evaluate_batches(
      model, Loader(data.images, sampler, model.recipe.test_augmentation, options), device);
}

// ConfigError for an option that needs the loss of each sample, or predictions.
void check_loss_outputs(const EvaluateArguments& arguments, const TrainedModel& model) {
  const auto refuse = [&](bool is_given, const char* option) {
    if (!is_given) return;
    throw ConfigError(str(kEvaluate, ": ", option, " has no effect on recipe ", model.recipe.name,
                          ", whose model returns one loss for a batch; remove ", option));
  };
  refuse(arguments.has_worst, "--worst");
  refuse(!arguments.sheet.empty(), "--sheet");
  refuse(!arguments.csv.empty(), "--csv");
}

void run_evaluate_loss(const EvaluateArguments& arguments, const TrainedModel& model,
                       torch::Device device) {
  check_loss_outputs(arguments, model);
  const EvaluatedData data = load_evaluated_data(kEvaluate, arguments.data, model);
  const Evaluation evaluation = evaluate_loss(arguments, model, data, device);
  std::cout << "checkpoint " << checkpoint_text(model) << '\n'
            << model.recipe.name << ": " << data.description << ", " << data.split << ": "
            << amount_of(evaluation.samples, "sample") << ", "
            << report::evaluation_text(evaluation) << (model.averaged ? ", averaged weights" : "")
            << '\n';
  report::flush_output(std::cout);
  if (arguments.json.empty()) return;
  nlohmann::ordered_json json = evaluation_json(model, data);
  json["samples"] = evaluation.samples;
  json["loss"] = evaluation.loss;
  for (const MetricValue& value : evaluation.values) json[value.name] = value.value;
  report::write_text_file(arguments.json, bench::json_text(json));
}

// Checks the outputs and returns the file of the sheet, which is empty if none is wanted.
std::filesystem::path check_outputs(const EvaluateArguments& arguments) {
  OptionCheck(kEvaluate).in_range("--worst", static_cast<double>(arguments.worst), 0,
                                  static_cast<double>(kMostWorst));
  check_two_outputs(kEvaluate, "--csv", arguments.csv, arguments.json);
  if (arguments.sheet.empty()) return {};
  if (!arguments.sheet.ends_with(".png")) {
    throw ConfigError(str(kEvaluate, ": --sheet must end in .png, got '", arguments.sheet, "'"));
  }
  if (arguments.worst == 0) {
    throw ConfigError(str(kEvaluate, ": --sheet shows the worst images, but --worst is 0"));
  }
  if (!arguments.csv.empty() && is_same_file(arguments.sheet, arguments.csv)) {
    throw ConfigError(str(kEvaluate, ": --sheet and --csv must name different files, got ",
                          arguments.sheet, " for both"));
  }
  return check_output_files(kEvaluate, "--sheet", arguments.sheet, arguments.json);
}

void run_evaluate(const EvaluateArguments& arguments) {
  check_evaluated_data(kEvaluate, arguments.data);
  const std::filesystem::path sheet_file = check_outputs(arguments);
  const torch::Device device = resolve_compute(kEvaluate, arguments.compute);
  TrainedModel model = load_trained(arguments.trained, /*is_fused=*/device.is_cpu(),
                                    /*takes_losses=*/true);
  if (model.loss_task) return run_evaluate_loss(arguments, model, device);
  const EvaluatedData data = load_evaluated_data(kEvaluate, arguments.data, model);
  WorstImages worst(arguments.worst, !sheet_file.empty());
  std::optional<report::ContactSheet> sheet;  // made first: it refuses to become too large
  if (!sheet_file.empty()) {
    const std::int64_t shown = std::min(arguments.worst, data.images.size());
    sheet.emplace(worst_sheet(model, data.description, shown));
  }
  EvaluatedModel result = evaluate_model(arguments, model, data.images, device, worst);
  if (data.is_shuffled) sort_by_place(result);
  const bool lacks_names = model.classifier() != nullptr && model.classes.empty();
  if (lacks_names) model.classes = names_of_classes(data.images);
  const std::vector<EvaluatedImage> listed = worst.images();
  print_evaluation(model, data, result, listed);
  if (sheet) {
    worst.draw(model, *sheet);
    write_file_atomically(sheet_file, sheet->png());
  }
  if (!arguments.csv.empty()) {
    report::write_text_file(arguments.csv, csv_of(model, result.images));
  }
  if (!arguments.json.empty()) write_evaluation(arguments, model, data, result, listed);
  if (result.unreadable.empty()) return;
  throw CommandFailure(
      1,
      str(kEvaluate, ": ", result.unreadable.size(), " of ", amount_of(data.images.size(), "image"),
          " cannot be read and ", result.unreadable.size() == 1 ? "was" : "were",
          " not evaluated; the first: ", with_flags(result.unreadable[0].reason)));
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      kEvaluate,
      "Evaluate a trained network on images with known classes, class by class, or compute the "
      "loss of a program");
  const auto to = std::make_shared<EvaluateArguments>();
  add_trained_options(*command, to->trained);
  add_evaluated_data_options(*command, to->data);
  add_compute_options(*command, to->compute);
  CLI::Option* const worst = command->add_option(
      "--worst", to->worst,
      "Number of images with the largest losses to list (the terminal shows at most 5)");
  worst->capture_default_str()->transform(whole_number<std::int64_t>());
  command
      ->add_option("--sheet", to->sheet,
                   "Also draw the images with the largest losses, as the network sees them, in "
                   "this PNG file")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_option("--csv", to->csv, "Also write a row for each image to this CSV file")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_option("--json", to->json, "Also write the results to this JSON file")
      ->type_name("FILE")
      ->check(not_empty());
  command->callback([to, worst] {
    to->has_worst = worst->count() > 0;
    run_evaluate(*to);
  });
}

}  // namespace lockstep::cli
