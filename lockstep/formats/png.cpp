#include <lockstep/formats/png.h>

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep::detail {
namespace {

// Deflate's densest code takes 2 bits for a match of 258 bytes; the densest pixels have one bit.
constexpr std::int64_t kMaximumPngPixelsPerByte = 1032 * 8;
constexpr png_uint_32 kMaximumPngSide = 65'535;  // the limit of JPEG's headers and of packs

// Chunks that affect neither size nor colour are skipped unread: a text or a colour profile may be
// a decompression bomb. libpng takes the names of chunks as five bytes each.
constexpr png_byte kIgnoredChunks[] = "tRNS";

// libpng's messages for surplus image data after the last row.
constexpr const char* kSurplus[] = {"Too much image data", "Extra compressed data",
                                    "Too many IDATs found"};

}  // namespace

// As in jpeg.cpp: libpng's errors exit by longjmp, which must not skip a destructor.
struct PngDecoder::State {
  explicit State(const ImageDecoderOptions& wanted) : options(wanted) {}
  ~State() { close(); }
  State(const State&) = delete;

  template <class Step>
  void run(const Step& step) {
    if (!returns(step)) fail();
  }
  void read_header();
  void set_output();
  void read_rows(const ImageRegion& region, std::uint8_t* pixels);
  void read_interlaced(const ImageRegion& region, std::uint8_t* pixels);
  void read_end();
  void close() { png_destroy_read_struct(&codec, &info, nullptr); }

  png_structp codec = nullptr;
  png_infop info = nullptr;
  std::jmp_buf on_error{};
  std::array<char, 200> message{};

  ImageDecoderOptions options;
  std::span<const std::byte> bytes;
  std::size_t used = 0;
  std::string name;
  ImageHeader header;
  bool fresh = false;    // only the header has been read
  bool ended = false;    // libpng asked for more than the file holds
  bool surplus = false;  // the file holds more data than pixels
  std::string remark;
  std::vector<png_byte> rows;

 private:
  template <class Step>
  bool returns(const Step& step) {
    if (setjmp(on_error) != 0) return false;
    step();
    return true;
  }
  [[noreturn]] void fail();

  [[noreturn]] static void leave(png_structp codec, png_const_charp text);
  static void warn(png_structp codec, png_const_charp text);
  static void read(png_structp codec, png_bytep to, std::size_t count);
};

void PngDecoder::State::leave(png_structp codec, png_const_charp text) {
  State& state = *static_cast<State*>(png_get_error_ptr(codec));
  std::snprintf(state.message.data(), state.message.size(), "%s", text);
  std::longjmp(state.on_error, 1);
}

// Also called for errors that libpng considers benign once pixels are read. In the chunks of the
// pixels only surplus data are benign; a wrong checksum is not.
void PngDecoder::State::warn(png_structp codec, png_const_charp text) {
  for (const char* surplus : kSurplus) {
    if (std::strstr(text, surplus) == nullptr) continue;
    static_cast<State*>(png_get_error_ptr(codec))->surplus = true;
    return;
  }
  if (std::strncmp(text, "IDAT", 4) == 0) leave(codec, text);
}

void PngDecoder::State::read(png_structp codec, png_bytep to, std::size_t count) {
  State& state = *static_cast<State*>(png_get_io_ptr(codec));
  if (count > state.bytes.size() - state.used) {
    state.ended = true;
    leave(codec, "the file ends too early");
  }
  std::memcpy(to, state.bytes.data() + state.used, count);
  state.used += count;
}

void PngDecoder::State::fail() {
  close();
  fresh = false;
  throw DataError(str(name, ": cannot decode PNG: ", message.data(), " (near byte ", used, " of ",
                      bytes.size(), ")"));
}

void PngDecoder::State::read_header() {
  close();
  fresh = ended = surplus = false;
  remark.clear();
  used = 0;
  codec = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, warn);
  if (codec == nullptr) throw std::bad_alloc();
  info = png_create_info_struct(codec);
  if (info == nullptr) throw std::bad_alloc();
  png_set_read_fn(codec, this, read);
  run([&] {
    png_set_benign_errors(codec, 0);  // no error is benign in the chunks that are read
    png_set_keep_unknown_chunks(codec, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(codec, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks, 1);
    png_set_user_limits(codec, kMaximumPngSide, kMaximumPngSide);
    png_read_info(codec, info);
  });
  fresh = true;
}

void PngDecoder::State::set_output() {
  run([&] {
    const int colors = png_get_color_type(codec, info);
    if (colors == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(codec);
    if (png_get_bit_depth(codec, info) < 8) png_set_expand_gray_1_2_4_to_8(codec);
    if (png_get_bit_depth(codec, info) == 16) png_set_strip_16(codec);
    if ((colors & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(codec);
    if ((colors & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(codec);
    png_set_interlace_handling(codec);
    png_read_update_info(codec, info);
    png_set_benign_errors(codec, 1);  // warn() decides
  });
  LOCKSTEP_CHECK(png_get_rowbytes(codec, info) == std::size_t{3} * header.width, name, ": rows of ",
                 png_get_rowbytes(codec, info), " bytes for ", header.width, " pixels");
}

void PngDecoder::State::read_rows(const ImageRegion& region, std::uint8_t* pixels) {
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(region.width);
  const std::size_t left = std::size_t{3} * static_cast<std::size_t>(region.left);
  const std::int64_t end = region.top + region.height;
  rows.resize(std::size_t{3} * static_cast<std::size_t>(header.width));
  run([&] {
    for (int y = 0; y < end; ++y) {
      png_read_row(codec, rows.data(), nullptr);
      if (y < region.top) continue;
      std::memcpy(pixels + static_cast<std::size_t>(y - region.top) * row_bytes, rows.data() + left,
                  row_bytes);
    }
  });
  if (end == header.height) read_end();
}

void PngDecoder::State::read_interlaced(const ImageRegion& region, std::uint8_t* pixels) {
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(region.width);
  const std::size_t all_bytes = std::size_t{3} * static_cast<std::size_t>(header.width);
  rows.resize(all_bytes * static_cast<std::size_t>(header.height));
  run([&] {
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      for (int y = 0; y < header.height; ++y) {
        png_read_row(codec, rows.data() + static_cast<std::size_t>(y) * all_bytes, nullptr);
      }
    }
  });
  read_end();
  const png_byte* from = rows.data() + static_cast<std::size_t>(region.top) * all_bytes +
                         std::size_t{3} * static_cast<std::size_t>(region.left);
  for (std::int64_t y = 0; y < region.height; ++y, from += all_bytes, pixels += row_bytes) {
    std::memcpy(pixels, from, row_bytes);
  }
}

// All pixels are read: if the file merely ends now, they are correct.
void PngDecoder::State::read_end() {
  const bool complete = returns([&] { png_read_end(codec, nullptr); });
  if (!complete && !ended) fail();
  if (!complete) remark = name + ": the file lacks its end (the chunk IEND)";
  if (complete && surplus) remark = name + ": the file holds more image data than its pixels";
}

PngDecoder::PngDecoder(const ImageDecoderOptions& options)
    : state_(std::make_unique<State>(options)) {}
PngDecoder::~PngDecoder() = default;
PngDecoder::PngDecoder(PngDecoder&&) noexcept = default;
PngDecoder& PngDecoder::operator=(PngDecoder&&) noexcept = default;

const ImageHeader& PngDecoder::open(std::span<const std::byte> bytes, std::string_view name) {
  State& state = *state_;
  state.bytes = bytes;
  state.name = name;
  state.header = {};
  state.read_header();
  const bool palette = png_get_color_type(state.codec, state.info) == PNG_COLOR_TYPE_PALETTE;
  const ImageHeader header{ImageType::kPng,
                           static_cast<int>(png_get_image_width(state.codec, state.info)),
                           static_cast<int>(png_get_image_height(state.codec, state.info)),
                           palette ? 1 : png_get_channels(state.codec, state.info)};
  check_image_size(header, state.options, bytes.size(), kMaximumPngPixelsPerByte, name);
  state.header = header;
  return state.header;
}

void PngDecoder::decode(const ImageRegion& region, std::span<std::uint8_t> pixels) {
  State& state = *state_;
  LOCKSTEP_CHECK(state.header.width > 0, "decode() without an image");
  check_region(region, state.header.width, state.header.height, pixels);
  if (!state.fresh) state.read_header();
  state.fresh = false;
  const bool interlaced = png_get_interlace_type(state.codec, state.info) != PNG_INTERLACE_NONE;
  state.set_output();
  if (interlaced) {
    state.read_interlaced(region, pixels.data());
  } else {
    state.read_rows(region, pixels.data());
  }
}

std::string_view PngDecoder::remark() const { return state_->remark; }

std::string encode_png(std::span<const std::uint8_t> pixels, int width, int height) {
  check_region({0, 0, height, width}, width, height, pixels);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string content(size, '\0');
  const int written =
      png_image_write_to_memory(&image, content.data(), &size, 0, pixels.data(), 0, nullptr);
  LOCKSTEP_CHECK(written != 0, "libpng cannot write an image of ", width, "x", height, ": ",
                 image.message);
  content.resize(size);
  return content;
}

}  // namespace lockstep::detail
