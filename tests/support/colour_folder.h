// A folder of images, each of a single, distinct colour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/formats/png.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// The red component of image `number` of write_colours(). Distinct for numbers below 50.
inline std::uint8_t red_of(int number) { return static_cast<std::uint8_t>(5 * number + 3); }

/// Writes `count` images of 40x30 pixels to `folder`/CLASS/NUMBER.png. The `classes` classes take
/// turns, and NUMBER begins with `first`. Image NUMBER has the colour (red_of(NUMBER), 100, 200 -
/// NUMBER).
inline void write_colours(TemporaryDirectory& directory, const std::string& folder, int count,
                          int classes, int first = 0) {
  constexpr int kWidth = 40;
  constexpr int kHeight = 30;
  for (int number = first; number < first + count; ++number) {
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i < kWidth * kHeight; ++i) {
      pixels.insert(pixels.end(), {red_of(number), 100, static_cast<std::uint8_t>(200 - number)});
    }
    std::string name = std::to_string(number);
    name.insert(0, 3 - name.size(), '0');
    directory.write(folder + "/class" + std::to_string(number % classes) + "/" + name + ".png",
                    detail::encode_png(pixels, kWidth, kHeight));
  }
}

}  // namespace lockstep::testing_support
