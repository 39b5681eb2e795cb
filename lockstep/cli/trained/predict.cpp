// lockstep predict CHECKPOINT FILES...
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>
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
#include <lockstep/cli/trained/model_run.h>
#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/optim/options.h>
#include <lockstep/report/csv_cell.h>
#include <lockstep/report/image_bar.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr const char* kPredict = "predict";

struct PredictArguments {
  TrainedArguments trained;
  ComputeArguments compute;
  std::vector<std::string> inputs;
  std::int64_t top_k = 3;
  std::int64_t max_image_pixels = kMaxImagePixels;
  bool exif_transpose = false;
  std::string csv;
  std::string json;
};

struct PredictedClass {
  std::string name;
  double probability = 0;
};

struct PredictedImage {
  std::string file;
  std::vector<PredictedClass> classes;  // the most probable first; classifiers only
  std::optional<double> loss;           // other networks only
  std::string error;                    // why it could not be read; empty: it was
};

struct FileReading {
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  std::int64_t max_image_pixels = kMaxImagePixels;
  bool exif_transpose = false;
};

// A file, or an image of a pack.
struct NamedImage {
  std::filesystem::path file;
  std::optional<ImageDataset> pack{};
  std::int64_t index = 0;  // in the pack

  std::string name() const { return pack ? str(file.string(), '#', index) : file.string(); }
};

// Images without classes.
class NamedImages final : public ImageSource {
 public:
  NamedImages(std::vector<NamedImage> images, FileReading reading)
      : images_(std::move(images)), reading_(reading) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    const NamedImage& image = images_[static_cast<std::size_t>(index)];
    if (image.pack) return image.pack->read(image.index, reader);
    reader.open(image.file, reading_.decoding, reading_.max_image_pixels);
    if (reading_.exif_transpose) reader.transpose_by_exif();
  }
  std::int64_t label(std::int64_t) const override { return 0; }

 private:
  std::vector<NamedImage> images_;
  FileReading reading_;
};

ImageDataset open_pack(const std::string& path, formats::PackKind kind,
                       const PredictArguments& arguments, const FileReading& reading) {
  // Pixels are as they were packed, whatever the run did with its files.
  const bool are_files = kind == formats::PackKind::kFiles;
  ImageDataset pack = data::open_images(
      path,
      {.decoding = reading.decoding,
       .max_image_pixels = reading.max_image_pixels,
       .exif_transpose = are_files ? reading.exif_transpose : arguments.exif_transpose},
      /*rgb=*/true);
  if (pack.shape().channels == 3) return pack;
  throw DataError(str(kPredict, ": ", path, " holds images of ", pack.shape().channels,
                      " channels; pack grey or RGB images"));
}

// The files and the images of packs that the arguments name, and the images in the folders that
// they name.
std::vector<NamedImage> images_of(const PredictArguments& arguments, const FileReading& reading) {
  std::vector<NamedImage> images;
  for (const std::string& input : arguments.inputs) {
    std::error_code ignored;
    if (std::filesystem::is_directory(input, ignored)) {
      for (const auto& file : list_image_files(input)) images.push_back({.file = file});
    } else if (const auto kind = data::pack_kind(input)) {
      const ImageDataset pack = open_pack(input, *kind, arguments, reading);
      for (std::int64_t i = 0; i < pack.size(); ++i) {
        images.push_back({.file = input, .pack = pack, .index = i});
      }
    } else {
      images.push_back({.file = input});
    }
  }
  return images;
}

// The preparation for evaluation, from files of any size. Some recipes have data sets whose images
// all have the size and the number of channels that the network takes.
Augmentation operators_for_files(const recipes::Recipe& recipe) {
  Augmentation operators = recipe.test_augmentation;
  const bool resizes = std::ranges::any_of(
      operators, [](const Operator& each) { return std::holds_alternative<Resize>(each); });
  if (!resizes) {
    const ImageSize size(static_cast<int>(recipe.input.height),
                         static_cast<int>(recipe.input.width));
    operators.insert(operators.begin(), Resize{size});
  }
  if (recipe.input.channels == 1) operators.insert(operators.begin(), Grayscale{1});
  return operators;
}

