#include <lockstep/cli/train/train_data.h>

#include <unistd.h>

#include <iostream>

#include <lockstep/cli/flag_names.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/report/download_bar.h>
#include <lockstep/report/terminal.h>

namespace lockstep::cli {
namespace {

// The default cache is for the native loader only.
std::optional<std::int64_t> cache_bytes(const TrainSettings& settings) {
  if (settings.loader != LoaderEngineKind::kNative) return 0;
  return settings.of_recipe.cache_bytes;
}

}  // namespace

recipes::RecipeData load_recipe_data(const TrainSettings& settings, const LoadRequest& request) {
  if (settings.data && !settings.recipe->make_tensor_task) {
    data::require_data(*settings.data, "train: --data ");
  }
  const bool speaks = settings.speaks() && !settings.quiet;
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  const auto progress = [&](const std::string& file, std::uint64_t done, std::uint64_t total) {
    if (request.stop.stop_requested()) throw DataError(file + ": the download was given up");
    if (speaks) bar(file, done, total);
  };
  const auto message = [speaks](const std::string& text) {
    if (speaks) std::cerr << "note: " << with_flags(text) << std::endl;
  };
  double seconds = 0;
  recipes::RecipeData data = [&] {
    const SecondsScope scope(seconds);
    return settings.recipe->load_data(
        {.directory = settings.data,
         .may_download = request.may_download,
         .max_image_pixels = settings.max_image_pixels,
         .decoding = settings.decoding,
         .exif_transpose = settings.exif_transpose,
         .keep_unreadable = settings.on_corrupt_image == OnCorruptImage::kSkip,
         .seed = settings.seed,
         .validation_fraction = settings.of_recipe.validation_fraction,
         .cache_bytes = cache_bytes(settings),
         .local_processes = settings.worker ? settings.worker->local_world_size : 1,
         .progress = progress,
         .message = message});
  }();
  data.seconds_to_open = seconds;
  return data;
}

}  // namespace lockstep::cli
