#include <lockstep/comm/kernels/copy.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

// Highway compiles this file once per instruction set and selects one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/comm/kernels/copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Streaming stores must be aligned and are fastest for whole cache lines.
constexpr std::size_t kLine = 64;

void copy_with_target(std::byte* to, const std::byte* from, std::size_t bytes) {
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint8_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const std::size_t past_line = reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = std::min(bytes, (kLine - past_line) % kLine);
  std::memcpy(to, from, head);
  const auto* in = reinterpret_cast<const std::uint8_t*>(from) + head;
  auto* out = reinterpret_cast<std::uint8_t*>(to) + head;
  bytes -= head;
  for (; bytes >= 4 * lanes; bytes -= 4 * lanes, in += 4 * lanes, out += 4 * lanes) {
    const auto x0 = hn::LoadU(tag, in);
    const auto x1 = hn::LoadU(tag, in + lanes);
    const auto x2 = hn::LoadU(tag, in + 2 * lanes);
    const auto x3 = hn::LoadU(tag, in + 3 * lanes);
    hn::Stream(x0, tag, out);
    hn::Stream(x1, tag, out + lanes);
    hn::Stream(x2, tag, out + 2 * lanes);
    hn::Stream(x3, tag, out + 3 * lanes);
  }
  std::memcpy(out, in, bytes);
  // Streaming stores are weakly ordered; the fence restores the order that other threads rely on.
  hwy::FlushStream();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(copy_with_target);

}  // namespace

void comm::copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;  // the pointers may be null
  HWY_DYNAMIC_DISPATCH(copy_with_target)(to, from, bytes);
}

}  // namespace lockstep
#endif  // HWY_ONCE
