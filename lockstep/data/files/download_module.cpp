// The module itself; see download_module.h.
#include <lockstep/data/files/download_module.h>

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <openssl/evp.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep::data {
namespace {

constexpr long kConnectSeconds = 5;
constexpr long kStallSeconds = 20;
constexpr long kStallBytesPerSecond = 256;

template <auto function>
struct Free {
  template <class T>
  void operator()(T* object) const {
    function(object);
  }
};
using Curl = std::unique_ptr<CURL, Free<curl_easy_cleanup>>;
using Digest = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;
using Archive = std::unique_ptr<archive, Free<archive_read_free>>;

class NobodyAnswered : public DataError {
 public:
  using DataError::DataError;
};

// A new file that is removed unless keep() marks it as complete.
class OutputFile {
 public:
  explicit OutputFile(const char* path) : path_(path), file_(std::fopen(path, "wxe")) {
    if (file_ == nullptr) fail();
  }
  ~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t size) {
    if (std::fwrite(data, 1, size, file_) != size) fail();
  }
  void keep() {
    if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) fail();
    std::fclose(file_);
    file_ = nullptr;
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(str("cannot write ", path_, ": ", errno_text(errno)));
  }

  std::string path_;
  std::FILE* file_;
};

class Md5 {
 public:
  Md5() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_md5(), nullptr) != 1) {
      throw DataError("MD5 is not available in this OpenSSL");
    }
  }
  void add(const void* data, std::size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
    return hex_text(std::span(digest).first(length));
  }

 private:
  Digest context_;
};

// The state of libcurl's callbacks, and the reason why they stopped the transfer.
struct Transfer {
  OutputFile file;
  Md5 md5;
  std::uint64_t maximum_bytes;
  std::uint64_t bytes = 0;
  lockstep_progress_v1 progress;
  void* user;
  std::string failure;
};

std::size_t on_data(char* data, std::size_t, std::size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  try {
    transfer.bytes += size;
    if (transfer.bytes > transfer.maximum_bytes) {
      throw DataError(str("the answer exceeds ", transfer.maximum_bytes, " bytes"));
    }
    transfer.file.write(data, size);
    transfer.md5.add(data, size);
    return size;
  } catch (const std::exception& error) {
    transfer.failure = error.what();
    return 0;  // less than `size`: stop
  }
}

int on_progress(void* user, curl_off_t total, curl_off_t done, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.progress == nullptr) return 0;
  return transfer.progress(transfer.user, static_cast<std::uint64_t>(done),
                           static_cast<std::uint64_t>(total));
}

// Excludes file:, ftp: and the other protocols of libcurl.
void allow_only_http(CURL* curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, long{CURLPROTO_HTTP | CURLPROTO_HTTPS});
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, long{CURLPROTO_HTTP | CURLPROTO_HTTPS});
#endif
}

void set_up(CURL* curl, const char* url, Transfer& transfer, char* curl_error) {
  curl_easy_setopt(curl, CURLOPT_URL, url);
  allow_only_http(curl);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
}

// After an answer, even if only its first line arrived, a failure is not the network's alone.
bool nobody_answered(CURL* curl, CURLcode result) {
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status != 0) return false;
  switch (result) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

void download(const char* url, const char* path, const char* md5, std::uint64_t maximum_bytes,
              lockstep_progress_v1 progress, void* user) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Curl curl(curl_easy_init());
  if (initialised != CURLE_OK || !curl) throw DataError("libcurl cannot be initialised");
  Transfer transfer{.file = OutputFile(path),
                    .md5 = {},
                    .maximum_bytes = maximum_bytes,
                    .progress = progress,
                    .user = user,
                    .failure = {}};
  std::array<char, CURL_ERROR_SIZE> curl_error{};
  set_up(curl.get(), url, transfer, curl_error.data());
  const CURLcode result = curl_easy_perform(curl.get());
  if (result != CURLE_OK) {
    if (!transfer.failure.empty()) throw DataError(transfer.failure);
    const char* text = curl_error[0] != '\0' ? curl_error.data() : curl_easy_strerror(result);
    if (nobody_answered(curl.get(), result)) throw NobodyAnswered(text);
    throw DataError(text);
  }
  const std::string got = transfer.md5.hex();
  if (strcasecmp(got.c_str(), md5) != 0) {
    throw DataError(
        str("wrong checksum: got md5 ", got, " of ", transfer.bytes, " bytes, expected ", md5));
  }
  transfer.file.keep();
}

