#include <lockstep/cli/trained/worst_images.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>
#include <variant>

#include <lockstep/data/augment/augment.h>
#include <lockstep/recipes/tensor_picture.h>
#include <lockstep/report/bitmap_font.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr std::int64_t kLeastShown = 96;  // pixels of a side
constexpr std::int64_t kColumns = 4;      // in a sheet of classified images

double order_of_loss(double loss) {
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

// Names with characters that the sheet's font lacks are told apart by their numbers.
std::string drawn_name(const TrainedModel& model, std::int64_t label) {
  const std::string name = model.class_name(label);
  return report::can_draw(name) ? name : lockstep::str(label, ": ", name);
}

std::vector<std::string> caption_of(const TrainedModel& model, const EvaluatedImage& image) {
  std::vector<std::string> lines = {std::filesystem::path(image.name()).filename().string()};
  if (model.classifier() == nullptr) {
    lines.push_back("loss " + report::metric_text({.name = "loss", .value = image.loss}));
    return lines;
  }
  lines.push_back(drawn_name(model, image.label));
  lines.push_back(report::fixed_text(100 * image.probability, 0) + "% " +
                  drawn_name(model, image.predicted));
  return lines;
}

}  // namespace

void WorstImages::add(const EvaluatedImage& image, const torch::Tensor& input,
                      const torch::Tensor& output) {
  const auto place = std::upper_bound(
      kept_.begin(), kept_.end(), order_of_loss(image.loss),
      [](double loss, const Kept& kept) { return loss > order_of_loss(kept.image.loss); });
  if (place == kept_.end() && kept_.size() == most_) return;
  Kept added{.image = image};
  if (with_pictures_) {
    added.input = input.detach().to(torch::kCPU).clone();
    if (output.sizes() == input.sizes()) added.output = output.detach().to(torch::kCPU).clone();
  }
  kept_.insert(place, std::move(added));
  if (kept_.size() > most_) kept_.pop_back();
}

std::vector<EvaluatedImage> WorstImages::images() const {
  std::vector<EvaluatedImage> images;
  for (const Kept& kept : kept_) images.push_back(kept.image);
  return images;
}

void WorstImages::draw(const TrainedModel& model, report::ContactSheet& sheet) const {
  const auto& normalize = std::get<Normalize>(model.recipe.test_augmentation.back());
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const Kept& kept = kept_[i];
    const auto place = static_cast<std::int64_t>(i);
    const report::Picture picture = recipes::picture_of(kept.input, normalize);
    const std::vector<std::string> caption = caption_of(model, kept.image);
    if (model.classifier() != nullptr) {
      sheet.show(place / kColumns, place % kColumns, picture, caption);
      continue;
    }
    sheet.show(place, 0, picture, caption);
    if (kept.output.defined()) {
      sheet.show(place, 1, recipes::picture_of(kept.output, normalize), {});
    }
  }
}

report::ContactSheet worst_sheet(const TrainedModel& model, const std::string& dataset,
                                 std::int64_t images) {
  const auto [channels, height, width] = model.recipe.input;
  const std::int64_t side = std::max(height, width);
  const std::int64_t scale = std::max<std::int64_t>((kLeastShown + side - 1) / side, 1);
  const bool classifies = model.classifier() != nullptr;
  report::ContactSheetLayout layout{
      .title = dataset,
      .notes = {"images with the largest losses of " + model.weights +
                (classifies ? "; captions: class and prediction" : "")},
      .rows = classifies ? (images + kColumns - 1) / kColumns : images,
      .cell_height = height * scale,
      .cell_width = width * scale,
      .caption_lines = classifies ? 3 : 2};
  if (classifies) {
    layout.column_titles.assign(kColumns, "");
  } else {
    layout.column_titles = {"image", "output"};
  }
  return report::ContactSheet(std::move(layout));
}

}  // namespace lockstep::cli