FileReading reading_of(const PredictArguments& arguments, const TrainedModel& model) {
  const std::string* const decoding = model.note(kDecodingNote);
  return {.decoding = decoding == nullptr ? ImageReader::Decoding::kExact
                                          : parse_decoding_option(kPredict, *decoding),
          .max_image_pixels = arguments.max_image_pixels,
          .exif_transpose = arguments.exif_transpose || model.note(kExifTransposeNote) != nullptr};
}

// Sets what the network says of the batch.
void add_predictions(const TrainedModel& model, const ModelBatch& batch, std::int64_t top_k,
                     std::vector<PredictedImage>& to) {
  const auto image = [&](std::int64_t i) -> PredictedImage& {
    return to[static_cast<std::size_t>(batch.indices[static_cast<std::size_t>(i)])];
  };
  const ClassificationTask* const classifier = model.classifier();
  if (classifier == nullptr) {
    const std::vector<double> losses = sample_losses(model, batch);
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      image(i).loss = losses[static_cast<std::size_t>(i)];
    }
    return;
  }
  const torch::Tensor probabilities = classifier->probabilities(batch.output).cpu();
  // Probabilities are rounded, so that those of different outputs may be equal.
  const std::int64_t shown = std::min(top_k, probabilities.size(1));
  const torch::Tensor labels = std::get<1>(batch.output.to(torch::kFloat32).topk(shown, 1)).cpu();
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    for (std::int64_t k = 0; k < shown; ++k) {
      const auto label = labels[i][k].item<std::int64_t>();
      image(i).classes.push_back({model.class_name(label), probabilities[i][label].item<double>()});
    }
  }
}

std::vector<PredictedImage> predict_files(const PredictArguments& arguments,
                                          const TrainedModel& model, torch::Device device) {
  const FileReading reading = reading_of(arguments, model);
  std::vector<NamedImage> named = images_of(arguments, reading);
  std::vector<PredictedImage> predicted;
  for (const NamedImage& image : named) predicted.push_back({.file = image.name()});
  const ImageDataset images("images", {3, 0, 0}, 1,
                            std::make_shared<const NamedImages>(std::move(named), reading));
  report::ImageBar bar(std::cerr, detect_terminal(STDERR_FILENO), "predicting", images.size());
  ModelRun run(model, images, operators_for_files(model.recipe), arguments.compute, device);
  for (ModelBatch batch; run.next(batch);) {
    add_predictions(model, batch, arguments.top_k, predicted);
    bar(run.done());
  }
  for (const CorruptImage& image : run.unreadable()) {
    predicted[static_cast<std::size_t>(image.index)].error = with_flags(image.reason);
  }
  return predicted;
}

void print_table(const std::vector<PredictedImage>& predicted, bool classifies) {
  const bool with_others = std::ranges::any_of(
      predicted, [](const PredictedImage& image) { return image.classes.size() > 1; });
  std::vector<std::vector<std::string>> rows;
  const auto add_classified = [&](std::vector<std::string> row, const std::string& others) {
    if (with_others) row.push_back(others);
    rows.push_back(std::move(row));
  };
  if (classifies) {
    add_classified({"image", "class", "probability"}, "others");
  } else {
    rows.push_back({"image", "loss"});
  }
  for (const PredictedImage& image : predicted) {
    if (!image.error.empty()) continue;
    if (!classifies) {
      rows.push_back({image.file, report::metric_text({.name = "loss", .value = *image.loss})});
      continue;
    }
    std::vector<std::string> others;
    for (std::size_t i = 1; i < image.classes.size(); ++i) {
      const PredictedClass& other = image.classes[i];
      others.push_back(other.name + ' ' + report::percent_text(other.probability));
    }
    const PredictedClass& best = image.classes.at(0);
    add_classified({image.file, best.name, report::percent_text(best.probability)}, join(others));
  }
  if (rows.size() > 1) {
    print_aligned(std::cout, rows, !classifies ? "lr" : with_others ? "llrl" : "llr");
  }
  for (const PredictedImage& image : predicted) {
    if (!image.error.empty()) std::cout << "unreadable  " << image.error << '\n';
  }
}

