// PNG files of every kind for tests, each with the RGB pixels that a reader must return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing_support {

struct PngSpec {
  const char* name = "rgb 8";
  int width = 0;
  int height = 0;
  int color_type = 2;  ///< 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGBA
  int depth = 8;       ///< bits per value
  bool interlaced = false;
  bool transparent = false;  ///< whether the file has a chunk tRNS
};

struct PngBytes {
  std::string file;
  std::vector<std::uint8_t> rgb;
};

PngBytes make_png(const PngSpec& spec);

/// All colour types with all their depths, `width` * `height` pixels each, plain and interlaced.
std::vector<PngSpec> png_kinds(int width, int height);

/// A chunk of a PNG file, with a valid checksum.
std::string png_chunk(const std::string& type, const std::string& content);

}  // namespace lockstep::testing_support
