#include <tests/formats/jpeg_bytes.h>

#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>

#include <lockstep/core/philox.h>

namespace lockstep::testing_support {
namespace {

int channels_of(JpegColors colors) {
  switch (colors) {
    case JpegColors::kGrey:
      return 1;
    case JpegColors::kCmyk:
    case JpegColors::kYcck:
      return 4;
    default:
      return 3;
  }
}

void set_colors(jpeg_compress_struct& codec, JpegColors colors) {
  constexpr J_COLOR_SPACE kFile[] = {JCS_GRAYSCALE, JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};
  constexpr J_COLOR_SPACE kInput[] = {JCS_GRAYSCALE, JCS_RGB, JCS_RGB, JCS_CMYK, JCS_CMYK};
  codec.input_components = channels_of(colors);
  codec.in_color_space = kInput[static_cast<int>(colors)];
  jpeg_set_defaults(&codec);
  jpeg_set_colorspace(&codec, kFile[static_cast<int>(colors)]);
}

}  // namespace

std::vector<std::uint8_t> picture(int width, int height, int channels) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(width) * height * channels);
  PhiloxStream random(7, 0, 0);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int smooth = x * (3 + c) + y * (5 - c) * (c + 1);
        const int edge = (x / 11 + y / 7 + c) % 3 == 0 ? 90 : 0;
        const int noise = static_cast<int>(random.below(24));
        const int wave = smooth % 256 < 128 ? smooth % 256 : 255 - smooth % 256;
        pixels.push_back(static_cast<std::uint8_t>(std::min(wave + edge + noise, 255)));
      }
    }
  }
  return pixels;
}

std::string encode_jpeg(const JpegSpec& spec, const std::vector<std::uint8_t>& pixels) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &buffer, &size);
  codec.image_width = static_cast<JDIMENSION>(spec.width);
  codec.image_height = static_cast<JDIMENSION>(spec.height);
  set_colors(codec, spec.colors);
  jpeg_set_quality(&codec, spec.quality, TRUE);
  codec.comp_info[0].h_samp_factor = spec.horizontal;
  codec.comp_info[0].v_samp_factor = spec.vertical;
  if (spec.progressive) jpeg_simple_progression(&codec);
  if (spec.dc_only) codec.num_scans = 1;
  codec.arith_code = spec.arithmetic ? TRUE : FALSE;
  codec.restart_in_rows = spec.restarts ? 1 : 0;
  jpeg_start_compress(&codec, TRUE);
  const std::size_t row_bytes = static_cast<std::size_t>(spec.width) * channels_of(spec.colors);
  while (codec.next_scanline < codec.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + codec.next_scanline * row_bytes);
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  std::string file(reinterpret_cast<const char*>(buffer), size);
  std::free(buffer);
  jpeg_destroy_compress(&codec);
  return file;
}

std::string encode_jpeg(const JpegSpec& spec) {
  return encode_jpeg(spec, picture(spec.width, spec.height, channels_of(spec.colors)));
}

std::vector<std::uint8_t> plain_libjpeg(std::string_view file, int eighths) {
  jpeg_decompress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&codec, TRUE);
  codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_RGB;
  codec.scale_num = static_cast<unsigned>(eighths);
  codec.scale_denom = 8;
  codec.do_block_smoothing = FALSE;
  jpeg_start_decompress(&codec);
  const std::size_t row_bytes =
      std::size_t{codec.output_width} * static_cast<std::size_t>(codec.output_components);
  std::vector<std::uint8_t> pixels(row_bytes * codec.output_height);
  while (codec.output_scanline < codec.output_height) {
    JSAMPROW row = pixels.data() + codec.output_scanline * row_bytes;
    jpeg_read_scanlines(&codec, &row, 1);
  }
  jpeg_destroy_decompress(&codec);
  return pixels;
}

std::vector<JpegSpec> jpeg_kinds(int width, int height) {
  using enum JpegColors;
  std::vector<JpegSpec> kinds = {
      {.name = "4:2:0"},
      {.name = "4:2:2", .vertical = 1},
      {.name = "4:4:4", .horizontal = 1, .vertical = 1},
      {.name = "4:4:0", .horizontal = 1},
      {.name = "4:1:1", .horizontal = 4, .vertical = 1},
      {.name = "4:1:0", .horizontal = 4, .vertical = 2},
      {.name = "2x4", .vertical = 4},
      {.name = "3x2", .horizontal = 3},
      {.name = "grey", .colors = kGrey, .horizontal = 1, .vertical = 1},
      {.name = "grey sampled 2x2", .colors = kGrey},
      {.name = "rgb", .colors = kRgb, .horizontal = 1, .vertical = 1},
      {.name = "progressive 4:2:0", .progressive = true},
      {.name = "progressive 4:4:4", .horizontal = 1, .vertical = 1, .progressive = true},
      {.name = "progressive, DC only", .progressive = true, .dc_only = true},
      {.name = "arithmetic", .arithmetic = true},
      {.name = "arithmetic, progressive", .progressive = true, .arithmetic = true},
      {.name = "restart markers", .restarts = true},
      {.name = "cmyk", .colors = kCmyk, .horizontal = 1, .vertical = 1},
      {.name = "ycck", .colors = kYcck},
  };
  for (JpegSpec& kind : kinds) {
    kind.width = width;
    kind.height = height;
  }
  return kinds;
}

}  // namespace lockstep::testing_support
