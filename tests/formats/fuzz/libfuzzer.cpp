// The entry point that libFuzzer calls, for the one target that LOCKSTEP_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::testing_support {
bool LOCKSTEP_FUZZ_TARGET(std::span<const std::byte> bytes);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing_support::LOCKSTEP_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
