#include <lockstep/formats/jpeg.h>

#include <cstdio>  // jpeglib.h needs FILE

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csetjmp>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg-turbo is needed: the original libjpeg can neither crop nor skip rows"
#endif

namespace lockstep::detail {
namespace {

// A scan costs a pass over all coefficients, however few bytes it has. Encoders write about ten.
constexpr int kMaximumScans = 100;
// The densest Huffman-coded image has one bit for the DC value of a block. With components sampled
// 4x1, 1x4 and 1x1 the nine blocks of an MCU cover 32x32 pixels: 910 pixels a byte.
constexpr std::int64_t kMaximumJpegPixelsPerByte = 1024;
// libjpeg returns up to a component's vertical sampling factor of rows at a time, at most 4.
constexpr int kRowsAtOnce = 4;
// Smooth upsampling by two reads the chroma sample on each side.
constexpr int kUpsamplingMargin = 2;

// a * b / 255, rounded, without a division.
int product_of_255ths(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

void copy_cmyk(const JSAMPLE* from, int count, std::uint8_t* to) {
  for (int i = 0; i < count; ++i, from += 4, to += 3) {
    // Adobe stores 255 - ink, so the fourth value is the share of white.
    const int white = from[3];
    for (int c = 0; c < 3; ++c) {
      to[c] =
          static_cast<std::uint8_t>(std::max(white - product_of_255ths(255 - from[c], white), 0));
    }
  }
}

}  // namespace

// libjpeg reports errors by a function that must not return. The function exits by longjmp, which
// must not skip a destructor: code between run() and libjpeg has no objects with one.
struct JpegDecoder::State {
  explicit State(const ImageDecoderOptions& wanted);
  ~State() { jpeg_destroy_decompress(&codec); }
  State(const State&) = delete;

  template <class Step>
  void run(const Step& step) {
    if (!returns(step)) fail();
  }
  void read_header();
  void set_output(int eighths);
  bool can_crop() const;
  void read_region(const ImageRegion& region, std::int64_t width, std::int64_t height,
                   std::uint8_t* pixels);

