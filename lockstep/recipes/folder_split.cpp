#include <lockstep/recipes/folder_split.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/directory.h>
#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>
#include <lockstep/core/options.h>
#include <lockstep/data/datasets/cached_images.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/datasets/random_split.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/report/text.h>

namespace lockstep::recipes {
namespace {

namespace fs = std::filesystem;

// By default a cache takes at most 1 / kCacheShare of the host's free memory.
constexpr std::int64_t kCacheShare = 4;

// Names of the validation part beside train, in order of preference.
constexpr std::array<const char*, 4> kValidationParts = {"val", "valid", "validation", "test"};

// The parts are folders with these names, or packs, whose names end like this.
constexpr std::string_view kFolderEnding = "";
constexpr std::string_view kPackEnding = ".pack";

// The names of the two parts in the folder of the data.
struct PartNames {
  std::string train;
  std::string validation;

  bool are_packs() const { return train.ends_with(kPackEnding); }
};

struct FolderParts {
  ImageDataset train;
  ImageDataset validation;
  bool differs_from_random_split = false;
};

bool has_part(const fs::path& directory, const char* name, std::string_view ending) {
  std::error_code ignored;
  const fs::path part = directory / lockstep::str(name, ending);
  return ending == kFolderEnding ? fs::is_directory(part, ignored)
                                 : fs::is_regular_file(part, ignored);
}

// "photos" for "somewhere/photos" and "somewhere/photos/".
std::string name_of_folder(const fs::path& directory) {
  const fs::path shown = directory.filename().empty() ? directory.parent_path() : directory;
  return shown.filename().string();
}

// A resumed run compares it with that of its checkpoint.
std::string description_of(const fs::path& directory, const RecipeDataOptions& options) {
  return name_of_folder(directory) + (options.exif_transpose ? ", turned by EXIF" : "");
}

ImageFolderOptions folder_options(const RecipeDataOptions& options) {
  return {.decoding = options.decoding,
          .max_image_pixels = options.max_image_pixels,
          .exif_transpose = options.exif_transpose,
          .keep_unreadable = options.keep_unreadable};
}

std::string size_text(const ImageShape& shape) {
  if (shape.height == 0) return "various sizes";
  return lockstep::str(shape.height, 'x', shape.width, " pixels");
}

// DataError if the network cannot take the images of `path`. Only a pack may be wrong: a folder is
// always read as RGB.
void require_input(const ImageDataset& images, const fs::path& path,
                   const FolderSplitOptions& wanted) {
  const ImageShape &shape = images.shape(), &input = wanted.input;
  const std::string begin = wanted.recipe + ": " + path.string();
  if (shape.channels != input.channels) {
    throw DataError(lockstep::str(begin, " holds images of ", amount_of(shape.channels, "channel"),
                                  ", but the network takes ", input.channels,
                                  input.channels == 3
                                      ? "; pack grey or RGB images"
                                      : "; train classify or autoencoder on such images"));
  }
  if (input.height != 0 && shape != input) {
    throw DataError(lockstep::str(
        begin, " holds images of ", size_text(shape), ", but the network takes ", size_text(input),
        "; pack them with `lockstep data pack --size ", input.height, 'x', input.width, '`'));
  }
  if (wanted.num_classes != 0 && images.num_classes() != wanted.num_classes) {
    throw DataError(lockstep::str(begin, " has ", amount_of(images.num_classes(), "class"),
                                  ", but the network has ", wanted.num_classes,
                                  "; train classify on other classes"));
  }
}

// The images at `path`, a folder or a pack.
ImageDataset open_for(const FolderSplitOptions& wanted, const fs::path& path,
                      const RecipeDataOptions& options) {
  ImageDataset images =
      data::open_images(path, folder_options(options), /*rgb=*/wanted.input.channels == 3);
  require_input(images, path, wanted);
  return images;
}

// DataError for the first class that `part` has and `other` lacks.
void require_classes(const fs::path& directory, const std::string& part, const ImageDataset& images,
                     const std::string& other, const ImageDataset& others) {
  for (const std::string& name : images.class_names()) {
    if (std::ranges::find(others.class_names(), name) != others.class_names().end()) continue;
    throw DataError(lockstep::str(directory.string(), ": ", part, " has the class '", name,
                                  "', which ", other, " lacks; give both a folder for each class",
                                  part.ends_with(kPackEnding) ? ", and pack them again" : ""));
  }
}

// DataError unless a label means the same class in both parts.
void require_same_classes(const fs::path& directory, const PartNames& names,
                          const FolderParts& parts) {
  const ImageDataset &train = parts.train, &validation = parts.validation;
  const bool have_names = !train.class_names().empty() && !validation.class_names().empty();
  if (have_names) {
    require_classes(directory, names.train, train, names.validation, validation);
    require_classes(directory, names.validation, validation, names.train, train);
  }
  const bool equal = have_names ? train.class_names() == validation.class_names()
                                : train.num_classes() == validation.num_classes();
  if (equal) return;
  throw DataError(lockstep::str(
      directory.string(), ": ", names.train, " and ", names.validation,
      have_names ? " have their classes in different orders" : " have different numbers of classes",
      "; pack both from the same classes"));
}

FolderParts load_parts(const fs::path& directory, const PartNames& names,
                       const FolderSplitOptions& wanted, const RecipeDataOptions& options) {
  FolderParts parts = {open_for(wanted, directory / names.train, options),
                       open_for(wanted, directory / names.validation, options)};
  require_same_classes(directory, names, parts);
  return parts;
}

std::string image_count(std::int64_t images) { return report::count_of(images, "image"); }

void tell(const RecipeDataOptions& options, const std::string& text) {
  if (options.message) options.message(text);
}

// ConfigError if there are only training images. A class may be called train, and a folder of
// classes may also hold its pack.
void require_validation(const fs::path& directory, const std::string& recipe) {
  const fs::path folder = directory / "train";
  const std::string begin = lockstep::str(recipe, ": ", directory.string(), " has ");
  if (has_part(directory, "train", kFolderEnding) && !list_directory(folder).folders.empty()) {
    throw ConfigError(lockstep::str(begin,
                                    "the folder train, which has folders of its own, but none of ",
                                    lockstep::join(kValidationParts), "; add one, or give --data ",
                                    folder.string(), ", which is split at random"));
  }
  if (has_part(directory, "train", kPackEnding) && list_directory(directory).folders.empty()) {
    throw ConfigError(lockstep::str(begin, "train.pack, but none of ",
                                    lockstep::join(kValidationParts, ".pack, "),
                                    ".pack; add one, or give --data ", folder.string(), kPackEnding,
                                    ", which is split at random"));
  }
}

// The parts that the folder is divided into; nothing if it has no split. Folders go before packs.
std::optional<PartNames> own_parts(const RecipeDataOptions& options, const fs::path& directory,
                                   const std::string& recipe) {
  for (const std::string_view ending : {kFolderEnding, kPackEnding}) {
    const std::vector<std::string> found = validation_parts(directory, ending);
    if (found.empty()) continue;
    for (std::size_t i = 1; i < found.size(); ++i) {
      tell(options, lockstep::str(directory.string(), ": the images in ", found[0],
                                  " are validated on, those in ", found[i], " are not used"));
    }
    if (ending == kFolderEnding && !validation_parts(directory, kPackEnding).empty()) {
      tell(options, lockstep::str(directory.string(), ": the images in the folders train and ",
                                  found[0], " are used, the packs beside them are not"));
    }
    return PartNames{lockstep::str("train", ending), found[0]};
  }
  require_validation(directory, recipe);
  return std::nullopt;
}

// Says which parts are too small to be of use.
void tell_of_few_images(const FolderParts& parts, const RecipeDataOptions& options) {
  constexpr std::int64_t kFew = 10;
  if (parts.train.size() < kFew) {
    tell(options, "only " + image_count(parts.train.size()) +
                      " to train on, too few to train a model that generalises");
  }
  if (parts.validation.size() < kFew) {
    tell(options, "only " + image_count(parts.validation.size()) +
                      " to validate on, too few to judge the model");
  }
}

std::vector<std::int64_t> images_of_classes(const ImageDataset& all) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(all.num_classes()));
  for (std::int64_t i = 0; i < all.size(); ++i) ++counts[static_cast<std::size_t>(all.label(i))];
  return counts;
}

