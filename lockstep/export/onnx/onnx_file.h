// Writes an ONNX model to a file.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/export/onnx/onnx_graph.h>

namespace lockstep::onnx {

/// Protobuf readers refuse messages of 2 GiB or more. The difference from that is left for names
/// and nodes.
inline constexpr std::int64_t kMostBytesInOneFile = 2'000'000'000;
/// Smaller initializers stay in the model's own file when the others are stored separately.
inline constexpr std::int64_t kLeastExternalBytes = 1024;

struct WrittenModel {
  std::int64_t bytes = 0;        ///< size of the model's file and its external data
  std::filesystem::path data{};  ///< the file of external data; empty if there is none
};

/// Writes `model` to `path`; readers see either the old file or the new one. If the initializers
/// are larger than `most_bytes`, those of at least kLeastExternalBytes go to PATH.CHECKSUM.data,
/// which must stay beside the model. CHECKSUM is the checksum of the data in 16 digits, so a model
/// never finds another model's data. The data is complete before the model gets its name, and the
/// data of earlier models at `path` is removed afterwards, so an interruption leaves either the old
/// model with its data or the new one. Names that are not UTF-8, including the one in PATH, are
/// written by utf8_text(). Only one thread at a time may write to a path. Throws DataError if a
/// file cannot be written.
WrittenModel write_model(const std::filesystem::path& path, const Model& model,
                         std::int64_t most_bytes = kMostBytesInOneFile);

}  // namespace lockstep::onnx
