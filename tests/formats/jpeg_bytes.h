// JPEG files for tests, of every kind that libjpeg-turbo writes, and what libjpeg-turbo itself
// reads from a file by its plainest calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing_support {

/// What a file's values mean.
enum class JpegColors { kGrey, kYcc, kRgb, kCmyk, kYcck };

struct JpegSpec {
  const char* name = "4:2:0";
  int width = 0;
  int height = 0;
  JpegColors colors = JpegColors::kYcc;
  int horizontal = 2;  ///< how many samples of luma there are for one of chroma
  int vertical = 2;
  bool progressive = false;
  bool arithmetic = false;
  bool restarts = false;  ///< a restart marker after each row of blocks
  bool dc_only = false;   ///< a progressive file that ends after its first scan
  int quality = 90;
};

/// Smooth colours with some noise and edges: `channels` interleaved bytes a pixel, the same each
/// time.
std::vector<std::uint8_t> picture(int width, int height, int channels);

/// `pixels` as a JPEG file: grey, RGB or CMYK as `spec` asks for.
std::string encode_jpeg(const JpegSpec& spec, const std::vector<std::uint8_t>& pixels);
/// picture() as a JPEG file.
std::string encode_jpeg(const JpegSpec& spec);

/// The whole image at eighths/8, as libjpeg-turbo gives it: RGB, or CMYK for four channels. Ends
/// the program where libjpeg finds an error; warnings are passed over.
std::vector<std::uint8_t> plain_libjpeg(std::string_view file, int eighths = 8);

/// One of each kind, of `width` * `height` pixels.
std::vector<JpegSpec> jpeg_kinds(int width, int height);

}  // namespace lockstep::testing_support
