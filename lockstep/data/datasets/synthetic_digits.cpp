#include <lockstep/data/datasets/synthetic_digits.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <thread>
#include <vector>

#include <lockstep/core/options.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/datasets/digit_skeletons.h>

namespace lockstep {
namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int kClasses = 10;

// Reals in [-spread, spread], denser in the middle: the sum of two uniform numbers.
float wobble(PhiloxStream& random, float spread) {
  return spread * (random.uniform() + random.uniform() - 1.0F);
}

// A 2x3 affine map from the skeleton's square, where a digit fills (0,0) to (1,1) with y downwards,
// to pixels.
struct Affine {
  float xx, xy, x0;
  float yx, yy, y0;

  data::Point operator()(data::Point p) const {
    return {xx * p.x + xy * p.y + x0, yx * p.x + yy * p.y + y0};
  }
};

Affine random_affine(PhiloxStream& random) {
  const float angle = wobble(random, 0.28F);
  const float shear = wobble(random, 0.40F);
  const float width = kSide * random.uniform(0.38F, 0.62F);
  const float height = kSide * random.uniform(0.56F, 0.76F);
  const float cosine = std::cos(angle);
  const float sine = std::sin(angle);
  Affine map{};
  map.xx = cosine * width;
  map.xy = (cosine * shear - sine) * height;
  map.yx = sine * width;
  map.yy = (sine * shear + cosine) * height;
  // The square's middle lands near the image's.
  const float centre = (kSide - 1) / 2.0F;
  map.x0 = centre + wobble(random, 3.1F) - 0.5F * (map.xx + map.xy);
  map.y0 = centre + wobble(random, 3.1F) - 0.5F * (map.yx + map.yy);
  return map;
}

struct Pen {
  float radius;    // pixels, half the stroke's width
  float softness;  // pixels over which the ink fades
  float ink;       // 0 to 255
};

Pen random_pen(PhiloxStream& random) {
  return {random.uniform(0.5F, 1.7F), random.uniform(0.6F, 1.6F), random.uniform(170.0F, 255.0F)};
}

// The darkest ink wins: each pixel keeps the largest coverage of all segments.
void draw_segment(data::Point a, data::Point b, const Pen& pen, float* coverage) {
  const float reach = pen.radius + pen.softness;
  const int left = std::max(0, static_cast<int>(std::ceil(std::min(a.x, b.x) - reach)));
  const int right = std::min(kSide - 1, static_cast<int>(std::floor(std::max(a.x, b.x) + reach)));
  const int top = std::max(0, static_cast<int>(std::ceil(std::min(a.y, b.y) - reach)));
  const int bottom = std::min(kSide - 1, static_cast<int>(std::floor(std::max(a.y, b.y) + reach)));
  const float dx = b.x - a.x;
  const float dy = b.y - a.y;
  const float inverse_length2 = 1.0F / std::max(dx * dx + dy * dy, 1e-6F);
  const float inverse_softness = 1.0F / pen.softness;
  for (int y = top; y <= bottom; ++y) {
    float* row = coverage + y * kSide;
    const float py = static_cast<float>(y) - a.y;
    for (int x = left; x <= right; ++x) {
      const float px = static_cast<float>(x) - a.x;
      const float t = std::clamp((px * dx + py * dy) * inverse_length2, 0.0F, 1.0F);
      const float ex = px - t * dx;
      const float ey = py - t * dy;
      const float distance = std::sqrt(ex * ex + ey * ey);
      row[x] = std::max(row[x], std::min((reach - distance) * inverse_softness, 1.0F));
    }
  }
}

// Distorts the skeleton of `digit` and draws it as a smooth curve through its points.
void draw_digit(int digit, PhiloxStream& random, float* coverage) {
  const auto styles = data::digit_skeletons(digit);
  const data::Skeleton& skeleton = styles[random.below(static_cast<std::uint32_t>(styles.size()))];
  const Affine map = random_affine(random);
  const Pen pen = random_pen(random);
  const float jitter = random.uniform(0.02F, 0.06F);
  for (const data::Stroke& stroke : skeleton) {
    std::array<data::Point, data::kMaximumStrokePoints> points;
    const int count = static_cast<int>(stroke.size());
    for (int i = 0; i < count; ++i) {
      points[i] = map({stroke[i].x + wobble(random, jitter), stroke[i].y + wobble(random, jitter)});
    }
    if (stroke.front() == stroke.back() && count > 2) points[count - 1] = points[0];  // closed
    data::Point from = points[0];
    for (int i = 0; i + 1 < count; ++i) {
      // A Catmull-Rom spline; its ends repeat the first and the last point.
      const data::Point& p0 = points[std::max(i - 1, 0)];
      const data::Point& p1 = points[i];
      const data::Point& p2 = points[i + 1];
      const data::Point& p3 = points[std::min(i + 2, count - 1)];
      constexpr int kPieces = 4;
      for (int piece = 1; piece <= kPieces; ++piece) {
        const float t = static_cast<float>(piece) / kPieces;
        const data::Point to = data::catmull_rom(p0, p1, p2, p3, t);
        draw_segment(from, to, pen, coverage);
        from = to;
      }
    }
  }
  for (int i = 0; i < kPixels; ++i) coverage[i] *= pen.ink;
}

// A stray mark, like dirt or crossing lines, which makes the data harder for a linear model.
void draw_stray_mark(PhiloxStream& random, float* grey) {
  if (random.uniform() < 0.7F) return;
  std::array<float, kPixels> coverage{};
  const data::Point a{random.uniform(0.0F, kSide), random.uniform(0.0F, kSide)};
  const data::Point b{a.x + wobble(random, 7.0F), a.y + wobble(random, 7.0F)};
  const Pen pen{random.uniform(0.3F, 0.8F), 0.8F, random.uniform(80.0F, 200.0F)};
  draw_segment(a, b, pen, coverage.data());
  for (int i = 0; i < kPixels; ++i) grey[i] = std::max(grey[i], coverage[i] * pen.ink);
}

void add_noise(PhiloxStream& random, const float* grey, std::uint8_t* image) {
  const float strength = random.uniform(0.0F, 24.0F) / 128.0F;
  for (int i = 0; i < kPixels; i += 4) {
    const std::uint32_t bits = random.next();
    for (int k = 0; k < 4; ++k) {
      const float noise = strength * (static_cast<float>(bits >> (8 * k) & 0xff) - 128.0F);
      image[i + k] = static_cast<std::uint8_t>(std::clamp(grey[i + k] + noise, 0.0F, 255.0F));
    }
  }
}

void draw_image(std::uint64_t seed, Split split, std::int64_t index, std::uint8_t* image,
                std::uint8_t* label) {
  PhiloxStream random(seed, split == Split::kTrain ? 0 : 1, static_cast<std::uint64_t>(index));
  const int digit = static_cast<int>(index % kClasses);
  std::array<float, kPixels> grey{};
  draw_digit(digit, random, grey.data());
  draw_stray_mark(random, grey.data());
  add_noise(random, grey.data(), image);
  *label = static_cast<std::uint8_t>(digit);
}

struct Storage {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;
};

}  // namespace