// How many of `validated` images, fewer than all, are of each class: its share, rounded so that the
// sum is right, by the largest remainders. Each class keeps an image to train on; nothing if there
// are too few for that.
std::optional<std::vector<std::int64_t>> validated_of_classes(const ImageDataset& all,
                                                              std::int64_t validated) {
  const std::vector<std::int64_t> counts = images_of_classes(all);
  if (all.size() - validated < all.num_classes()) return std::nullopt;
  std::vector<std::int64_t> quotas;
  std::int64_t left = validated;
  for (const std::int64_t count : counts) {
    quotas.push_back(validated * count / all.size());
    left -= quotas.back();
  }
  std::vector<std::size_t> classes(counts.size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  std::ranges::stable_sort(classes, std::ranges::greater(),
                           [&](std::size_t each) { return validated * counts[each] % all.size(); });
  while (left > 0) {  // again only if some classes have a single image
    for (const std::size_t each : classes) {
      if (left == 0 || quotas[each] + 1 >= counts[each]) continue;
      ++quotas[each];
      --left;
    }
  }
  return quotas;
}

void tell_of_classes_without_validation(const ImageDataset& all,
                                        const std::vector<std::int64_t>& quotas,
                                        const RecipeDataOptions& options) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    if (quotas[i] != 0) continue;
    names.push_back(all.class_names().empty() ? std::to_string(i)
                                              : "'" + all.class_names()[i] + "'");
  }
  if (names.empty()) return;
  constexpr std::size_t kMostNamed = 5;
  const std::size_t others = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - others);
  tell(options,
       lockstep::str(
           "no image to validate on is of ", join(names),
           others > 0 ? " and " + amount_of(static_cast<std::int64_t>(others), "other class") : "",
           ": too few images; give a larger validation fraction, or folders "
           "train and val"));
}

