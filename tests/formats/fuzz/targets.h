// One function per parser, which feeds it bytes and reads everything that it returns. A parser may
// reject the bytes with an error of Lockstep's family. Any other exception, a crash, a read outside
// of the bytes (with a sanitizer) or an unbounded allocation is a defect.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::testing_support {

/// Each function returns whether the parser accepted the bytes.
bool fuzz_checkpoint_manifest(std::span<const std::byte> bytes);
bool fuzz_cifar(std::span<const std::byte> bytes);
bool fuzz_cifar100(std::span<const std::byte> bytes);
bool fuzz_gzip(std::span<const std::byte> bytes);
bool fuzz_idx(std::span<const std::byte> bytes);
bool fuzz_jpeg(std::span<const std::byte> bytes);
bool fuzz_npy(std::span<const std::byte> bytes);
bool fuzz_pack(std::span<const std::byte> bytes);
bool fuzz_pickle(std::span<const std::byte> bytes);
bool fuzz_png(std::span<const std::byte> bytes);
bool fuzz_safetensors(std::span<const std::byte> bytes);
bool fuzz_torch_file(std::span<const std::byte> bytes);

}  // namespace lockstep::testing_support
