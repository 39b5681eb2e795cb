// Small files in MNIST's format.
#pragma once

#include <string>

#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// Writes one split: `count` images of side x side pixels, and their labels. `split` is "train" or
/// "t10k", optionally with a folder in front.
inline void write_mnist(const TemporaryDirectory& folder, const std::string& split,
                        std::uint32_t count, std::uint32_t side = 28) {
  folder.write(split + "-images-idx3-ubyte", idx_images(count, side, side));
  folder.write(split + "-labels-idx1-ubyte", idx_labels(count));
}

}  // namespace lockstep::testing_support
