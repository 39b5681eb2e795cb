#include <lockstep/bench/collectives/trace_text.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

std::string padded(const std::string& text, int width) {
  const auto wanted = static_cast<std::size_t>(std::abs(width));
  const std::string padding(wanted - std::min(wanted, text.size()), ' ');
  return width < 0 ? text + padding : padding + text;
}

// The character drawn in one column of a rank's timeline.
struct Glyphs {
  const char* waiting;
  const char* sending;
  const char* receiving;
  const char* both;
  const char* adding;
  const char* arrow;
};
constexpr Glyphs kAscii = {".", "s", "r", "x", "+", "->"};
constexpr Glyphs kUnicode = {"·", "▀", "▄", "█", "+", "→"};

std::string steps_text(const TracedRun& run, int columns, const Glyphs& glyphs) {
  const PieceNames names(run);
  const std::vector<Arrow> arrows = arrows_of(run);
  std::string text;
  const int digits = static_cast<int>(std::to_string(step_count(run)).size());
  const std::string indent(static_cast<std::size_t>(digits + 7), ' ');
  for (std::size_t i = 0; i < arrows.size();) {
    const int step = arrows[i].step;
    std::string line = "step " + padded(std::to_string(step + 1), digits) + "  ";
    int width = static_cast<int>(line.size());
    for (bool first = true; i < arrows.size() && arrows[i].step == step; ++i, first = false) {
      const Arrow& arrow = arrows[i];
      const std::string name = names.name(arrow.range);
      const std::string item =
          str(arrow.from, " ", glyphs.arrow, " ", arrow.to, arrow.added ? " +[" : "  [", name, "]");
      const int item_width = static_cast<int>(padded(std::to_string(arrow.from), 1).size() +
                                              name.size() + 9 + std::to_string(arrow.to).size()) -
                             1;
      if (!first && width + item_width + 2 > columns) {
        text += line + "\n";
        line = indent;
        width = static_cast<int>(indent.size());
        first = true;
      }
      line += (first ? "" : "  ") + item;
      width += item_width + (first ? 0 : 2);
    }
    text += line + "\n";
  }
  return text;
}

// Which of the three kinds of event was in progress in each column.
std::vector<unsigned> activity(const comm::Trace& trace, std::int64_t begin, double ns_per_column,
                               int columns) {
  std::vector<unsigned> kinds(static_cast<std::size_t>(columns));
  const auto column_of = [&](std::int64_t ns) {
    return std::clamp(static_cast<int>(static_cast<double>(ns - begin) / ns_per_column), 0,
                      columns - 1);
  };
  for (const comm::TraceEvent& event : trace.events) {
    const unsigned bit = 1U << static_cast<unsigned>(event.kind);
    for (int c = column_of(event.start_ns); c <= column_of(event.end_ns); ++c) {
      kinds[static_cast<std::size_t>(c)] |= bit;
    }
  }
  return kinds;
}

std::string timeline_text(const TracedRun& run, int columns, const Glyphs& glyphs) {
  const int width = std::clamp(columns - 10, 20, 160);
  const std::int64_t begin = begin_ns(run);
  const double total = std::max<double>(static_cast<double>(end_ns(run) - begin), 1);
  constexpr unsigned kSends = 1, kReceives = 2, kAdds = 4;
  std::string text;
  for (std::size_t rank = 0; rank < run.traces.size(); ++rank) {
    text += "rank " + padded(std::to_string(rank), -3) + " ";
    for (const unsigned kinds : activity(run.traces[rank], begin, total / width, width)) {
      const unsigned transfers = kinds & (kSends | kReceives);
      text += (kinds & kAdds) != 0                ? glyphs.adding
              : transfers == (kSends | kReceives) ? glyphs.both
              : transfers == kSends               ? glyphs.sending
              : transfers == kReceives            ? glyphs.receiving
                                                  : glyphs.waiting;
    }
    text += "\n";
  }
  const std::string end = short_number(total / 1e3) + " us";
  text += padded("0", 10) + padded(end, width - 1) + "\n";
  return text + str("         ", glyphs.sending, " sends  ", glyphs.receiving, " receives  ",
                    glyphs.both, " both  ", glyphs.adding, " adds  ", glyphs.waiting, " neither\n");
}

std::string totals_text(const TracedRun& run) {
  constexpr std::array<int, 6> kWidths = {4, 9, 11, 11, 11, 13};
  const auto line = [&](const std::array<std::string, 6>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) text += padded(cells[i], kWidths[i]);
    return text + "\n";
  };
  std::string text = line({"rank", "messages", "sent", "received", "time us", "predicted us"});
  const std::vector<RankTotals> totals = totals_of(run);
  for (std::size_t rank = 0; rank < totals.size(); ++rank) {
    const RankTotals& total = totals[rank];
    text += line({std::to_string(rank), std::to_string(total.messages_sent),
                  binary_bytes_text(static_cast<double>(total.bytes_sent)),
                  binary_bytes_text(static_cast<double>(total.bytes_received)),
                  short_number(total.seconds * 1e6), short_number(total.predicted_seconds * 1e6)});
  }
  return text;
}

}  // namespace

std::string trace_text(const TracedRun& run, int columns, bool unicode) {
  const Glyphs& glyphs = unicode ? kUnicode : kAscii;
  std::string text = title_of(run) + "\n\n";
  text += steps_text(run, columns, glyphs);
  text += str("[n]: piece n of ", PieceNames(run).pieces(),
              " of the tensor; +: added to what the receiver has, else it replaces that\n\n");
  text += timeline_text(run, columns, glyphs) + "\n" + totals_text(run);
  text += model_text(run.model) + "\n";
  if (run.processors > 0 && run.processors < static_cast<int>(run.traces.size())) {
    text += str("The prediction gives every rank a processor; here ", run.traces.size(),
                " ranks shared ", run.processors, ".\n");
  }
  return text;
}

}  // namespace lockstep::bench
