// A list of operators as a chain of DALI's, and the numbers that differ from image to image.
//
// The random choices are ours (augment/choices.h), so that DALI makes the batch that the native
// engine makes: DALI's operators take them as arguments, one set an image. Nothing here needs DALI.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/native.h>

namespace lockstep {

struct DaliPlanOptions {
  Layout layout = Layout::kPlanar;        ///< The output's layout.
  PixelType type = PixelType::kFloat32;   ///< The output's type; DALI has no bfloat16.
  bool encoded = false;                   ///< The input is files, which DALI decodes; else pixels,
  Layout input_layout = Layout::kPlanar;  ///< in this order.
};

/// An argument that is fed: `count` numbers an image, integers or floats.
struct DaliInput {
  std::string name;
  bool is_integer = false;
  int count = 1;
};

struct DaliFed {
  int input = 0;  ///< Place in DaliPlan::inputs().
};

using DaliValue = std::variant<bool, std::int64_t, std::string, std::vector<float>, DaliFed>;

/// One of DALI's operators. Its input is what the one before it made.
struct DaliOperator {
  std::string schema;
  std::vector<std::pair<std::string, DaliValue>> arguments;
};

/// One that is fed.
struct DaliNumber {
  DaliNumber() = default;
  DaliNumber(std::int32_t integer_) : integer(integer_) {}  // NOLINT: meant to convert
  DaliNumber(float real_) : real(real_) {}                  // NOLINT: meant to convert
  union {
    std::int32_t integer = 0;
    float real;
  };
};
/// The numbers of a batch: for each input those of all images, one image after the other.
using DaliNumbers = std::vector<std::vector<DaliNumber>>;

/// A compiled list of operators. Immutable; choose() may run on any number of threads at once.
///
/// Pads, crops and flips that follow each other become one Slice and one Flip, the last of them
/// part of CropMirrorNormalize; a crop that comes first of an encoded image becomes part of
/// decoding it.
class DaliPlan {
 public:
  /// ConfigError as AugmentationPlan's, or naming what DALI cannot execute.
  DaliPlan(const Augmentation& operators, const ImageShape& input, const DaliPlanOptions& options);

  const ImageShape& output_shape() const { return output_; }
  /// A Pad that comes first of pixels is for whoever feeds them: copying them costs less than an
  /// operator of DALI's. 0 pixels: there is none.
  const Pad& border() const { return border_; }
  const std::vector<DaliInput>& inputs() const { return inputs_; }
  const std::vector<DaliOperator>& operators() const { return operators_; }

  /// Makes `numbers` as large as `images` images need it.
  void resize(DaliNumbers& numbers, std::int64_t images) const;
  /// Makes the choices for the image at `place` in the batch, which are those of AugmentationPlan.
  /// `image` is its shape without the border. ConfigError when the image is too small for a crop;
  /// DataError for one that is not of the declared shape, or of which the list makes too much
  /// (check_made).
  void choose(const ImageShape& image, const SampleKey& key, std::int64_t place,
              DaliNumbers& numbers) const;

 private:
  friend class DaliPlanCompiler;

  // Places of what it feeds; -1 for what is not fed.
  struct Geometry {
    std::vector<Operator> operators;  // Pad, crops, flips; at the end perhaps one that resizes
    int start = -1;                   // rows, columns
    int shape = -1;                   // rows, columns
    int position_y = -1;              // of the start among the possible ones, 0 to 1
    int position_x = -1;
    int mirror = -1;
    int vertical = -1;
    int size = -1;  // rows, columns after the Resize
  };
  struct Erasing {
    Operator op;
    int anchor = -1;
    int shape = -1;
  };
  using Step = std::variant<Geometry, Erasing>;

  ImageShape input_;
  ImageShape output_;
  Pad border_;
  std::vector<DaliInput> inputs_;
  std::vector<DaliOperator> operators_;
  std::vector<Step> steps_;  // in the order of the list
};

}  // namespace lockstep
