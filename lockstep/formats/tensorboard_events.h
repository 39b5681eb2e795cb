// TensorBoard's event files: scalars, histograms, images, texts and hyper-parameters.
//
// The file is a sequence of records as TensorFlow writes them: length (8 bytes, little-endian), its
// masked CRC-32C, the event, the event's masked CRC-32C. An event is a protobuf message whose
// fields are those of tensorboard/compat/proto/event.proto and summary.proto, and of the hparams
// plugin's plugin_data.proto. The first event holds the file version, "brain.Event:2".
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/append_file.h>
#include <lockstep/formats/logged_values.h>

namespace lockstep::formats {

/// Frames `event` as a record of the file.
std::string tensorboard_record(std::string_view event);

/// An event file in a folder that TensorBoard reads. Every call writes one record, which readers
/// see immediately. Values are stored as float32, the type that TensorBoard uses. Not thread-safe.
/// Throws a DataError if the disk is full or fails.
///
///   TensorBoardFile file("runs/mnist");
///   const NamedValue values[] = {{"train/loss", 0.25}};
///   file.add_scalars(moment_at(100), values);
class TensorBoardFile {
 public:
  /// Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID.NUMBER; FOLDER must exist. `time` is the
  /// current time in seconds since 1970.
  TensorBoardFile(const std::filesystem::path& folder, double time);

  const std::filesystem::path& path() const { return file_.path(); }

  void add_scalars(const LogMoment& moment, std::span<const NamedValue> values);
  void add_histogram(const LogMoment& moment, std::string_view name, const Histogram& histogram);
  /// `png` is the content of a PNG file of the given size in pixels.
  void add_image(const LogMoment& moment, std::string_view name, std::string_view png, int width,
                 int height);
  /// `text` is Markdown, which may have tables.
  void add_text(const LogMoment& moment, std::string_view name, std::string_view text);
  /// Adds a row for this file to the HPARAMS tab, in the group `run`, with these parameters.
  /// TensorBoard adds the last values of all scalars, unless a file specifies which ones to show.
  void begin_session(double time, std::string_view run, std::span<const HyperParameter> parameters);
  void end_session(double time, bool success);

 private:
  void write_event();

  AppendFile file_;
  std::string event_;   // event of the current call; kept to reuse its memory
  std::string record_;  // the framed event
};

}  // namespace lockstep::formats
