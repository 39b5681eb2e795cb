// Checkpoints in a CheckpointStore, for tests that write, read and damage them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::train {

/// The contents of a checkpoint, whose bytes depend on its step. The object must outlive what is
/// written from it.
class StepContent {
 public:
  explicit StepContent(std::int64_t step, std::size_t bytes = 3000)
      : model_(bytes_for(step, bytes)), training_(bytes_for(-step, bytes)) {}

  std::vector<CheckpointFile> files() const {
    // In two pieces, as a header and its tensors are.
    const auto model = testing_support::as_bytes(model_);
    return {{kModelFile, {model.first(100), model.subspan(100)}},
            {kTrainingFile, {testing_support::as_bytes(training_)}}};
  }
  const std::string& model() const { return model_; }
  const std::string& training() const { return training_; }

 private:
  static std::string bytes_for(std::int64_t step, std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) {
      text[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(step) * 7919 + (i >> 8));
    }
    return text;
  }

  std::string model_;
  std::string training_;
};

inline void save_step(CheckpointStore& store, std::int64_t step,
                      const std::map<std::string, double>& metrics = {}, std::size_t bytes = 3000) {
  const StepContent content(step, bytes);
  store.save(content.files(), {.epoch = 1, .step = step, .metrics = metrics});
}

/// Whether `folder` holds exactly what save_step() wrote for `step`.
inline bool holds_step(const std::filesystem::path& folder, std::int64_t step,
                       std::size_t bytes = 3000) {
  const StepContent content(step, bytes);
  return testing_support::read_text(folder / kModelFile) == content.model() &&
         testing_support::read_text(folder / kTrainingFile) == content.training();
}

/// The names of the checkpoints in `directory`, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& folder : checkpoint_folders(directory)) names.push_back(folder.filename());
  return names;
}

/// A test with a folder for checkpoints.
class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStore store(CheckpointOptions options = {}) const {
    options.directory = directory;
    CheckpointStore made(options);
    made.prepare();
    return made;
  }

  testing_support::TemporaryDirectory scratch;
  const std::filesystem::path directory = scratch / "checkpoints";
};

}  // namespace lockstep::train