// In random order, `quotas` images of each class are for validation: those that come last. With one
// class this is random_split().
FolderParts split_by_class(const ImageDataset& all, std::vector<std::int64_t> quotas,
                           std::uint64_t seed) {
  const std::vector<std::int64_t> order = data::random_permutation(all.size(), seed, 0);
  std::vector<std::int64_t> train, validation;
  for (auto index = order.rbegin(); index != order.rend(); ++index) {
    std::int64_t& quota = quotas[static_cast<std::size_t>(all.label(*index))];
    (quota > 0 ? validation : train).push_back(*index);
    quota -= quota > 0 ? 1 : 0;
  }
  std::ranges::reverse(train);
  std::ranges::reverse(validation);
  return {subset(all, std::move(train)), subset(all, std::move(validation))};
}

FolderParts split_at_random(const ImageDataset& all, const RecipeDataOptions& options,
                            const std::string& recipe) {
  const std::int64_t validated = validation_count(all.size(), options, recipe, "image");
  const std::optional<std::vector<std::int64_t>> quotas = validated_of_classes(all, validated);
  tell(options, lockstep::str("split by seed ", options.seed, ": ",
                              image_count(all.size() - validated), " to train on, ",
                              report::count_text(static_cast<double>(validated)), " to validate on",
                              quotas ? ", in proportion to the classes"
                                     : "; not by class: fewer images to train on than classes"));
  // LibTorch draws the order, on one thread: an OpenMP region in the launcher would hang the ranks
  // that it forks.
  const SingleThreadScope alone;
  if (!quotas) {
    std::vector<ImageDataset> parts =
        random_split(all, {all.size() - validated, validated}, options.seed);
    return {std::move(parts[0]), std::move(parts[1])};
  }
  tell_of_classes_without_validation(all, *quotas, options);
  FolderParts parts = split_by_class(all, *quotas, options.seed);
  parts.differs_from_random_split = quotas->size() > 1;
  return parts;
}

// The images `first` to `first` + `count` - 1.
ImageDataset range_of(const ImageDataset& dataset, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return subset(dataset, std::move(indices));
}

