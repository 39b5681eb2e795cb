#include <lockstep/cli/data/preview.h>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/augment/operator_name.h>
#include <lockstep/data/augment/resample.h>
#include <lockstep/data/images/image_reader.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/recipes/tensor_picture.h>
#include <lockstep/report/bitmap_font.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr const char* kOwner = "preview";
constexpr std::int64_t kLeastCell = 96;  // pixels
constexpr std::int64_t kMost = 4096;     // limit of images and of versions

// Uses one set of images in every epoch. They keep their places in the data set, which determine
// the random choices.
class ChosenImages final : public Sampler {
 public:
  explicit ChosenImages(std::vector<std::int64_t> indices) : indices_(std::move(indices)) {}
  std::vector<std::int64_t> indices(std::int64_t) const override { return indices_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }

 private:
  std::vector<std::int64_t> indices_;
};

void check(const PreviewOptions& options) {
  const OptionCheck check(kOwner);
  const auto number = [](auto value) { return static_cast<double>(value); };
  check.in_range("--images", number(options.images), 1, number(kMost));
  check.in_range("--versions", number(options.versions), 1, number(kMost));
  if (options.scale) check.in_range("--scale", number(*options.scale), 1, 64);
  check.in_range("--epoch", number(options.epoch), 0,
                 number(std::numeric_limits<std::uint32_t>::max() - options.versions));
}

void check_channels(std::int64_t channels) {
  if (channels == 1 || channels == 3) return;
  throw ConfigError(lockstep::str(kOwner, ": images of ", channels,
                                  " channels cannot be shown, expected 1 (grey) or 3 (RGB)"));
}

report::Picture picture_of(const ImageView& view) {
  report::Picture picture(view.shape.height, view.shape.width);
  for (std::int64_t y = 0; y < picture.height; ++y) {
    for (std::int64_t x = 0; x < picture.width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        picture.pixel(x, y)[c] =
            view.pixels[std::min(c, view.shape.channels - 1) * view.channel_stride +
                        y * view.row_stride + x * view.pixel_stride];
      }
    }
  }
  return picture;
}

// The image as stored in the data set, reduced if larger than a cell.
report::Picture original(const ImageDataset& dataset, std::int64_t index, const ImageShape& cell) {
  ImageReader reader;
  dataset.read(index, reader);
  const auto [channels, height, width] = reader.shape();
  check_channels(channels);
  const ImageRegion whole = {0, 0, height, width};
  if (height <= cell.height && width <= cell.width) return picture_of(reader.pixels(whole));
  const double factor = std::min(static_cast<double>(cell.height) / static_cast<double>(height),
                                 static_cast<double>(cell.width) / static_cast<double>(width));
  const auto shrunk = [factor](std::int64_t side, std::int64_t most) {
    return std::clamp<std::int64_t>(std::llround(factor * static_cast<double>(side)), 1, most);
  };
  const std::int64_t new_height = shrunk(height, cell.height);
  const std::int64_t new_width = shrunk(width, cell.width);
  data::Resampler resampler;
  return picture_of(
      resampler.resize(reader.reduced(whole, new_height, new_width), new_height, new_width));
}

const Normalize& normalize_of(const Augmentation& augmentation) {
  for (const Operator& op : augmentation) {
    if (const auto* normalize = std::get_if<Normalize>(&op)) return *normalize;
  }
  throw ConfigError(lockstep::str(kOwner, ": the list has no Normalize"));
}

