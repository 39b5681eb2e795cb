// MNIST's files, as small as a test wants them.
#pragma once

#include <string>

#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// One split ("train" or "t10k", after a folder if need be): `count` images of side x side and
/// their labels.
inline void write_mnist(const TemporaryDirectory& folder, const std::string& split,
                        std::uint32_t count, std::uint32_t side = 28) {
  folder.write(split + "-images-idx3-ubyte", idx_images(count, side, side));
  folder.write(split + "-labels-idx1-ubyte", idx_labels(count));
}

}  // namespace lockstep::testing_support