void tell_of_cache(const RecipeDataOptions& options, const FolderSplitOptions& wanted,
                   std::int64_t images, std::int64_t max_bytes) {
  const std::string limit = report::bytes_text(static_cast<double>(max_bytes));
  if (!wanted.cached_size) {
    return tell(options, "decoded images stay in memory, in up to " + limit);
  }
  const auto [height, width] = *wanted.cached_size;
  const std::int64_t each = cached_bytes(3, height, width);
  const std::int64_t kept = std::min(images, max_bytes / each);
  tell(options,
       lockstep::str(kept == images ? "all" : report::count_text(static_cast<double>(kept)),
                     kept == images ? " " : " of ", image_count(images),
                     " stay in memory once they are decoded, ",
                     report::bytes_text(static_cast<double>(kept * each)), " at ", width, "x",
                     height, " pixels",
                     kept == images ? "" : "; the others are decoded in every epoch"));
}

// Whether the images are the pixels of a pack, which the page cache keeps.
bool are_pixels(const ImageDataset& images, const RecipeDataOptions& options) {
  return !images.is_file(0) && !options.exif_transpose;
}

// The maximum size of the cache in bytes; 0: no cache.
std::int64_t cache_limit(const ImageDataset& images, const RecipeDataOptions& options,
                         const FolderSplitOptions& wanted) {
  if (options.cache_bytes) return *options.cache_bytes;
  if (are_pixels(images, options)) return 0;
  const HostMemory memory = host_memory();
  if (memory.total == 0) return wanted.default_cache_bytes;
  return std::min(wanted.default_cache_bytes,
                  memory.left() / kCacheShare / std::max(options.local_processes, 1));
}

// Reports if the caches of all processes on this host would need more memory than there is.
void tell_of_memory(const RecipeDataOptions& options, const FolderSplitOptions& wanted,
                    std::int64_t images, std::int64_t limit) {
  const HostMemory memory = host_memory();
  if (memory.total == 0) return;
  std::int64_t most = limit;
  if (wanted.cached_size) {
    const auto [height, width] = *wanted.cached_size;
    most = std::min(most, images * cached_bytes(3, height, width));
  }
  const std::int64_t processes = std::max(options.local_processes, 1);
  if (most <= memory.left() / processes) return;
  tell(options,
       lockstep::str("the cache may grow to ", report::bytes_text(static_cast<double>(most)),
                     processes > 1 ? " in each of the host's processes" : "", ", but the host has ",
                     report::bytes_text(static_cast<double>(memory.left())),
                     " of memory left; give a smaller --cache"));
}

// Identifies the names of the images in `parts`, and `split`, which describes their split.
std::string fingerprint_text(const std::vector<std::uint64_t>& parts, const std::string& split) {
  formats::Checksum sum;
  sum.add(std::as_bytes(std::span(parts)));
  sum.add(std::as_bytes(std::span(split)));
  return lockstep::str(sum.value());
}

// `images` with a cache if one is wanted.
ImageDataset cached(const ImageDataset& images, const RecipeDataOptions& options,
                    const FolderSplitOptions& wanted) {
  const std::int64_t limit = cache_limit(images, options, wanted);
  if (limit == 0) return images;
  tell_of_cache(options, wanted, images.size(), limit);
  tell_of_memory(options, wanted, images.size(), limit);
  return cache_images(images, {.max_bytes = limit, .size = wanted.cached_size});
}

// All images for training and for validation.
RecipeData whole(const ImageDataset& images, const std::string& description) {
  return {.description = description, .train = images, .load_test = [images] { return images; }};
}

// Loads the folder's own split, whose parts share a cache.
RecipeData load_own_split(const fs::path& directory, const PartNames& names,
                          const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  const FolderParts parts = load_parts(directory, names, wanted, options);
  const ImageDataset &train = parts.train, &validation = parts.validation;
  std::string description = description_of(directory, options);
  if (names.are_packs()) {
    description += lockstep::str(" (", names.train, ", ", names.validation, ')');
  }
  const ImageDataset both = concatenate({train, validation});
  if (options.whole) return whole(both, description);
  tell_of_few_images(parts, options);
  const ImageDataset all = cached(both, options, wanted);
  const ImageDataset rest = range_of(all, train.size(), validation.size());
  return {.description = description,
          .train = range_of(all, 0, train.size()),
          .load_test = [rest] { return rest; },
          .fingerprint =
              fingerprint_text({train.fingerprint(), validation.fingerprint()}, names.validation)};
}

}  // namespace