// The classes and shares of image `i` of a batch, whose labels are classes or, with a mix,
// probabilities.
std::vector<std::pair<std::int64_t, double>> shares_of(const torch::Tensor& labels,
                                                       std::int64_t i) {
  if (labels.dim() == 1) return {{labels[i].item<std::int64_t>(), 1.0}};
  std::vector<std::pair<std::int64_t, double>> shares;
  const auto probabilities = labels.accessor<float, 2>()[i];
  for (std::int64_t label = 0; label < probabilities.size(0); ++label) {
    if (probabilities[label] > 0) shares.emplace_back(label, probabilities[label]);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

// Names with characters missing from the font are distinguished by their numbers.
std::string class_name(const ImageDataset& dataset, std::int64_t label) {
  const std::vector<std::string>& names = dataset.class_names();
  if (names.empty()) return std::to_string(label);
  return report::can_draw(names[label]) ? names[label] : lockstep::str(label, ": ", names[label]);
}

std::vector<std::string> caption_of(const ImageDataset& dataset, const PreviewVersion& version) {
  std::vector<std::string> lines;
  for (const auto& [label, share] : version.shares) {
    const std::string name = class_name(dataset, label);
    lines.push_back(share == 1 ? name : report::fixed_text(100 * share, 0) + "% " + name);
  }
  return lines;
}

const char* name_of(const BatchMix& mix) {
  constexpr const char* kNames[] = {"", ", MixUp", ", CutMix", ", MixUp or CutMix"};
  static_assert(std::size(kNames) == std::variant_size_v<BatchMix>);
  return kNames[mix.index()];
}

report::ContactSheetLayout layout_of(const ImageDataset& dataset, const Augmentation& augmentation,
                                     const PreviewOptions& options, const ImageShape& cell,
                                     std::int64_t rows) {
  std::vector<std::string> operators;
  for (const Operator& op : augmentation) operators.push_back(data::operator_name(op));
  const std::string images = report::count_of(dataset.size(), "image") + " in " +
                             amount_of(dataset.num_classes(), "class");
  report::ContactSheetLayout layout{.title = dataset.name(),
                                    .notes = {join(operators) + name_of(options.mix),
                                              lockstep::str(images, ", ", to_string(options.engine),
                                                            " loader, seed ", options.seed)},
                                    .column_titles = {"data set"},
                                    .rows = rows,
                                    .cell_height = cell.height,
                                    .cell_width = cell.width,
                                    .caption_lines = 2};
  for (std::int64_t i = 0; i < options.versions; ++i) {
    layout.column_titles.push_back(lockstep::str("epoch ", options.epoch + i));
  }
  return layout;
}

LoaderOptions loader_options(const PreviewOptions& options, std::int64_t rows) {
  return {.batch_size = rows,
          .seed = options.seed,
          .engine = options.engine,
          .device = options.engine == LoaderEngineKind::kCuda ? torch::kCUDA : torch::kCPU,
          .mix = options.mix,
          .cpus = {}};
}

}  // namespace

std::vector<std::int64_t> choose_preview_images(const ImageDataset& dataset, std::int64_t count,
                                                std::uint64_t seed,
                                                const std::function<bool(std::int64_t)>& usable) {
  std::vector<std::int64_t> order(dataset.size());
  std::iota(order.begin(), order.end(), 0);
  PhiloxStream random(seed, 0, 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  }
  // For each image: how often its class came before, its position in the order, and its class.
  using Candidate = std::array<std::int64_t, 3>;
  std::vector<Candidate> candidates;
  std::vector<std::int64_t> seen(dataset.num_classes());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t label = dataset.label(order[i]);
    candidates.push_back({seen[label]++, static_cast<std::int64_t>(i), label});
  }
  std::make_heap(candidates.begin(), candidates.end(), std::greater<>());
  std::vector<Candidate> chosen;
  while (!candidates.empty() && static_cast<std::int64_t>(chosen.size()) < count) {
    std::pop_heap(candidates.begin(), candidates.end(), std::greater<>());
    if (!usable || usable(order[candidates.back()[1]])) chosen.push_back(candidates.back());
    candidates.pop_back();
  }
  std::sort(chosen.begin(), chosen.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a[0], a[2]) < std::tie(b[0], b[2]);  // each class is once in a round
  });
  std::vector<std::int64_t> indices;
  for (const Candidate& each : chosen) indices.push_back(order[each[1]]);
  return indices;
}

namespace {

// With kSkip every candidate is fully decoded, since the sheet may show any part of it.
std::vector<std::int64_t> choose_rows(const ImageDataset& dataset, const PreviewOptions& options,
                                      std::vector<CorruptImage>& skipped) {
  if (options.on_corrupt_image == OnCorruptImage::kStop) {
    return choose_preview_images(dataset, options.images, options.seed);
  }
  ImageReader reader;
  const auto can_decode = [&](std::int64_t index) {
    try {
      dataset.read(index, reader);
      reader.pixels({0, 0, reader.shape().height, reader.shape().width});
      return true;
    } catch (const DataError& error) {
      skipped.push_back({index, error.what()});
      return false;
    }
  };
  auto indices = choose_preview_images(dataset, options.images, options.seed, can_decode);
  if (indices.empty()) {
    throw DataError(lockstep::str("none of the ", amount_of(dataset.size(), "image"), " of ",
                                  dataset.name(),
                                  " can be read; the first: ", skipped.front().reason));
  }
  return indices;
}

}  // namespace

Preview make_preview(const ImageDataset& dataset, const Augmentation& augmentation,
                     const PreviewOptions& options) {
  check(options);
  const ImageShape output = data::AugmentationPlan(augmentation, dataset.shape()).output_shape();
  check_channels(output.channels);
  const std::int64_t side = std::max(output.height, output.width);
  const std::int64_t scale = options.scale.value_or((kLeastCell + side - 1) / side);
  const ImageShape cell = {output.channels, output.height * scale, output.width * scale};
  std::vector<CorruptImage> skipped;
  const std::vector<std::int64_t> indices = choose_rows(dataset, options, skipped);
  const auto rows = static_cast<std::int64_t>(indices.size());
  Preview preview{report::ContactSheet(layout_of(dataset, augmentation, options, cell, rows)),
                  {},
                  std::move(skipped)};
  if (rows < 2 && !std::holds_alternative<std::monostate>(options.mix)) {
    throw ConfigError(lockstep::str(kOwner, ": --mix needs at least 2 images, got ", rows));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t label = dataset.label(indices[row]);
    preview.rows.push_back({indices[row], label, {}});
    preview.sheet.show(row, 0, original(dataset, indices[row], cell),
                       {class_name(dataset, label), lockstep::str('#', indices[row])});
  }
  const Normalize& normalize = normalize_of(augmentation);
  Loader loader(dataset, ChosenImages(indices), augmentation, loader_options(options, rows));
  for (std::int64_t column = 1; column <= options.versions; ++column) {
    const std::int64_t epoch = options.epoch + column - 1;
    loader.set_epoch(epoch);
    Batch batch;
    LOCKSTEP_CHECK(loader.next(batch) && batch.size == rows, "a batch of ", batch.size,
                   " images, expected ", rows);
    const torch::Tensor images = batch.images.cpu();
    const torch::Tensor labels = batch.labels.cpu();
    for (std::int64_t row = 0; row < rows; ++row) {
      const PreviewVersion version{epoch, shares_of(labels, row)};
      preview.sheet.show(row, column, recipes::picture_of(images[row], normalize),
                         caption_of(dataset, version));
      preview.rows[row].versions.push_back(version);
    }
  }
  return preview;
}

}  // namespace lockstep::cli
