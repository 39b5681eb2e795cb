// Downloads that fail half-way, and what a server and a caller see of a download.
#include <lockstep/data/files/download.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/file_size_limit.h>
#include <tests/support/http_server.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

#ifdef LOCKSTEP_HAS_DOWNLOADER

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kMd5OfHello = "5d41402abc4b2a76b9719d911017c592";  // the MD5 of "hello"

enum class End { kClose, kReset };

// Sends `answer`, whatever it is, to its first client, and ends the connection.
class BareServer {
 public:
  BareServer(std::string answer, End end) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, raw, length) != 0 || listen(listener_, 1) != 0 ||
        getsockname(listener_, raw, &length) != 0) {
      throw std::runtime_error("no loopback socket");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), end] { serve(answer, end); });
  }
  ~BareServer() {
    shutdown(listener_, SHUT_RDWR);  // wakes accept()
    thread_.join();
    close(listener_);
  }
  BareServer(const BareServer&) = delete;
  BareServer& operator=(const BareServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve(const std::string& answer, End end) const {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t size = recv(connection, buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      request.append(buffer, static_cast<std::size_t>(size));
    }
    send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    if (end == End::kReset) {
      setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    close(connection);
  }

  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

class Download : public ::testing::Test {
 protected:
  Download() { environment_.hide_data((directory_ / "cache").string()); }

  // The message of the `Thrown` with which the download of `url` to the folder "out" ends.
  template <class Thrown>
  std::string refusal(const std::string& url, std::uint64_t maximum_bytes = 5) const {
    return message_of<Thrown>(
        [&] { download_file({url, "f", kMd5OfHello, maximum_bytes}, directory_ / "out", {}); });
  }
  // Packs the folder "in" as x.tar.gz, and returns its path.
  std::filesystem::path packed() const {
    const std::string archive = (directory_ / "x.tar.gz").string();
    const std::string command =
        "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() + "' .";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("tar failed");
    return archive;
  }
  std::vector<std::string> names_in(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / folder)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  TemporaryDirectory directory_;
  ScopedEnvironment environment_;
};

// A caller that can do without the file catches only a NetworkError.
TEST_F(Download, OnlyASilentServerIsAMissingNetwork) {
  for (const End end : {End::kClose, End::kReset}) {
    const BareServer silent("", end);
    EXPECT_THAT(refusal<NetworkError>(silent.url() + "/hello"),
                HasSubstr("cannot download " + silent.url() + "/hello: "));
    const BareServer interrupted("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", end);
    EXPECT_THROW(refusal<NetworkError>(interrupted.url() + "/hello"), DataError)
        << "it began to answer";
    const BareServer speechless("HTTP/1.1 200 OK\r\n", end);
    EXPECT_THROW(refusal<NetworkError>(speechless.url() + "/hello"), DataError)
        << "its first line arrived";
    EXPECT_THAT(names_in("out"), IsEmpty());
  }
}

// A redirection is an answer of its own, with a text that is not the file's.
TEST_F(Download, DownloadsAFileThatIsAnsweredTwice) {
  HttpServer server(HttpHandler([](const HttpRequest& request) {
    if (request.path == "/hello") return HttpReply{.content = "hello"};
    return HttpReply{
        .status = 302, .content = "<html>look elsewhere</html>", .headers = "Location: /hello\r\n"};
  }));
  std::vector<std::uint64_t> progress;
  download_file(
      {server.url() + "/old", "f", kMd5OfHello, 5}, directory_ / "cache",
      [&](const std::string&, std::uint64_t done, std::uint64_t) { progress.push_back(done); });
  EXPECT_EQ(read_text(directory_ / "cache/f"), "hello");
  EXPECT_EQ(progress.back(), 5U);
  EXPECT_EQ(server.requests(), 2);
  // A second download takes the place of the first.
  download_file({server.url() + "/hello", "f", kMd5OfHello, 5}, directory_ / "cache", {});
  EXPECT_EQ(read_text(directory_ / "cache/f"), "hello");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_ / "cache"), {}), 1);
}