std::vector<std::string> validation_parts(const fs::path& directory, std::string_view ending) {
  std::vector<std::string> found;
  if (!has_part(directory, "train", ending)) return found;
  for (const char* name : kValidationParts) {
    if (has_part(directory, name, ending)) found.push_back(lockstep::str(name, ending));
  }
  return found;
}

std::int64_t validation_count(std::int64_t samples, const RecipeDataOptions& options,
                              const std::string& recipe, const std::string& noun) {
  const double fraction = options.validation_fraction.value_or(kValidationFraction);
  const auto count =
      static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(samples)));
  if (count >= 1 && count < samples) return count;
  throw ConfigError(lockstep::str(
      recipe, ": a validation fraction of ", fraction, " of ", report::count_of(samples, noun),
      " is ", report::count_of(count, noun), "; each part needs at least 1 ", noun));
}

RecipeData load_folder_split(const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  if (!options.directory) {
    throw ConfigError(lockstep::str(wanted.recipe,
                                    ": give --data DIR, a folder of images with a folder for each "
                                    "class, or with train and val, which have one for each class; "
                                    "or --data FILE, made by `lockstep data pack`"));
  }
  const fs::path directory = *options.directory;
  if (options.validation_fraction) {
    OptionCheck(wanted.recipe)
        .in_range("the validation fraction", *options.validation_fraction, 0, 1);
  }
  const std::optional<PartNames> own = own_parts(options, directory, wanted.recipe);
  if (own && options.validation_fraction) {
    throw ConfigError(lockstep::str(wanted.recipe, ": ", directory.string(), " has the ",
                                    own->are_packs() ? "packs " : "folders ", own->train, " and ",
                                    own->validation,
                                    ", which are the split; remove the validation fraction"));
  }
  if (own) return load_own_split(directory, *own, options, wanted);
  const ImageDataset all = open_for(wanted, directory, options);
  if (options.whole) return whole(all, description_of(directory, options));
  const FolderParts parts = split_at_random(cached(all, options, wanted), options, wanted.recipe);
  tell_of_few_images(parts, options);
  // Versions that did not split by class have split the same images in another way.
  const std::string split = lockstep::str(parts.differs_from_random_split ? "by class " : "",
                                          options.seed, ' ', parts.validation.size());
  return {.description = description_of(directory, options),
          .train = parts.train,
          .load_test = [validation = parts.validation] { return validation; },
          .fingerprint = fingerprint_text({all.fingerprint()}, split),
          .is_split_at_random = true};
}

bool holds_packs(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return true;
  return validation_parts(path, kFolderEnding).empty() &&
         !validation_parts(path, kPackEnding).empty();
}

bool holds_packed_pixels(const fs::path& path) {
  if (!holds_packs(path)) return false;
  std::error_code ignored;
  const fs::path pack = fs::is_directory(path, ignored) ? path / "train.pack" : path;
  return data::pack_kind(pack) == formats::PackKind::kPixels;
}

bool has_own_parts(const fs::path& path) {
  return has_part(path, "train", kFolderEnding) || !validation_parts(path, kPackEnding).empty();
}

RecipeData load_train_and_val(const RecipeDataOptions& options, const std::string& recipe) {
  const fs::path directory = options.directory.value();
  data::require_data(directory, recipe + ": --data ");
  for (const char* part : {"train", "val"}) {
    if (has_part(directory, part, kFolderEnding)) continue;
    throw ConfigError(lockstep::str(recipe, ": --data ", directory.string(), " has no folder '",
                                    part,
                                    "'; expected train and val, each with a folder of images for "
                                    "each class"));
  }
  const FolderParts parts = load_parts(directory, {"train", "val"}, {.recipe = recipe}, options);
  tell_of_few_images(parts, options);
  return {.description = description_of(directory, options),
          .train = parts.train,
          .load_test = [validation = parts.validation] { return validation; }};
}

}  // namespace lockstep::recipes
