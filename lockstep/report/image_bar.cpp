#include <lockstep/report/image_bar.h>

#include <lockstep/core/strings.h>
#include <lockstep/report/terminal_bar.h>
#include <lockstep/report/text.h>

namespace lockstep::report {

ImageBar::~ImageBar() {
  if (drawn_at_) out_ << kClearLine << std::flush;
}

void ImageBar::operator()(std::int64_t done) {
  if (!terminal_.interactive || (drawn_at_ && now_() - *drawn_at_ < kBetweenDrawings)) return;
  drawn_at_ = now_();
  const auto images = static_cast<double>(images_);
  const std::string amount =
      str(count_text(static_cast<double>(done)), " of ", count_of(images_, "image"));
  out_ << kClearLine << bar_line(verb_, static_cast<double>(done) / images, amount, terminal_)
       << std::flush;
}

}  // namespace lockstep::report