  jpeg_decompress_struct codec{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf on_error{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  ImageDecoderOptions options;
  std::span<const std::byte> bytes;
  std::string name;
  ImageHeader header;
  bool reading_header = false;
  bool fresh = false;  // only the header has been read
  std::vector<JSAMPLE> rows;

 private:
  template <class Step>
  bool returns(const Step& step) {
    if (setjmp(on_error) != 0) return false;
    step();
    return true;
  }
  [[noreturn]] void fail();

  static State& of(j_common_ptr codec) { return *static_cast<State*>(codec->client_data); }
  [[noreturn]] static void leave(j_common_ptr codec);
  static void warn(j_common_ptr codec, int level);
  static void count_scans(j_common_ptr codec);
};

JpegDecoder::State::State(const ImageDecoderOptions& wanted) : options(wanted) {
  codec.err = jpeg_std_error(&errors);
  errors.error_exit = leave;
  errors.emit_message = warn;
  errors.output_message = [](j_common_ptr) {};
  codec.client_data = this;
  progress.progress_monitor = count_scans;
}

void JpegDecoder::State::leave(j_common_ptr codec) {
  State& state = of(codec);
  if (codec->err->msg_code == JERR_NO_BACKING_STORE) {
    std::snprintf(state.message.data(), state.message.size(), "needs more memory than is allowed");
  } else {
    codec->err->format_message(codec, state.message.data());
  }
  std::longjmp(state.on_error, 1);
}

void JpegDecoder::State::warn(j_common_ptr codec, int level) {
  if (level >= 0) return;  // a trace, not a warning
  const State& state = of(codec);
  const int code = codec->err->msg_code;
  // These two warnings, and stray bytes between the markers of the header, change no pixel.
  const bool harmless = code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
                        (code == JWRN_EXTRANEOUS_DATA && state.reading_header);
  if (!harmless && !state.options.tolerate_damage) leave(codec);
}

void JpegDecoder::State::count_scans(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMaximumScans) return;
  State& state = of(codec);
  std::snprintf(state.message.data(), state.message.size(), "more than %d scans", kMaximumScans);
  std::longjmp(state.on_error, 1);
}

void JpegDecoder::State::fail() {
  const std::size_t left = codec.src == nullptr ? 0 : codec.src->bytes_in_buffer;
  // At the end, libjpeg reads a marker that it made up.
  const std::size_t at = left > bytes.size() ? bytes.size() : bytes.size() - left;
  jpeg_destroy_decompress(&codec);
  fresh = false;
  throw DataError(str(name, ": cannot decode JPEG: ", message.data(), " (near byte ", at, " of ",
                      bytes.size(), ")"));
}

void JpegDecoder::State::read_header() {
  fresh = false;
  reading_header = true;
  // Created anew, since libjpeg keeps the tables of one image for the next: a file that lacks
  // tables would be decoded with those of the previous file.
  jpeg_destroy_decompress(&codec);
  run([&] {
    jpeg_create_decompress(&codec);
    codec.progress = &progress;
    // The coefficients of a progressive image: two bytes each, in up to four components.
    codec.mem->max_memory_to_use = static_cast<long>(12 * options.max_image_pixels + (1 << 20));
    jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&codec, TRUE);
  });
  reading_header = false;
  fresh = true;
}

void JpegDecoder::State::set_output(int eighths) {
  codec.scale_num = static_cast<unsigned>(eighths);
  codec.scale_denom = 8;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  // Block smoothing guesses the missing coefficients of a progressive image from the neighbouring
  // blocks, also from blocks outside of a region.
  codec.do_block_smoothing = FALSE;
  codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_RGB;
}

// libjpeg-turbo (2.1.5) counts a cropped row of chroma in samples of the full size. At a smaller
// scale it transforms chroma at twice the scale if that saves upsampling by two in both directions.
// If upsampling is still needed after that (4:1:0, which is practically unused), the count is
// wrong.
bool JpegDecoder::State::can_crop() const {
  return codec.scale_num == 8 || codec.max_h_samp_factor * codec.max_v_samp_factor <= 4;
}

// Reads a region of the image at its scale, at which it has width * height pixels.
void JpegDecoder::State::read_region(const ImageRegion& region, std::int64_t width,
                                     std::int64_t height, std::uint8_t* pixels) {
  const int margin = codec.max_h_samp_factor > 1 ? kUpsamplingMargin : 0;
  const std::int64_t left = can_crop() ? std::max<std::int64_t>(region.left - margin, 0) : 0;
  const std::int64_t right =
      can_crop() ? std::min(region.left + region.width + margin, width) : width;
  auto first = static_cast<JDIMENSION>(left);
  auto columns = static_cast<JDIMENSION>(right - left);
  const bool to_the_end = region.top + region.height == height;
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(region.width);
  const std::size_t channels = codec.num_components == 4 ? 4 : 3;
  const bool direct = region.width == width && channels == 3;
  const std::size_t buffered = channels * static_cast<std::size_t>(width);
  if (!direct && rows.size() < kRowsAtOnce * buffered) rows.resize(kRowsAtOnce * buffered);

  run([&] {
    jpeg_start_decompress(&codec);
    jpeg_crop_scanline(&codec, &first, &columns);
    if (region.top > 0) jpeg_skip_scanlines(&codec, static_cast<JDIMENSION>(region.top));
    const std::size_t skipped = channels * (static_cast<std::size_t>(region.left) - first);
    for (std::int64_t done = 0; done < region.height;) {
      JSAMPROW targets[kRowsAtOnce];
      std::uint8_t* const target = pixels + static_cast<std::size_t>(done) * row_bytes;
      for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
        targets[i] = direct ? target + i * row_bytes : rows.data() + i * buffered;
      }
      const auto wanted = std::min<std::int64_t>(kRowsAtOnce, region.height - done);
      const int got =
          static_cast<int>(jpeg_read_scanlines(&codec, targets, static_cast<JDIMENSION>(wanted)));
      for (int i = 0; i < got && !direct; ++i) {
        std::uint8_t* const to = target + static_cast<std::size_t>(i) * row_bytes;
        if (channels == 4) {
          copy_cmyk(targets[i] + skipped, static_cast<int>(region.width), to);
        } else {
          std::memcpy(to, targets[i] + skipped, row_bytes);
        }
      }
      done += got;
    }
    // Extra bytes, or a missing end, show that the data before were damaged.
    if (to_the_end) jpeg_finish_decompress(&codec);
  });
}

JpegDecoder::JpegDecoder(const ImageDecoderOptions& options)
    : state_(std::make_unique<State>(options)) {}
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;

const ImageHeader& JpegDecoder::open(std::span<const std::byte> bytes, std::string_view name) {
  State& state = *state_;
  state.bytes = bytes;
  state.name = name;
  state.header = {};
  state.read_header();
  const jpeg_decompress_struct& codec = state.codec;
  const ImageHeader header{ImageType::kJpeg, static_cast<int>(codec.image_width),
                           static_cast<int>(codec.image_height), codec.num_components};
  if (codec.jpeg_color_space == JCS_UNKNOWN) {
    throw DataError(str(name, ": cannot decode JPEG: ", header.channels,
                        " channels of unknown meaning, expected grey, colour or CMYK"));
  }
  // Arithmetic coding takes less than a bit per block.
  check_image_size(header, state.options, bytes.size(),
                   codec.arith_code != FALSE ? INT_MAX : kMaximumJpegPixelsPerByte, name);
  state.header = header;
  return state.header;
}

void JpegDecoder::decode(const ImageRegion& region, int eighths, std::span<std::uint8_t> pixels) {
  State& state = *state_;
  LOCKSTEP_CHECK(state.header.width > 0, "decode() without an image");
  LOCKSTEP_CHECK(eighths >= 1 && eighths <= 8, "a scale of ", eighths, "/8");
  const std::int64_t width = jpeg_side(state.header.width, eighths);
  const std::int64_t height = jpeg_side(state.header.height, eighths);
  check_region(region, width, height, pixels);
  if (!state.fresh) state.read_header();
  state.fresh = false;
  state.set_output(eighths);
  state.read_region(region, width, height, pixels.data());
  jpeg_abort_decompress(&state.codec);  // a progressive image may hold much memory
}

std::int64_t jpeg_side(std::int64_t pixels, int eighths) { return (pixels * eighths + 7) / 8; }

ImageRegion jpeg_region(const ImageRegion& region, int eighths) {
  const std::int64_t top = region.top * eighths / 8;
  const std::int64_t left = region.left * eighths / 8;
  return {top, left, jpeg_side(region.top + region.height, eighths) - top,
          jpeg_side(region.left + region.width, eighths) - left};
}

int jpeg_eighths(const ImageRegion& region, std::int64_t width, std::int64_t height) {
  for (const int eighths : {1, 2, 4}) {
    if (region.width * eighths >= 8 * width && region.height * eighths >= 8 * height) {
      return eighths;
    }
  }
  return 8;
}

}  // namespace lockstep::detail
