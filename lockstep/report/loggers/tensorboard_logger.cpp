#include <lockstep/report/loggers/tensorboard_logger.h>

#include <utility>

#include <lockstep/formats/png.h>

namespace lockstep {

TensorBoardLogger::TensorBoardLogger(const std::filesystem::path& folder, std::string run)
    : run_(std::move(run)), file_(folder, moment_at(0).time) {}

void TensorBoardLogger::log_hyper_parameters(std::span<const HyperParameter> parameters) {
  file_.begin_session(moment_at(0).time, run_, parameters);
  in_session_ = true;
}

void TensorBoardLogger::log_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  file_.add_scalars(moment, values);
}

void TensorBoardLogger::log_histogram(const LogMoment& moment, std::string_view name,
                                      const Histogram& histogram) {
  file_.add_histogram(moment, name, histogram);
}

void TensorBoardLogger::log_image(const LogMoment& moment, std::string_view name,
                                  const LoggedImage& image) {
  file_.add_image(moment, name, encode_png(image.rgb, image.width, image.height), image.width,
                  image.height);
}

void TensorBoardLogger::finish(bool success) {
  if (in_session_) file_.end_session(moment_at(0).time, success);
}

}  // namespace lockstep
