// JPEG files for tests, of every kind that libjpeg-turbo writes, and the pixels that libjpeg-turbo
// itself reads from a file with its simplest calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing_support {

/// The colour model of a file's values.
enum class JpegColors { kGrey, kYcc, kRgb, kCmyk, kYcck };

struct JpegSpec {
  const char* name = "4:2:0";
  int width = 0;
  int height = 0;
  JpegColors colors = JpegColors::kYcc;
  int horizontal = 2;  ///< luma samples per chroma sample, horizontally
  int vertical = 2;
  bool progressive = false;
  bool arithmetic = false;
  bool restarts = false;  ///< whether a restart marker follows each row of blocks
  bool dc_only = false;   ///< whether a progressive file ends after its first scan
  int quality = 90;
};

/// A deterministic picture: smooth colours with some noise and edges, `channels` interleaved bytes
/// per pixel.
std::vector<std::uint8_t> picture(int width, int height, int channels);

/// Encodes `pixels` as a JPEG file: grey, RGB or CMYK, depending on `spec`.
std::string encode_jpeg(const JpegSpec& spec, const std::vector<std::uint8_t>& pixels);
/// Encodes picture() as a JPEG file.
std::string encode_jpeg(const JpegSpec& spec);

/// Decodes the whole image at scale eighths/8 with libjpeg-turbo: RGB, or CMYK for four channels.
/// Ends the program on an error of libjpeg; warnings are ignored.
std::vector<std::uint8_t> plain_libjpeg(std::string_view file, int eighths = 8);

/// One file of each kind, of `width` * `height` pixels.
std::vector<JpegSpec> jpeg_kinds(int width, int height);

}  // namespace lockstep::testing_support
