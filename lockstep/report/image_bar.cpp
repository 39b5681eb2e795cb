#include <lockstep/report/image_bar.h>

#include <algorithm>

#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

constexpr Milliseconds kBetweenDrawings{100};
constexpr int kWidestBar = 40;
constexpr int kNarrowestBar = 8;

}  // namespace

ImageBar::~ImageBar() {
  if (drawn_at_) out_ << kClearLine << std::flush;
}

void ImageBar::operator()(std::int64_t done) {
  if (!terminal_.interactive || (drawn_at_ && now_() - *drawn_at_ < kBetweenDrawings)) return;
  drawn_at_ = now_();
  const auto images = static_cast<double>(images_);
  const std::string amount =
      str("  ", count_text(static_cast<double>(done)), " of ", count_text(images), " images");
  const int columns = std::max(terminal_.columns() - 1, 0);
  const int bar =
      std::min(columns - static_cast<int>(verb_.size() + 1 + amount.size()), kWidestBar);
  std::string line = verb_ + amount;
  if (bar >= kNarrowestBar) {
    line = verb_ + " " + draw_bar(static_cast<double>(done) / images, bar, terminal_) + amount;
  } else {
    line = line.substr(0, static_cast<std::size_t>(columns));
  }
  out_ << kClearLine << line << std::flush;
}

}  // namespace lockstep
