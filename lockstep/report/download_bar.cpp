#include <lockstep/report/download_bar.h>

#include <optional>

#include <lockstep/report/terminal_bar.h>
#include <lockstep/report/text.h>

namespace lockstep::report {

DownloadBar::~DownloadBar() {
  if (line_open_) out_ << '\n' << std::flush;
}

void DownloadBar::operator()(const std::string& file, std::uint64_t done, std::uint64_t total) {
  const bool first = file != file_;
  if (first) complete_ = false;
  file_ = file;
  if (complete_) return;
  if (total > 0 && done >= total) {
    complete_ = true;
    out_ << (line_open_ ? kClearLine : "") << "downloaded " << file << " ("
         << bytes_text(static_cast<double>(done)) << ")\n"
         << std::flush;
    line_open_ = false;
  } else if (terminal_.interactive && (first || now_() - drawn_at_ >= kBetweenDrawings)) {
    drawn_at_ = now_();
    draw(file, done, total);
  }
}

void DownloadBar::draw(const std::string& file, std::uint64_t done, std::uint64_t total) {
  std::string amount = bytes_text(static_cast<double>(done));
  if (total > 0) amount += " of " + bytes_text(static_cast<double>(total));
  std::optional<double> fraction;
  if (total > 0) fraction = static_cast<double>(done) / static_cast<double>(total);
  out_ << kClearLine << bar_line(file, fraction, amount, terminal_) << std::flush;
  line_open_ = true;
}

}  // namespace lockstep::report
