#include <tests/formats/png_bytes.h>

#include <libdeflate.h>
#include <png.h>

#include <array>

#include <lockstep/core/philox.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

int channels_of(int color_type) {
  constexpr std::array<int, 7> kChannels = {1, 0, 3, 1, 2, 0, 4};
  return kChannels.at(static_cast<std::size_t>(color_type));
}

std::uint8_t palette_value(unsigned index, int channel) {
  return static_cast<std::uint8_t>(index * 37 + static_cast<unsigned>(channel) * 91);
}

// Converts a value of `depth` bits to eight bits: scaled to the full range, or the high byte of 16.
std::uint8_t eight_bits(unsigned value, int depth) {
  return static_cast<std::uint8_t>(depth == 16 ? value >> 8 : value * 255 / ((1U << depth) - 1));
}

// Appends a value of `depth` bits to the row.
void append_bits(std::string& row, std::size_t& bits, unsigned value, int depth) {
  for (int bit = depth - 1; bit >= 0; --bit, ++bits) {
    if (bits % 8 == 0) row.push_back('\0');
    if ((value >> bit & 1) != 0) row.back() = static_cast<char>(row.back() | 0x80 >> bits % 8);
  }
}

std::string write_file(const PngSpec& spec, std::vector<std::string>& rows) {
  std::string file;
  png_structp codec = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(codec);
  png_set_write_fn(
      codec, &file,
      [](png_structp writer, png_bytep data, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(writer))
            ->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(codec, info, static_cast<png_uint_32>(spec.width),
               static_cast<png_uint_32>(spec.height), spec.depth, spec.color_type,
               spec.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (spec.color_type == PNG_COLOR_TYPE_PALETTE) {
    std::array<png_color, 256> palette{};
    for (unsigned i = 0; i < 256; ++i) {
      palette[i] = {palette_value(i, 0), palette_value(i, 1), palette_value(i, 2)};
    }
    png_set_PLTE(codec, info, palette.data(), 1 << spec.depth);
  }
  if (spec.transparent) {
    const png_byte alpha[] = {0, 128};
    const png_color_16 color{};
    png_set_tRNS(codec, info, alpha, 2, &color);
  }
  std::vector<png_bytep> pointers;
  for (std::string& row : rows) pointers.push_back(reinterpret_cast<png_bytep>(row.data()));
  png_write_info(codec, info);
  png_write_image(codec, pointers.data());
  png_write_end(codec, info);
  png_destroy_write_struct(&codec, &info);
  return file;
}

}  // namespace

PngBytes make_png(const PngSpec& spec) {
  PngBytes result;
  std::vector<std::string> rows(static_cast<std::size_t>(spec.height));
  PhiloxStream random(3, static_cast<std::uint32_t>(spec.color_type), spec.depth);
  const int channels = channels_of(spec.color_type);
  for (std::string& row : rows) {
    std::size_t bits = 0;
    for (int x = 0; x < spec.width; ++x) {
      std::array<unsigned, 4> values{};
      for (int c = 0; c < channels; ++c) {
        values[c] = random.below(1U << spec.depth);
        append_bits(row, bits, values[c], spec.depth);
      }
      for (int c = 0; c < 3; ++c) {
        const unsigned value = values[channels >= 3 ? c : 0];
        result.rgb.push_back(spec.color_type == PNG_COLOR_TYPE_PALETTE
                                 ? palette_value(value, c)
                                 : eight_bits(value, spec.depth));
      }
    }
  }
  result.file = write_file(spec, rows);
  return result;
}

std::vector<PngSpec> png_kinds(int width, int height) {
  std::vector<PngSpec> kinds;
  const std::vector<PngSpec> plain = {
      {.name = "grey 1", .color_type = 0, .depth = 1},
      {.name = "grey 2", .color_type = 0, .depth = 2},
      {.name = "grey 4", .color_type = 0, .depth = 4},
      {.name = "grey 8", .color_type = 0, .depth = 8},
      {.name = "grey 16", .color_type = 0, .depth = 16},
      {.name = "grey 8 with a transparent value", .color_type = 0, .transparent = true},
      {.name = "rgb 8"},
      {.name = "rgb 16", .depth = 16},
      {.name = "rgb 8 with a transparent colour", .transparent = true},
      {.name = "palette 1", .color_type = 3, .depth = 1},
      {.name = "palette 2", .color_type = 3, .depth = 2},
      {.name = "palette 4", .color_type = 3, .depth = 4},
      {.name = "palette 8", .color_type = 3, .depth = 8},
      {.name = "palette 4 with alpha", .color_type = 3, .depth = 4, .transparent = true},
      {.name = "grey and alpha 8", .color_type = 4},
      {.name = "grey and alpha 16", .color_type = 4, .depth = 16},
      {.name = "rgba 8", .color_type = 6},
      {.name = "rgba 16", .color_type = 6, .depth = 16},
  };
  for (const bool interlaced : {false, true}) {
    for (PngSpec kind : plain) {
      kind.width = width;
      kind.height = height;
      kind.interlaced = interlaced;
      kinds.push_back(kind);
    }
  }
  return kinds;
}

std::string png_chunk(const std::string& type, const std::string& content) {
  const std::string checked = type + content;
  return big_endian({static_cast<std::uint32_t>(content.size())}) + checked +
         big_endian({libdeflate_crc32(0, checked.data(), checked.size())});
}

}  // namespace lockstep::testing_support
