#include <lockstep/data/augment/mix_choice.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>

namespace lockstep {
namespace {

constexpr double kSmallestAlpha = 0.001;
constexpr double kLargestAlpha = 1000;
// Changes the seed, so that the keys differ from those of samples.
constexpr std::uint64_t kMixSeed = 0x6D69'785F'6261'7463;
constexpr int kRankShift = 40;

// Above 0 and below 1, so that its logarithm is finite.
double open_uniform(PhiloxStream& random) { return (random.next() + 0.5) * 0x1.0p-32; }

// A normal number by the Box-Muller transform.
double normal(PhiloxStream& random) {
  const double radius = std::sqrt(-2 * std::log(open_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * open_uniform(random));
}

// The logarithm of a number from Gamma(alpha, 1): for a small alpha the number itself may be too
// small for a double. Marsaglia, Tsang: "A simple method for generating gamma variables", 2000.
double log_gamma(double alpha, PhiloxStream& random) {
  if (alpha < 1) return log_gamma(alpha + 1, random) + std::log(open_uniform(random)) / alpha;
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(random);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double log_v = 3 * std::log(root);
    const double v = root * root * root;
    if (std::log(open_uniform(random)) < x * x / 2 + d * (1 - v + log_v)) {
      return std::log(d) + log_v;
    }
  }
}

// Draws from Beta(alpha, alpha) as the share of one of two gamma variables.
double draw_lambda(double alpha, PhiloxStream& random) {
  const double first = log_gamma(alpha, random);
  const double second = log_gamma(alpha, random);
  return 1 / (1 + std::exp(second - first));
}

MixChoice cut(const CutMix& mix, std::int64_t height, std::int64_t width, PhiloxStream& random) {
  const double half = 0.5 * std::sqrt(1 - draw_lambda(mix.alpha, random));
  const auto span = [&](std::int64_t size) {
    const std::int64_t center = random.below(static_cast<std::uint32_t>(size));
    const auto reach = static_cast<std::int64_t>(half * static_cast<double>(size));
    const std::int64_t begin = std::max<std::int64_t>(center - reach, 0);
    return std::pair(begin, std::min(center + reach, size) - begin);
  };
  const auto [left, columns] = span(width);
  const auto [top, rows] = span(height);
  const double share = static_cast<double>(rows * columns) / static_cast<double>(height * width);
  return {1 - share, ImageRegion{top, left, rows, columns}};
}

MixChoice blend_all(const MixUp& mix, PhiloxStream& random) {
  return {draw_lambda(mix.alpha, random), std::nullopt};
}

void check_alpha(const char* name, double alpha) {
  if (!(alpha >= kSmallestAlpha && alpha <= kLargestAlpha)) {
    throw ConfigError(
        str(name, " needs an alpha from ", kSmallestAlpha, " to ", kLargestAlpha, ", got ", alpha));
  }
}

}  // namespace

std::string to_string(const BatchMix& mix) {
  if (const auto* mixup = std::get_if<MixUp>(&mix)) return str("MixUp(alpha=", mixup->alpha, ")");
  if (const auto* cutmix = std::get_if<CutMix>(&mix))
    return str("CutMix(alpha=", cutmix->alpha, ")");
  if (const auto* both = std::get_if<RandomMix>(&mix)) {
    return to_string(BatchMix(both->cutmix)) + " or " + to_string(BatchMix(both->mixup));
  }
  return "none";
}

void check_mix(const BatchMix& mix) {
  if (const auto* mixup = std::get_if<MixUp>(&mix)) check_alpha("MixUp", mixup->alpha);
  if (const auto* cutmix = std::get_if<CutMix>(&mix)) check_alpha("CutMix", cutmix->alpha);
  if (const auto* both = std::get_if<RandomMix>(&mix)) {
    check_alpha("CutMix", both->cutmix.alpha);
    check_alpha("MixUp", both->mixup.alpha);
  }
}

MixChoice choose(const BatchMix& mix, std::int64_t height, std::int64_t width,
                 const BatchKey& key) {
  PhiloxStream random(key.seed ^ kMixSeed, key.epoch, key.batch | key.rank << kRankShift);
  if (const auto* mixup = std::get_if<MixUp>(&mix)) return blend_all(*mixup, random);
  if (const auto* cutmix = std::get_if<CutMix>(&mix)) return cut(*cutmix, height, width, random);
  if (const auto* both = std::get_if<RandomMix>(&mix)) {
    return random.below(2) == 0 ? cut(both->cutmix, height, width, random)
                                : blend_all(both->mixup, random);
  }
  return {};
}

}  // namespace lockstep
