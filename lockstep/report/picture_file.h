// The last picture of a run as a PNG file.
#pragma once

#include <filesystem>
#include <utility>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Writes FOLDER/NAME.png, where NAME is the picture's name (Task::picture()), at the end of each
/// epoch that has a picture, and replaces the previous file atomically. Throws DataError if the
/// file cannot be written.
class PictureFile final : public Listener {
 public:
  /// The folder must exist.
  explicit PictureFile(std::filesystem::path folder) : folder_(std::move(folder)) {}

  bool takes_pictures() const override { return true; }
  void on_picture(const PictureReport& report) override;

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep::report
