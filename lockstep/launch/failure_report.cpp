#include <lockstep/launch/failure_report.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::launch {
namespace {

// Header and text together stay below 64 KiB, the usual capacity of a pipe.
constexpr std::size_t kMaxText = 32 * 1024;

struct Header {
  std::int64_t when = 0;  // ticks of Clock
  std::int32_t exit_code = 1;
  std::int32_t communication = 0;
  std::int32_t interrupted_by = 0;
};
static_assert(std::is_trivially_copyable_v<Header>);

std::string read_available(int fd) {
  std::string content;
  char buffer[4096];
  pollfd ready{fd, POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    content.append(buffer, static_cast<std::size_t>(count));
  }
  return content;
}

}  // namespace

FailureReport describe_failure(std::exception_ptr error) {
  FailureReport report;
  report.when = Clock::now();
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    report.exit_code = exit_code(exception);
    report.communication = dynamic_cast<const CommError*>(&exception) != nullptr;
    if (const auto* const interrupted = dynamic_cast<const Interrupted*>(&exception)) {
      report.interrupted_by = interrupted->signal();
      report.exit_code = 128 + interrupted->signal();
    }
    const std::string line = first_line(exception);
    report.text = exception.what();
    if (!report.text.starts_with(line)) report.text = line + '\n' + report.text;
  } catch (...) {
    report.text = "an exception that is not a std::exception";
  }
  return report;
}

void send_report(int fd, const FailureReport& report) {
  const std::string text = report.text.substr(0, kMaxText);
  const Header header{report.when.time_since_epoch().count(), report.exit_code,
                      report.communication, report.interrupted_by};
  std::string message(sizeof(header), '\0');
  std::memcpy(message.data(), &header, sizeof(header));
  message += text;
  // The launcher reads after this process ends: a report that exceeds a small pipe must not block
  // it.
  fcntl(fd, F_SETFL, O_NONBLOCK);
  for (std::size_t sent = 0; sent < message.size();) {
    const ssize_t count = write(fd, message.data() + sent, message.size() - sent);
    if (count < 0 && errno != EINTR) return;  // full, or the launcher is gone
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
}

std::optional<FailureReport> receive_report(int fd) {
  const std::string message = read_available(fd);
  Header header;
  if (message.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof(header));
  FailureReport report;
  report.when = Clock::time_point(Clock::duration(header.when));
  report.exit_code = header.exit_code;
  report.communication = header.communication != 0;
  report.interrupted_by = header.interrupted_by;
  report.text = message.substr(sizeof(header));
  return report;
}

}  // namespace lockstep::launch