TEST_F(Download, StopsAtTheFirstByteTooMuch) {
  const HttpServer server(HttpFiles{{"/one", "x"}, {"/long", std::string(100'000, 'x')}});
  EXPECT_THAT(refusal<DataError>(server.url() + "/one", 0),
              HasSubstr("the answer exceeds 0 bytes"));
  EXPECT_THAT(refusal<DataError>(server.url() + "/one", 1),
              HasSubstr("wrong checksum: got md5 9dd4e461268c8034f5c8564e155c67a6 of 1 bytes"));
  EXPECT_THAT(refusal<DataError>(server.url() + "/long", 99'999),
              HasSubstr("the answer exceeds 99999 bytes"));
  EXPECT_THAT(refusal<DataError>(server.url() + "/long", 100'000),
              AllOf(HasSubstr("wrong checksum"), HasSubstr(" of 100000 bytes, expected ")));
  EXPECT_THAT(names_in("out"), IsEmpty());
}

// The disk may be full when bytes arrive, or when the last of them leave their buffer.
TEST_F(Download, AFullDiskIsAnError) {
  const HttpServer server(HttpFiles{{"/hello", "hello"}, {"/long", std::string(100'000, 'x')}});
  const auto refusal_within = [&](rlim_t bytes, const char* path) {
    const FileSizeLimit limit(bytes);
    return refusal<DataError>(server.url() + path, 100'000);
  };
  EXPECT_THAT(refusal_within(1000, "/long"),
              AllOf(HasSubstr(server.url() + "/long: cannot write "), HasSubstr("too large")));
  EXPECT_THAT(refusal_within(2, "/hello"),
              AllOf(HasSubstr(server.url() + "/hello: cannot write "), HasSubstr("too large")));
  EXPECT_THAT(names_in("out"), IsEmpty());
}

TEST_F(Download, AFullDiskEndsTheUnpacking) {
  directory_.write("in/long", pattern(100'000));
  directory_.write("in/short", "hello");
  const std::filesystem::path archive = packed();
  const auto refusal_within = [&](rlim_t bytes, const char* name) {
    const FileSizeLimit limit(bytes);
    return message_of<DataError>(
        [&] { unpack_files(archive, directory_ / "out", {name}, 100'000); });
  };
  EXPECT_THAT(refusal_within(1000, "long"),
              AllOf(HasSubstr("cannot unpack " + archive.string() + ": cannot write "),
                    HasSubstr("too large")));
  EXPECT_THAT(refusal_within(2, "short"), HasSubstr("cannot write "));
  EXPECT_THAT(names_in("out"), IsEmpty());
}

// Such a file is read in several pieces.
TEST_F(Download, TheLimitOfAnUnpackedFileIsThatOfAllItsPieces) {
  directory_.write("in/long", pattern(150'000));
  const std::filesystem::path archive = packed();
  EXPECT_THAT(
      message_of<DataError>([&] { unpack_files(archive, directory_ / "out", {"long"}, 149'999); }),
      HasSubstr("the file exceeds 149999 bytes"));
  EXPECT_THAT(names_in("out"), IsEmpty());
  unpack_files(archive, directory_ / "out", {"long"}, 150'000);
  EXPECT_EQ(read_text(directory_ / "out/long"), pattern(150'000));
}

TEST_F(Download, NamesTheFileThatAnArchiveLacks) {
  directory_.write("in/one", "1");
  directory_.write("in/three", "3");
  const std::filesystem::path archive = packed();
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"one", "two", "three"}, {"two", "one"}, {"one", "two"}}) {
    EXPECT_THAT(message_of<DataError>([&] { unpack_files(archive, directory_ / "out", names, 1); }),
                HasSubstr("holds no file two"));
    EXPECT_THAT(names_in("out"), IsEmpty());
  }
}

TEST_F(Download, NamesAnArchiveThatIsNotThere) {
  const std::filesystem::path archive = directory_ / "none.tar.gz";
  EXPECT_THAT(message_of<DataError>([&] { unpack_files(archive, directory_ / "out", {"one"}, 1); }),
              ::testing::StartsWith("cannot unpack " + archive.string() + ": not a .tar.gz: "));
  EXPECT_THAT(names_in("out"), IsEmpty());
}

TEST_F(Download, TellsTheServerWhoAsks) {
  std::string head;
  HttpServer server(HttpHandler([&](const HttpRequest& request) {
    head = request.head;
    return HttpReply{.content = "hello"};
  }));
  download_file({server.url() + "/hello", "f", kMd5OfHello, 5}, directory_ / "out", {});
  server.stop();
  EXPECT_THAT(head, AllOf(::testing::StartsWith("GET /hello HTTP/1."),
                          HasSubstr("\r\nUser-Agent: lockstep\r\n")));
}

TEST_F(Download, ProgressEndsWithTheWholeSize) {
  directory_.write("in/one", "hello");
  const std::string archive = read_text(packed());
  const std::string command = "md5sum <'" + (directory_ / "x.tar.gz").string() + "' >'" +
                              (directory_ / "md5").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string md5 = read_text(directory_ / "md5").substr(0, 32);
  const HttpServer server(HttpFiles{{"/x.tar.gz", archive}});
  const RemoteFile file = {server.url() + "/x.tar.gz", "x.tar.gz", md5, archive.size()};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> calls;
  const auto progress = [&](const std::string& name, std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(name, "x.tar.gz");
    calls.emplace_back(done, total);
  };
  const auto check_calls = [&] {
    ASSERT_FALSE(calls.empty());
    EXPECT_EQ(calls.back(),
              std::pair(std::uint64_t{archive.size()}, std::uint64_t{archive.size()}));
    calls.pop_back();
    for (const auto& [done, total] : calls) {
      EXPECT_TRUE(total == 0 || (total == archive.size() && done < total)) << done << " " << total;
    }
    calls.clear();
  };
  download_file(file, directory_ / "out", progress);
  EXPECT_EQ(read_text(directory_ / "out/x.tar.gz"), archive);
  check_calls();
  download_archive(file, directory_ / "unpacked", {"one"}, 5, progress);
  EXPECT_EQ(read_text(directory_ / "unpacked/one"), "hello");
  EXPECT_EQ(names_in("unpacked"), std::vector<std::string>{"one"});
  check_calls();
  // Neither needs a progress function.
  download_archive(file, directory_ / "unpacked", {"one"}, 5, {});
}

#endif

}  // namespace
}  // namespace lockstep::testing_support
