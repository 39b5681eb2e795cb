#include <lockstep/report/loggers/http_client.h>

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <lockstep/core/credentials.h>
#include <lockstep/core/module_file.h>
#include <lockstep/formats/logged_text.h>

namespace lockstep::report {
namespace {

constexpr std::size_t kAnswerBytes = 65536;
constexpr std::size_t kHttpErrorBytes = 512;

struct HttpModule {
  lockstep_http_open_v1 open = nullptr;
  lockstep_http_send_v1 send = nullptr;
  lockstep_http_close_v1 close = nullptr;
};

HttpModule load_http_module() {
  const std::string path = module_file(kHttpModule);
  // The handle stays open for the life of the process, because unloading libcurl is unsafe.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw ConfigError(str("cannot log to a server, because the module ", kHttpModule,
                          " cannot be loaded (", dlerror(),
                          "): set LOCKSTEP_MODULE_DIR to its folder, or log to files"));
  }
  const HttpModule module{
      reinterpret_cast<lockstep_http_open_v1>(dlsym(handle, kHttpOpenSymbol)),
      reinterpret_cast<lockstep_http_send_v1>(dlsym(handle, kHttpSendSymbol)),
      reinterpret_cast<lockstep_http_close_v1>(dlsym(handle, kHttpCloseSymbol))};
  if (module.open == nullptr || module.send == nullptr || module.close == nullptr) {
    throw ConfigError(str("cannot use ", path, ": it belongs to another version of Lockstep"));
  }
  return module;
}

int is_cancelled(void* user) { return static_cast<const std::atomic<bool>*>(user)->load() ? 1 : 0; }

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

HttpClient::HttpClient(HttpCredentials credentials) : credentials_(std::move(credentials)) {
  static const HttpModule module = load_http_module();  // after a failure the next call retries
  send_ = module.send;
  close_ = module.close;
  client_ = module.open();
  if (client_ == nullptr)
    throw ConfigError("cannot log to a server: libcurl cannot be initialised");
}

HttpClient::~HttpClient() { close_(client_); }

HttpAnswer HttpClient::post(const std::string& url, const std::string& body,
                            std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled) {
  return send("POST", url, body, timeout, cancelled);
}

HttpAnswer HttpClient::get(const std::string& url, std::chrono::milliseconds timeout,
                           const std::atomic<bool>& cancelled) {
  return send("GET", url, {}, timeout, cancelled);
}

HttpAnswer HttpClient::send(const char* method, const std::string& url, const std::string& body,
                            std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled) {
  std::vector<char> text(kAnswerBytes);
  std::array<char, kHttpErrorBytes> error{};
  const lockstep_http_request_v1 request{.method = method,
                                         .url = url.c_str(),
                                         .body = body.data(),
                                         .body_bytes = body.size(),
                                         .username = or_null(credentials_.username),
                                         .password = credentials_.password.c_str(),
                                         .token = or_null(credentials_.token),
                                         .timeout_ms = static_cast<long>(timeout.count()),
                                         .cancelled = is_cancelled,
                                         .user = const_cast<std::atomic<bool>*>(&cancelled)};
  lockstep_http_answer_v1 answer{.status = 0, .text = text.data(), .capacity = text.size()};
  if (send_(client_, &request, &answer, error.data(), error.size()) != 0) {
    // The address of a server or a proxy may hold a password.
    throw CommError(without_credentials(
        str("no answer from ", word_without_credentials(url), ": ", error.data())));
  }
  return {.status = answer.status, .text = text.data()};
}

std::string percent_encoded(const std::string& text) {
  std::string encoded;
  for (const char letter : text) {
    if (formats::is_ascii_alphanumeric(letter) || letter == '-' || letter == '_' || letter == '.' ||
        letter == '~') {
      encoded += letter;
    } else {
      const auto byte = static_cast<unsigned char>(letter);
      encoded += '%';
      encoded += "0123456789ABCDEF"[byte >> 4];
      encoded += "0123456789ABCDEF"[byte & 15];
    }
  }
  return encoded;
}

}  // namespace lockstep::report
