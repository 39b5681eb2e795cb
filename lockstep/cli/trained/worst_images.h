// The images of an evaluation with the largest losses, and a sheet of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/report/contact_sheet.h>

namespace lockstep::cli {

struct EvaluatedImage {
  std::int64_t index = 0;  ///< ImageOrigin::index
  std::string file{};      ///< its path, "FILE.pack#12" in a pack; empty for an image in memory
  std::int64_t label = 0;  ///< classifiers only, as are the next two
  std::int64_t predicted = 0;
  double probability = 0;  ///< that of the predicted class
  double loss = 0;

  /// The file, or "#12" for image 12 in memory.
  std::string name() const { return file.empty() ? "#" + std::to_string(index) : file; }
};

/// Keeps the images with the largest losses of those that are added. Losses that are not numbers
/// count as the largest. Equal losses keep their order.
class WorstImages {
 public:
  /// `with_pictures`: also keeps what draw() needs.
  WorstImages(std::int64_t most, bool with_pictures)
      : most_(static_cast<std::size_t>(most)), with_pictures_(with_pictures) {}

  /// `input` is the prepared image, `output` the network's output for it.
  void add(const EvaluatedImage& image, const torch::Tensor& input, const torch::Tensor& output);
  /// The images in descending order of their losses.
  std::vector<EvaluatedImage> images() const;
  /// Draws the images into a sheet made by worst_sheet().
  void draw(const TrainedModel& model, report::ContactSheet& sheet) const;

 private:
  struct Kept {
    EvaluatedImage image;
    torch::Tensor input;
    torch::Tensor output;  // undefined unless it is an image, too
  };

  std::size_t most_;
  bool with_pictures_;
  std::vector<Kept> kept_;
};

/// An empty sheet for `images` images of the data set called `dataset`. Throws ConfigError if it
/// would become too large.
report::ContactSheet worst_sheet(const TrainedModel& model, const std::string& dataset,
                                 std::int64_t images);

}  // namespace lockstep::cli
