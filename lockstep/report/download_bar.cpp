#include <lockstep/report/download_bar.h>

#include <algorithm>

#include <lockstep/report/text.h>

namespace lockstep {
namespace {

constexpr Milliseconds kBetweenDrawings{100};
constexpr int kWidestBar = 40;
constexpr int kNarrowestBar = 8;

}  // namespace

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
  std::string amount = "  " + bytes_text(static_cast<double>(done));
  if (total > 0) amount += " of " + bytes_text(static_cast<double>(total));
  const int columns = std::max(terminal_.columns() - 1, 0);
  std::string text = file + amount;
  const int bar = std::min(columns - static_cast<int>(text.size()) - 1, kWidestBar);
  if (total > 0 && bar >= kNarrowestBar) {
    text = file + " " +
           draw_bar(static_cast<double>(done) / static_cast<double>(total), bar, terminal_) +
           amount;
  } else {
    text = text.substr(0, static_cast<std::size_t>(columns));
  }
  out_ << kClearLine << text << std::flush;
  line_open_ = true;
}

}  // namespace lockstep
