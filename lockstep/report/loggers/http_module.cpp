// The implementation of the module; see http_module.h.
#include <lockstep/report/loggers/http_module.h>

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

namespace {

constexpr long kConnectMilliseconds = 5000;

// Excludes file:, ftp: and other protocols of libcurl, which no logger's server uses.
void allow_only_http(CURL* curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, long{CURLPROTO_HTTP | CURLPROTO_HTTPS});
#endif
}

// Keeps as much as fits; the rest is discarded.
size_t on_answer(char* data, size_t, size_t size, void* user) {
  auto& answer = *static_cast<lockstep_http_answer_v1*>(user);
  const size_t have = std::strlen(answer.text);
  const size_t kept = std::min(size, answer.capacity - 1 - have);
  std::memcpy(answer.text + have, data, kept);
  answer.text[have + kept] = '\0';
  return size;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& request = *static_cast<const lockstep_http_request_v1*>(user);
  return request.cancelled(request.user);
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

void set_up(CURL* curl, const lockstep_http_request_v1& request, lockstep_http_answer_v1& answer,
            const curl_slist* headers, char* curl_error) {
  curl_easy_reset(curl);  // keeps the connection
  curl_easy_setopt(curl, CURLOPT_URL, request.url);
  allow_only_http(curl);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   std::min(kConnectMilliseconds, request.timeout_ms));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, request.timeout_ms);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &request);
  if (std::strcmp(request.method, "POST") == 0) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body_bytes));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body);
  }
  if (request.token != nullptr) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, request.token);
  } else if (request.username != nullptr) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(curl, CURLOPT_USERNAME, request.username);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, request.password);
  }
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* lockstep_http_open_client_v1() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  return initialised == CURLE_OK ? curl_easy_init() : nullptr;
}

[[gnu::visibility("default")]] int lockstep_http_send_request_v1(
    void* client, const lockstep_http_request_v1* request, lockstep_http_answer_v1* answer,
    char* error, size_t error_bytes) {
  auto* curl = static_cast<CURL*>(client);
  const std::unique_ptr<curl_slist, FreeList> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  std::array<char, CURL_ERROR_SIZE> curl_error{};
  answer->status = 0;
  answer->text[0] = '\0';
  set_up(curl, *request, *answer, headers.get(), curl_error.data());
  const CURLcode result = curl_easy_perform(curl);
  if (result != CURLE_OK) {
    const char* text = curl_error[0] != '\0' ? curl_error.data() : curl_easy_strerror(result);
    std::snprintf(error, error_bytes, "%s", text);
    return 1;
  }
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
  return 0;
}

[[gnu::visibility("default")]] void lockstep_http_close_client_v1(void* client) {
  curl_easy_cleanup(static_cast<CURL*>(client));
}
}
