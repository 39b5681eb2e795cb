#include <lockstep/report/html/run_pictures.h>

#include <algorithm>
#include <cstdint>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/png.h>

namespace lockstep::html {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPictures = 4;
constexpr std::size_t kLargestFile = std::size_t{64} << 20;

struct Pixels {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb{};
};

// The means of 2 x 2 blocks of pixels; an odd last row or column is dropped.
Pixels halved(const Pixels& from) {
  Pixels to{.width = from.width / 2, .height = from.height / 2};
  const auto row = static_cast<std::size_t>(from.width) * 3;
  to.rgb.reserve(static_cast<std::size_t>(to.width) * static_cast<std::size_t>(to.height) * 3);
  for (int y = 0; y < to.height; ++y) {
    for (int x = 0; x < to.width; ++x) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        const std::size_t at =
            2 * static_cast<std::size_t>(y) * row + 6 * static_cast<std::size_t>(x) + channel;
        const int sum =
            from.rgb[at] + from.rgb[at + 3] + from.rgb[at + row] + from.rgb[at + row + 3];
        to.rgb.push_back(static_cast<std::uint8_t>((sum + 2) / 4));
      }
    }
  }
  return to;
}

RunPictureFile picture_of(const fs::path& file, std::size_t most_bytes) {
  std::vector<std::byte> bytes;
  read_file(file, kLargestFile, bytes);
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(bytes, file.string());
  RunPictureFile picture{
      .name = file.filename().string(), .width = header.width, .height = header.height};
  picture.png.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Pixels pixels{.width = header.width, .height = header.height};
  pixels.rgb.resize(rgb_bytes(whole(header)));
  decoder.decode(whole(header), pixels.rgb);
  while (picture.png.size() > most_bytes && pixels.width > 1 && pixels.height > 1) {
    pixels = halved(pixels);
    picture.png = detail::encode_png(pixels.rgb, pixels.width, pixels.height);
    picture.divisor *= 2;
  }
  return picture;
}

}  // namespace

std::vector<RunPictureFile> read_pictures(const fs::path& folder, std::size_t most_bytes) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    if (entry.path().extension() == ".png" && entry.is_regular_file(ignored)) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  if (files.size() > kMostPictures) files.resize(kMostPictures);
  std::vector<RunPictureFile> pictures;
  for (const fs::path& file : files) {
    try {
      pictures.push_back(picture_of(file, most_bytes / files.size()));
    } catch (const DataError&) {
      continue;  // still being written, or not Lockstep's
    }
  }
  return pictures;
}

}  // namespace lockstep::html