std::string csv_text(const std::vector<PredictedImage>& predicted, bool classifies) {
  std::size_t columns = 0;
  for (const PredictedImage& image : predicted) columns = std::max(columns, image.classes.size());
  std::string text = "image";
  for (std::size_t i = 1; i <= columns; ++i) text += str(",class_", i, ",probability_", i);
  text += classifies ? ",error\n" : ",loss,error\n";
  for (const PredictedImage& image : predicted) {
    text += report::csv_cell(image.file);
    for (std::size_t i = 0; i < columns; ++i) {
      if (i >= image.classes.size()) {
        text += ",,";
        continue;
      }
      const PredictedClass& each = image.classes[i];
      text += ',' + report::csv_cell(each.name) + ',' + exact_text(each.probability);
    }
    if (!classifies) text += ',' + (image.loss ? exact_text(*image.loss) : std::string());
    text += ',' + report::csv_cell(image.error) + '\n';
  }
  return text;
}

void write_predictions(const PredictArguments& arguments, const TrainedModel& model,
                       const std::vector<PredictedImage>& predicted) {
  using Json = nlohmann::ordered_json;
  Json json = checkpoint_json(model);
  json.update(Json{{"recipe", model.recipe.name},
                   {"recipe_options", Json::object()},
                   {"averaged", model.averaged},
                   {"class_names", model.classes},
                   {"images", Json::array()}});
  for (const auto& [name, value] : model.recipe.choices) json["recipe_options"][name] = value;
  for (const PredictedImage& image : predicted) {
    Json row{{"image", image.file}};
    if (!image.error.empty()) {
      row["error"] = image.error;
    } else if (image.loss) {
      row["loss"] = *image.loss;
    } else {
      row["classes"] = Json::array();
      for (const PredictedClass& each : image.classes) {
        row["classes"].push_back({{"name", each.name}, {"probability", each.probability}});
      }
    }
    json["images"].push_back(std::move(row));
  }
  report::write_text_file(arguments.json, bench::json_text(json));
}

void require_all_readable(const std::vector<PredictedImage>& predicted) {
  const auto failed = [](const PredictedImage& image) { return !image.error.empty(); };
  const auto first = std::ranges::find_if(predicted, failed);
  if (first == predicted.end()) return;
  throw CommandFailure(1, str(kPredict, ": ", std::ranges::count_if(predicted, failed), " of ",
                              amount_of(static_cast<std::int64_t>(predicted.size()), "image"),
                              " cannot be read; the first: ", first->error));
}

void run_predict(const PredictArguments& arguments) {
  OptionCheck(kPredict).at_least("--top-k", static_cast<double>(arguments.top_k), 1);
  check_max_image_pixels(kPredict, arguments.max_image_pixels);
  check_two_outputs(kPredict, "--csv", arguments.csv, arguments.json);
  const torch::Device device = resolve_compute(kPredict, arguments.compute);
  const TrainedModel model = load_trained(arguments.trained, /*is_fused=*/device.is_cpu());
  const std::vector<PredictedImage> predicted = predict_files(arguments, model, device);
  const bool classifies = model.classifier() != nullptr;
  std::cout << "checkpoint " << checkpoint_text(model) << '\n';
  print_table(predicted, classifies);
  report::flush_output(std::cout);
  if (!arguments.csv.empty()) {
    report::write_text_file(arguments.csv, csv_text(predicted, classifies));
  }
  if (!arguments.json.empty()) write_predictions(arguments, model, predicted);
  require_all_readable(predicted);
}

}  // namespace

void add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      kPredict,
      "Show a trained network's predictions for images (exit code 1 if an image cannot be read)");
  const auto to = std::make_shared<PredictArguments>();
  add_trained_options(*command, to->trained);
  command
      ->add_option(
          "FILES", to->inputs,
          "JPEG and PNG files, packs of images, and folders, which are searched for images "
          "at any depth")
      ->type_name("")
      ->required()
      ->check(not_empty());
  command
      ->add_option("--top-k", to->top_k,
                   "Number of classes to show for each image, most probable first")
      ->capture_default_str()
      ->transform(whole_number<std::int64_t>());
  add_compute_options(*command, to->compute);
  add_max_image_pixels_option(*command, to->max_image_pixels);
  command->add_flag("--exif-transpose", to->exif_transpose,
                    "Turn photographs upright by their EXIF orientation, which is ignored "
                    "otherwise (default: as in the run)");
  command->add_option("--csv", to->csv, "Also write a row for each image to this CSV file")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_option("--json", to->json, "Also write the output to this JSON file")
      ->type_name("FILE")
      ->check(not_empty());
  command->callback([to] { run_predict(*to); });
}

}  // namespace lockstep::cli