ImageDataset make_synthetic_digits(Split split, const SyntheticDigitsOptions& options) {
  const OptionCheck check("make_synthetic_digits");
  check.in_range("count", static_cast<double>(options.count), 0, 10'000'000);
  check.in_range("threads", options.threads, 1, 1024);
  const std::int64_t standard = split == Split::kTrain ? 12'000 : 2'000;
  const std::int64_t count = options.count > 0 ? options.count : standard;

  auto storage = std::make_shared<Storage>();
  storage->images.resize(count * kPixels);
  storage->labels.resize(count);
  const auto draw_range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      draw_image(options.seed, split, i, &storage->images[i * kPixels], &storage->labels[i]);
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int t = 1; t < options.threads; ++t) {
      helpers.emplace_back(draw_range, count * t / options.threads,
                           count * (t + 1) / options.threads);
    }
    draw_range(0, count / options.threads);
  }

  ImageShard shard;
  shard.images = storage->images.data();
  shard.image_stride = kPixels;
  shard.labels = storage->labels.data();
  shard.label_stride = 1;
  shard.count = count;
  shard.keep_alive = std::move(storage);
  return ImageDataset(
      split == Split::kTrain ? "generated digits (train)" : "generated digits (test)",
      {1, kSide, kSide}, kClasses, {std::move(shard)});
}

}  // namespace lockstep