std::string_view base_name(const char* path) {
  const std::string_view text(path == nullptr ? "" : path);
  return text.substr(text.rfind('/') + 1);
}

void copy_entry(archive* reader, const char* path, std::uint64_t maximum_bytes) {
  OutputFile file(path);
  std::array<char, 1 << 16> buffer;
  std::uint64_t bytes = 0;
  for (;;) {
    const la_ssize_t size = archive_read_data(reader, buffer.data(), buffer.size());
    if (size < 0) throw DataError(str("damaged archive: ", archive_error_string(reader)));
    if (size == 0) break;
    bytes += static_cast<std::uint64_t>(size);
    if (bytes > maximum_bytes) throw DataError(str("the file exceeds ", maximum_bytes, " bytes"));
    file.write(buffer.data(), static_cast<std::size_t>(size));
  }
  file.keep();
}

void unpack(const char* archive_path, std::span<const char* const> names,
            std::span<const char* const> paths, std::uint64_t maximum_bytes) {
  const Archive reader(archive_read_new());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  constexpr std::size_t kBlockBytes = 1 << 16;
  if (archive_read_open_filename(reader.get(), archive_path, kBlockBytes) != ARCHIVE_OK) {
    throw DataError(str("not a .tar.gz: ", archive_error_string(reader.get())));
  }
  std::vector<bool> done(names.size());
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  while ((status = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    // A hard link passes for an empty file.
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr) {
      continue;
    }
    const auto name =
        std::find(names.begin(), names.end(), base_name(archive_entry_pathname(entry)));
    const auto index = static_cast<std::size_t>(name - names.begin());
    if (name == names.end() || done[index]) continue;
    copy_entry(reader.get(), paths[index], maximum_bytes);
    done[index] = true;
  }
  if (status != ARCHIVE_EOF)
    throw DataError(str("damaged archive: ", archive_error_string(reader.get())));
  const auto missing = std::find(done.begin(), done.end(), false);
  if (missing != done.end()) {
    throw DataError(str("holds no file ", names[static_cast<std::size_t>(missing - done.begin())]));
  }
}

// Runs `work` and converts an exception to a text, because no exception may cross the border.
template <class Work>
int guarded(char* error, std::size_t error_size, const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& exception) {
    std::snprintf(error, error_size, "%s", exception.what());
    return dynamic_cast<const NobodyAnswered*>(&exception) != nullptr ? kNobodyAnswered : 1;
  }
}

}  // namespace
}  // namespace lockstep::data

extern "C" {

[[gnu::visibility("default")]] int lockstep_download_file_v2(
    const char* url, const char* path, const char* md5, uint64_t maximum_bytes,
    lockstep_progress_v1 progress, void* user, char* error, size_t error_size) {
  return lockstep::data::guarded(error, error_size, [&] {
    lockstep::data::download(url, path, md5, maximum_bytes, progress, user);
  });
}

[[gnu::visibility("default")]] int lockstep_unpack_files_v2(const char* archive, size_t count,
                                                            const char* const* names,
                                                            const char* const* paths,
                                                            uint64_t maximum_bytes, char* error,
                                                            size_t error_size) {
  return lockstep::data::guarded(error, error_size, [&] {
    lockstep::data::unpack(archive, {names, count}, {paths, count}, maximum_bytes);
  });
}
}
