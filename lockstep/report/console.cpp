#include <lockstep/report/console.h>

#include <lockstep/report/line_log.h>
#include <lockstep/report/model_summary_table.h>
#include <lockstep/report/profile_table.h>
#include <lockstep/report/progress_bar.h>
#include <lockstep/report/run_record.h>
#include <lockstep/report/summary_table.h>

namespace lockstep {

std::unique_ptr<Listener> make_console_listener(std::ostream& out, const Terminal& terminal) {
  if (terminal.interactive) return std::make_unique<report::ProgressBar>(out, terminal);
  return std::make_unique<report::LineLog>(out);
}

std::vector<ListenerHandle> make_terminal_listeners(std::ostream& out, const Terminal& terminal,
                                                    const std::filesystem::path& folder) {
  return {make_console_listener(out, terminal), std::make_unique<report::ModelSummaryTable>(out),
          std::make_unique<report::SummaryTable>(out, folder),
          std::make_unique<report::ProfileTable>(out)};
}

std::vector<ListenerHandle> make_run_listeners(std::ostream& out, const Terminal& terminal,
                                               const std::filesystem::path& folder) {
  std::vector<ListenerHandle> listeners = make_terminal_listeners(out, terminal, folder);
  listeners.push_back(
      std::make_unique<RunRecord>(folder, RunOrigin{.command = command_line(), .local_ranks = 0}));
  return listeners;
}

}  // namespace lockstep
