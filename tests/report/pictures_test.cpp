// A task's pictures go to loggers that accept images, and a file keeps the last one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <lockstep/report/loggers/logging_listener.h>
#include <lockstep/report/picture_file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct KeptImage {
  std::int64_t step = 0;
  std::string name;
  std::vector<std::uint8_t> rgb;
  bool operator==(const KeptImage&) const = default;
};

class ImageKeeper final : public Logger {
 public:
  explicit ImageKeeper(std::vector<KeptImage>& to) : to_(to) {}
  std::string place() const override { return "memory"; }
  void log_hyper_parameters(std::span<const HyperParameter>) override {}
  void log_scalars(const LogMoment&, std::span<const NamedValue>) override {}
  bool takes_images() const override { return true; }
  void log_image(const LogMoment& moment, std::string_view name,
                 const LoggedImage& image) override {
    EXPECT_EQ(image.rgb.size(), static_cast<std::size_t>(3 * image.width * image.height));
    to_.push_back({moment.step, std::string(name), {image.rgb.begin(), image.rgb.end()}});
  }

 private:
  std::vector<KeptImage>& to_;
};

class NumbersOnly final : public Logger {
 public:
  std::string place() const override { return "nowhere"; }
  void log_hyper_parameters(std::span<const HyperParameter>) override {}
  void log_scalars(const LogMoment&, std::span<const NamedValue>) override {}
};

PictureReport picture(std::int64_t epoch, std::uint8_t value) {
  return {
      .epoch = epoch,
      .steps_per_epoch = 10,
      .picture = {
          .name = "sheet", .width = 2, .height = 1, .rgb = std::vector<std::uint8_t>(6, value)}};
}

TEST(Pictures, GoToLoggersThatTakeImages) {
  std::vector<KeptImage> kept;
  std::vector<std::unique_ptr<Logger>> loggers;
  loggers.push_back(std::make_unique<NumbersOnly>());
  loggers.push_back(std::make_unique<ImageKeeper>(kept));
  LoggingListener listener(std::move(loggers));
  EXPECT_TRUE(listener.takes_pictures());
  listener.on_picture(picture(1, 7));
  listener.on_step({.epoch = 2, .step = 10, .steps_per_epoch = 10});
  listener.on_picture(picture(2, 9));
  const std::vector<std::uint8_t> sevens(6, 7), nines(6, 9);
  EXPECT_THAT(kept, ElementsAre(KeptImage{10, "images/sheet", sevens},
                                KeptImage{20, "images/sheet", nines}));
}

TEST(Pictures, AreNotAskedForByLoggersOfNumbers) {
  std::vector<std::unique_ptr<Logger>> loggers;
  loggers.push_back(std::make_unique<NumbersOnly>());
  EXPECT_FALSE(LoggingListener(std::move(loggers)).takes_pictures());
  EXPECT_FALSE(LoggingListener({}).takes_pictures());
}

TEST(PictureFile, KeepsTheLastPicture) {
  const TemporaryDirectory folder;
  report::PictureFile file(folder.path());
  EXPECT_TRUE(file.takes_pictures());
  for (const std::uint8_t value : {50, 200}) {
    file.on_picture(picture(1, value));
    const std::string png = read_text(folder / "sheet.png");
    detail::PngDecoder decoder;
    decoder.open(std::as_bytes(std::span(png)), "sheet.png");
    std::vector<std::uint8_t> pixels(6);
    decoder.decode({0, 0, 1, 2}, pixels);
    EXPECT_THAT(pixels, ::testing::Each(value));
  }
  EXPECT_THAT(folder.names(), ElementsAre("sheet.png")) << "nothing is left beside it";
  report::PictureFile nowhere(folder / "missing");
  EXPECT_THAT(message_of<DataError>([&] { nowhere.on_picture(picture(1, 1)); }),
              HasSubstr("missing"));
}

}  // namespace
}  // namespace lockstep::testing_support
