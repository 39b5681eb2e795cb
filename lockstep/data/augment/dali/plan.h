// Compiles a list of operators to a chain of DALI operators and to the numbers that differ between
// images.
//
// DALI makes the same batch as the native engine because Lockstep makes the random choices
// (augment/choices.h) and passes them to DALI's operators as arguments, one set per image. Nothing
// here needs DALI.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/native.h>

namespace lockstep::data {

struct DaliPlanOptions {
  Layout layout = Layout::kPlanar;       ///< The output's layout.
  PixelType type = PixelType::kFloat32;  ///< The output's type; DALI has no bfloat16.
  bool encoded = false;  ///< Whether the inputs are files, which DALI decodes; else pixels.
  Layout input_layout = Layout::kPlanar;  ///< The layout of inputs that are pixels.
};

/// An argument whose values are fed with each batch: `count` integers or floats per image.
struct DaliInput {
  std::string name;
  bool is_integer = false;
  int count = 1;
};

struct DaliFed {
  int input = 0;  ///< Index in DaliPlan::inputs().
};

using DaliValue = std::variant<bool, std::int64_t, std::string, std::vector<float>, DaliFed>;

/// A DALI operator. Its input is the output of the operator before it.
struct DaliOperator {
  std::string schema;
  std::vector<std::pair<std::string, DaliValue>> arguments;
};

/// One of the numbers that are fed: an integer or a float.
struct DaliNumber {
  DaliNumber() = default;
  DaliNumber(std::int32_t integer_) : integer(integer_) {}  // NOLINT: meant to convert
  DaliNumber(float real_) : real(real_) {}                  // NOLINT: meant to convert
  union {
    std::int32_t integer = 0;
    float real;
  };
};
/// The numbers of a batch: for each input, the numbers of all images, one image after the other.
using DaliNumbers = std::vector<std::vector<DaliNumber>>;

/// A compiled list of operators. Immutable; choose() may run on any number of threads at once.
///
/// Consecutive pads, crops and flips become one Slice and one Flip; the last ones become part of
/// CropMirrorNormalize. A crop that is the first operator on an encoded image becomes part of the
/// decoding.
class DaliPlan {
 public:
  /// Throws a ConfigError as AugmentationPlan does, for the output type bfloat16, and for an
  /// operator that DALI cannot execute, which the message names.
  DaliPlan(const Augmentation& operators, const ImageShape& input, const DaliPlanOptions& options);

  const ImageShape& output_shape() const { return output_; }
  /// The Pad at the start of the list, if the inputs are pixels. The caller applies it when feeding
  /// the pixels: copying them costs less than a DALI operator. If there is no such Pad, its size is
  /// 0 pixels.
  const Pad& border() const { return border_; }
  const std::vector<DaliInput>& inputs() const { return inputs_; }
  const std::vector<DaliOperator>& operators() const { return operators_; }

  /// Resizes `numbers` to hold the numbers of `images` images.
  void resize(DaliNumbers& numbers, std::int64_t images) const;
  /// Makes the same choices as AugmentationPlan, for the image at `place` in the batch. `image` is
  /// its shape without the border; messages name `file`. Throws a ConfigError if the image is too
  /// small for a crop, and a DataError if it does not have the declared shape or the list makes it
  /// too large (see check_made()).
  void choose(const ImageShape& image, const SampleKey& key, std::int64_t place,
              DaliNumbers& numbers, std::string_view file = {}) const;

 private:
  friend class DaliPlanCompiler;

  // Indices of the fed inputs; -1 if an argument is not fed.
  struct Geometry {
    std::vector<Operator> operators;  // Pad, crops, flips; possibly a resizing operator at the end
    int start = -1;                   // rows, columns
    int shape = -1;                   // rows, columns
    int position_y = -1;              // the start's place in the range of possible ones, 0 to 1
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

}  // namespace lockstep::data
