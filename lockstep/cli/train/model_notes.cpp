#include <lockstep/cli/train/model_notes.h>

#include <cstdint>
#include <filesystem>
#include <variant>

#include <nlohmann/json.hpp>

#include <lockstep/cli/image_options.h>
#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/data/augment/augmentation_text.h>
#include <lockstep/optim/options.h>

namespace lockstep::cli {
namespace {

// Adds where the images of the run are and how they were split.
void add_data_notes(const TrainSettings& settings, ModelNotes& notes) {
  if (settings.data) {
    const std::string path = std::filesystem::absolute(*settings.data).lexically_normal().string();
    if (is_utf8(path)) notes[kDataNote] = path;
  }
  if (settings.of_recipe.validation_fraction) {
    notes[kValidationFractionNote] = exact_text(*settings.of_recipe.validation_fraction);
  }
  if (settings.exif_transpose) notes[kExifTransposeNote] = "yes";
  for (const auto& choice : decoding_choices()) {
    const bool is_usual = choice.value == ImageReader::Decoding::kExact;
    if (choice.value == settings.decoding && !is_usual) notes[kDecodingNote] = choice.name;
  }
}

}  // namespace

std::vector<std::string> names_of_classes(const ImageDataset& images) {
  std::vector<std::string> names;
  for (const std::string& name : images.class_names()) names.push_back(utf8_text(name));
  if (!names.empty()) return names;
  for (std::int64_t i = 0; i < images.num_classes(); ++i) names.push_back(std::to_string(i));
  return names;
}

std::string classes_note(const std::vector<std::string>& names) {
  return json_text(nlohmann::ordered_json(names));
}

ModelNotes preparation_notes(const recipes::Recipe& recipe) {
  using Json = nlohmann::ordered_json;
  const auto [channels, height, width] = recipe.input;
  ModelNotes notes = {{"input", Json::array({channels, height, width}).dump()},
                      {kPreparationNote, data::augmentation_text(recipe.test_augmentation)}};
  for (const Operator& each : recipe.test_augmentation) {
    if (const auto* const normalize = std::get_if<Normalize>(&each)) {
      notes["mean"] = Json(normalize->mean).dump();
      notes["std"] = Json(normalize->std).dump();
    }
    const auto* const resize = std::get_if<Resize>(&each);
    if (resize != nullptr && resize->shorter_side) {
      notes["shorter_side"] = std::to_string(resize->size.height);
    }
  }
  return notes;
}

ModelNotes model_notes(const TrainSettings& settings, const recipes::RecipeData& data,
                       const detail::TaskBase& task) {
  ModelNotes notes;
  if (!data.tensors) notes = preparation_notes(*settings.recipe);
  if (dynamic_cast<const ClassificationTask*>(&task) != nullptr) {
    notes[kClassesNote] = classes_note(names_of_classes(data.train));
  }
  notes[kMemoryFormatNote] = settings.channels_last ? "channels-last" : "contiguous";
  notes[kBatchSizeNote] = std::to_string(settings.batch_per_rank);
  add_data_notes(settings, notes);
  return notes;
}

}  // namespace lockstep::cli
