// What the checkpoints of `lockstep train`, and the ONNX models made from them, note about the use
// of the model: the names of its classes, how its images are prepared, and the data of the run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <lockstep/cli/train/train_settings.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/train/task/task.h>

namespace lockstep::cli {

/// RunInfo::notes: text by name. docs/checkpoints.md lists the names for users.
using ModelNotes = std::map<std::string, std::string>;

/// Names in the order of the model's outputs, as a JSON array; classifiers only.
inline constexpr const char* kClassesNote = "classes";
/// How images are prepared for evaluation, as augmentation_text() describes it.
inline constexpr const char* kPreparationNote = "preparation";
/// "channels-last" or "contiguous".
inline constexpr const char* kMemoryFormatNote = "memory_format";
/// Images per batch of a rank.
inline constexpr const char* kBatchSizeNote = "batch_size";
/// The absolute path of the run's --data, if that is UTF-8; absent without --data.
inline constexpr const char* kDataNote = "data";
/// The run's --val-fraction, --exif-transpose ("yes") and --decoding, if given.
inline constexpr const char* kValidationFractionNote = "validation_fraction";
inline constexpr const char* kExifTransposeNote = "exif_transpose";
inline constexpr const char* kDecodingNote = "decoding";

/// The notes of a run that trains `task` on `data`.
ModelNotes model_notes(const TrainSettings& settings, const recipes::RecipeData& data,
                       const detail::TaskBase& task);

/// The notes that every user of the model needs, in any program: "input", the size of an image
/// ([channels, height, width]), "mean" and "std" of each channel (values are from 0 to 1 before),
/// all as JSON arrays; "shorter_side", the size to which the shorter side is resized before the
/// centre is cut out, if that is how images are prepared; and kPreparationNote.
ModelNotes preparation_notes(const recipes::Recipe& recipe);

/// The names of the classes in the data set, or their numbers if they have none, as UTF-8.
std::vector<std::string> names_of_classes(const ImageDataset& images);

/// `names` as the text of kClassesNote.
std::string classes_note(const std::vector<std::string>& names);

}  // namespace lockstep::cli
