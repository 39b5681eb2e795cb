// Finding data, and downloading it from a server on the loopback interface.
#include <lockstep/data/files/data_source.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/data/datasets/cifar10.h>
#include <lockstep/data/datasets/mnist.h>
#include <tests/support/data_bytes.h>
#include <tests/support/http_server.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kMnistFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                              "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// An environment with an empty home, no data folder, no mirror and no proxy.
class DataSource : public ::testing::Test {
 protected:
  DataSource() { environment_.hide_data((directory_ / "cache").string()); }

  void set(const std::string& name, const std::string& value) { environment_.set(name, value); }
  void write_mnist(const std::string& folder, std::size_t files = 4, const char* suffix = "") {
    for (std::size_t i = 0; i < files; ++i)
      directory_.write(folder + "/" + kMnistFiles[i] + suffix, "x");
  }

  std::optional<fs::path> real_mnist_ = real_data("mnist");  // read before LOCKSTEP_DATA is hidden
  TemporaryDirectory directory_;
  ScopedEnvironment environment_;
};

TEST_F(DataSource, LooksInItsPlacesInOrder) {
  const fs::path root = directory_.path();
  EXPECT_EQ(find_data({.name = "mnist"}), std::nullopt);
  write_mnist("cache/lockstep/mnist", 4, ".gz");
  EXPECT_EQ(find_data({.name = "mnist"}), root / "cache/lockstep/mnist");
  fs::create_directory(root / "data");
  set("LOCKSTEP_DATA", (root / "data").string());
  EXPECT_EQ(find_data({.name = "mnist"}), root / "cache/lockstep/mnist")
      << "an empty LOCKSTEP_DATA";
  write_mnist("data/mnist");
  EXPECT_EQ(find_data({.name = "mnist"}), root / "data/mnist");
  write_mnist("data");
  EXPECT_EQ(find_data({.name = "mnist"}), root / "data");
  write_mnist("mine/mnist", 4, ".gz");
  EXPECT_EQ(find_data({.name = "mnist", .directory = (root / "mine").string()}),
            root / "mine/mnist");
  EXPECT_EQ(find_or_download_data({.name = "mnist"}), root / "data");
}

TEST_F(DataSource, FindsCifarWhereItsArchivePutsIt) {
  for (const char* folder :
       {"a", "b/cifar10", "c/cifar-10-batches-bin", "d/cifar10/cifar-10-batches-bin"}) {
    for (int i = 1; i <= 5; ++i) {
      directory_.write(std::string(folder) + "/data_batch_" + std::to_string(i) + ".bin", "x");
    }
    directory_.write(std::string(folder) + "/test_batch.bin", "x");
    const std::string top(1, folder[0]);
    EXPECT_EQ(find_data({.name = "cifar10", .directory = (directory_ / top).string()}),
              directory_ / folder);
  }
}

TEST_F(DataSource, FindsCifar100WhereItsArchivePutsIt) {
  for (const char* folder :
       {"a", "b/cifar100", "c/cifar-100-binary", "d/cifar100/cifar-100-binary"}) {
    for (const char* file : {"train.bin", "test.bin"}) {
      directory_.write(std::string(folder) + "/" + file, "x");
    }
    const std::string top(1, folder[0]);
    EXPECT_EQ(find_data({.name = "cifar100", .directory = (directory_ / top).string()}),
              directory_ / folder);
  }
}

TEST_F(DataSource, AFolderThatMissesAFileIsAnErrorWithItsName) {
  write_mnist("part", 3);
  const auto find = [&](const char* folder) {
    return find_or_download_data({.name = "mnist", .directory = (directory_ / folder).string()});
  };
  EXPECT_THAT(message_of<DataError>([&] { find("part"); }),
              ::testing::AllOf(HasSubstr("t10k-labels-idx1-ubyte"),
                               HasSubstr((directory_ / "part").string())));
  fs::create_directory(directory_ / "nothing");
  EXPECT_THAT(message_of<DataError>([&] { find("nothing"); }),
              HasSubstr("train-images-idx3-ubyte"));
  const std::string absent = (directory_ / "absent").string() +
                             " does not exist or is not a folder; create it or name another one";
  EXPECT_EQ(message_of<ConfigError>([&] { find("absent"); }), "the data folder " + absent);
  set("LOCKSTEP_DATA", (directory_ / "part").string());
  EXPECT_THAT(message_of<DataError>([&] { find_data({.name = "mnist"}); }),
              HasSubstr("t10k-labels-idx1-ubyte"));
  set("LOCKSTEP_DATA", (directory_ / "absent").string());
  EXPECT_EQ(message_of<ConfigError>([&] { find_data({.name = "mnist"}); }),
            "LOCKSTEP_DATA " + absent);
  EXPECT_THAT(message_of<ConfigError>([&] { find_data({.name = "imagenet"}); }),
              HasSubstr("data set must be one of mnist, cifar10, cifar100, got 'imagenet'"));
}

TEST_F(DataSource, SaysWhereItLookedWhenItMustNotDownload) {
  EXPECT_THAT(message_of<DataError>(
                  [&] { find_or_download_data({.name = "mnist", .may_download = false}); }),
              HasSubstr("cannot find the data set mnist: not in LOCKSTEP_DATA nor in " +
                        (directory_ / "cache/lockstep/mnist").string() +
                        "; give its folder as DataRequest::directory"));
}

TEST_F(DataSource, PrefersAWholeFolderToAPartOfOne) {
  write_mnist("data", 2);
  write_mnist("data/mnist");
  set("LOCKSTEP_DATA", (directory_ / "data").string());
  EXPECT_EQ(find_data({.name = "mnist"}), directory_ / "data/mnist");
  EXPECT_EQ(find_data({.name = "mnist", .directory = (directory_ / "data").string()}),
            directory_ / "data/mnist");
}

TEST_F(DataSource, NamesTheMissingFileOfEachDataSet) {
  const std::map<std::string, std::vector<std::string>> sets = {
      {"mnist", kMnistFiles},
      {"cifar10",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin", "test_batch.bin"}},
      {"cifar100", {"train.bin", "test.bin"}}};
  for (const auto& [name, files] : sets) {
    for (const std::string& missing : files) {
      const std::string top = name + " without " + missing;
      for (const std::string& file : files) {
        if (file != missing) directory_.write(str(top, "/", name, "/", file), "x");
      }
      fs::create_directories(directory_ / top / name);
      const DataRequest request{.name = name, .directory = (directory_ / top).string()};
      EXPECT_EQ(message_of<DataError>([&] { find_data(request); }),
                str((directory_ / top / name).string(), " holds only a part of ", name, ": ",
                    missing, " (plain or .gz) is missing"));
    }
  }
}

TEST_F(DataSource, LooksInAGivenFolderOnly) {
  write_mnist("cache/lockstep/mnist");
  fs::create_directory(directory_ / "mine");
  const DataRequest request{.name = "mnist", .directory = (directory_ / "mine").string()};
  EXPECT_EQ(message_of<DataError>([&] { find_data(request); }),
            str("cannot find train-images-idx3-ubyte (or train-images-idx3-ubyte.gz) in ",
                *request.directory, " or its subfolder mnist"));
  write_mnist("mine", 2);
  write_mnist("mine/mnist", 3);
  EXPECT_EQ(message_of<DataError>([&] { find_data(request); }),
            str(*request.directory,
                " holds only a part of mnist: t10k-images-idx3-ubyte (plain or .gz) is missing"))
      << "the first of two parts";
}

// An interrupted download leaves such a part, which the next one completes.
TEST_F(DataSource, APartInTheCacheIsNoError) {
  write_mnist("cache/lockstep/mnist", 3);
  EXPECT_EQ(find_data({.name = "mnist"}), std::nullopt);
  EXPECT_THROW(find_or_download_data({.name = "mnist", .may_download = false}), DataError);
  write_mnist("cache/lockstep/mnist", 4);
  environment_.set("HOME", std::nullopt);  // XDG_CACHE_HOME is enough
  EXPECT_EQ(find_or_download_data({.name = "mnist", .may_download = false}),
            directory_ / "cache/lockstep/mnist");
}

TEST_F(DataSource, HasItsCacheInTheHomeOfTheUser) {
  environment_.set("XDG_CACHE_HOME", std::nullopt);
  set("HOME", directory_.path().string());
  EXPECT_EQ(data_cache_directory("mnist"), directory_ / ".cache/lockstep/mnist");
  write_mnist(".cache/lockstep/mnist");
  EXPECT_EQ(find_data({.name = "mnist"}), directory_ / ".cache/lockstep/mnist");
  environment_.set("HOME", std::nullopt);
  EXPECT_EQ(find_data({.name = "mnist"}), std::nullopt);
  EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = "mnist"}); }),
              HasSubstr("there is no place for downloaded data: set HOME, XDG_CACHE_HOME or "
                        "LOCKSTEP_DATA"));
}

#ifdef LOCKSTEP_HAS_DOWNLOADER

constexpr const char* kHelloMd5 = "5d41402abc4b2a76b9719d911017c592";  // the MD5 of "hello"

TEST_F(DataSource, DownloadsAndPlacesAFile) {
  const HttpServer server(HttpFiles{{"/a/hello", "hello"}});
  std::vector<std::uint64_t> progress;
  download_file({server.url() + "/a/hello", "greeting", kHelloMd5, 5}, directory_ / "new/folder",
                [&](const std::string& file, std::uint64_t done, std::uint64_t) {
                  EXPECT_EQ(file, "greeting");
                  progress.push_back(done);
                });
  EXPECT_EQ(read_text(directory_ / "new/folder/greeting"), "hello");
  EXPECT_EQ(fs::file_size(directory_ / "new/folder/greeting"), 5U);
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back(), 5U);
}

TEST_F(DataSource, AFailedDownloadSaysWhyAndLeavesNothing) {
  HttpServer server(HttpFiles{{"/hello", "hello"}, {"/long", std::string(100'000, 'x')}});
  struct Case {
    const char* path;
    std::uint64_t maximum_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"/hello", 4, "exceeds 4 bytes"},
      {"/long", 1'000'000, "wrong checksum: got md5"},
      {"/absent", 100, "404"},
  };
  fs::create_directory(directory_ / "cache");
  for (const Case& c : cases) {
    EXPECT_THAT(message_of<DataError>([&] {
                  download_file({server.url() + c.path, "f", kHelloMd5, c.maximum_bytes},
                                directory_ / "cache", {});
                }),
                ::testing::AllOf(HasSubstr(c.message), HasSubstr(server.url() + c.path)));
    EXPECT_TRUE(fs::is_empty(directory_ / "cache")) << c.path;
  }
  const RemoteFile absent = {server.url() + "/absent", "f", kHelloMd5, 5};
  EXPECT_THROW(message_of<NetworkError>([&] { download_file(absent, directory_ / "cache", {}); }),
               DataError)
      << "a server that answers is no missing network";
  server.stop();
  const auto start = Clock::now();
  EXPECT_THAT(message_of<NetworkError>([&] {
                download_file({server.url() + "/hello", "f", kHelloMd5, 5}, directory_ / "cache",
                              {});
              }),
              ::testing::AllOf(HasSubstr("cannot download " + server.url()),
                               HasSubstr("name that (DataRequest::directory, LOCKSTEP_DATA)")));
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_TRUE(fs::is_empty(directory_ / "cache"));
  EXPECT_THAT(message_of<DataError>([&] {
                download_file({"file:///etc/hostname", "f", kHelloMd5, 500}, directory_ / "cache",
                              {});
              }),
              HasSubstr("cannot download file:///etc/hostname"));
}

TEST_F(DataSource, FollowsAFewRedirectionsToHttpOnly) {
  const HttpServer server(HttpHandler([](const HttpRequest& request) {
    return HttpReply{.status = 302,
                     .headers = request.path == "/ftp" ? "Location: ftp://127.0.0.1:1/hello\r\n"
                                                       : "Location: /again\r\n"};
  }));
  const auto refusal = [&](const std::string& path) {
    return message_of<DataError>(
        [&] { download_file({server.url() + path, "f", kHelloMd5, 5}, directory_ / "cache", {}); });
  };
  EXPECT_THAT(refusal("/http"), HasSubstr("redirects"));
  EXPECT_EQ(server.requests(), 6);
  EXPECT_THAT(refusal("/ftp"), HasSubstr("Protocol"));
  EXPECT_TRUE(fs::is_empty(directory_ / "cache"));
}

// Only then may a caller open the file.
TEST_F(DataSource, TellsTheWholeSizeOnceTheFileIsInItsPlace) {
  const HttpServer server(HttpFiles{{"/hello", "hello"}});
  std::vector<int> placed;
  download_file({server.url() + "/hello", "f", kHelloMd5, 5}, directory_ / "cache",
                [&](const std::string&, std::uint64_t done, std::uint64_t) {
                  if (done == 5) placed.push_back(fs::exists(directory_ / "cache/f") ? 1 : 0);
                });
  EXPECT_THAT(placed, ::testing::ElementsAre(1));
}

TEST_F(DataSource, TakesAChecksumInCapitals) {
  const HttpServer server(HttpFiles{{"/hello", "hello"}});
  std::string capitals = kHelloMd5;
  for (char& digit : capitals) digit = static_cast<char>(std::toupper(digit));
  ASSERT_NE(capitals, kHelloMd5);
  download_file({server.url() + "/hello", "f", capitals, 5}, directory_ / "cache", {});
  EXPECT_EQ(read_text(directory_ / "cache/f"), "hello");
}

TEST_F(DataSource, AFailedDownloadShowsNoCredentials) {
  HttpServer server(HttpFiles{{"/hello", "hello"}});
  const std::string host = server.url().substr(std::string("http://").size());
  const auto refusal = [&](const std::string& path) {
    return message_of<DataError>([&] {
      download_file({"http://ada:secret@" + host + path, "f", kHelloMd5, 5}, directory_ / "cache",
                    {});
    });
  };
  EXPECT_THAT(
      refusal("/absent?token=secret"),
      ::testing::AllOf(HasSubstr("cannot download http://***@" + host + "/absent?token=***"),
                       HasSubstr("404"), ::testing::Not(HasSubstr("secret"))));
  server.stop();
  EXPECT_THAT(refusal("/hello"), ::testing::AllOf(HasSubstr("http://***@" + host + "/hello: "),
                                                  ::testing::Not(HasSubstr("secret"))));
}

TEST_F(DataSource, WhatProgressThrowsEndsTheDownload) {
  const HttpServer server(HttpFiles{{"/hello", "hello"}});
  EXPECT_THROW(download_file({server.url() + "/hello", "f", kHelloMd5, 5}, directory_ / "cache",
                             [](const std::string&, std::uint64_t, std::uint64_t) {
                               throw std::logic_error("stop");
                             }),
               std::logic_error);
  EXPECT_TRUE(fs::is_empty(directory_ / "cache"));
}

TEST_F(DataSource, AFolderThatCannotBeMadeIsAnError) {
  const HttpServer server(HttpFiles{{"/hello", "hello"}});
  directory_.write("cache", "a file, not a folder");
  EXPECT_THAT(message_of<DataError>([&] {
                download_file({server.url() + "/hello", "f", kHelloMd5, 5},
                              directory_ / "cache/sub", {});
              }),
              HasSubstr((directory_ / "cache/sub").string()));
}

// Missing permissions and names that are too long: exceptions of std::filesystem must not escape.
TEST_F(DataSource, ACacheThatCannotBeLookedIntoIsEmpty) {
  set("XDG_CACHE_HOME", (directory_ / std::string(300, 'x')).string());
  EXPECT_EQ(find_data({.name = "mnist"}), std::nullopt);
  EXPECT_THROW(find_or_download_data({.name = "mnist"}), DataError);
  EXPECT_THROW(load_cifar10(directory_ / std::string(300, 'x'), Split::kTest), DataError);
}

TEST_F(DataSource, AMirrorWithWrongFilesIsRefused) {
  const HttpServer server(HttpFiles{{"/mnist/train-images-idx3-ubyte.gz", "not the one"}});
  set("LOCKSTEP_MIRROR", server.url());
  EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = "mnist"}); }),
              HasSubstr("wrong checksum"));
  EXPECT_TRUE(fs::is_empty(directory_ / "cache/lockstep/mnist"));
  EXPECT_EQ(server.requests(), 1);
  set("LOCKSTEP_MIRROR", server.url() + "/");  // a slash at its end changes nothing
  EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = "mnist"}); }),
              HasSubstr(server.url() + "/mnist/train-images-idx3-ubyte.gz: wrong checksum"));
}

TEST_F(DataSource, AsksTheMirrorForCifar100AsOneArchive) {
  const HttpServer server(HttpFiles{{"/cifar100/cifar-100-binary.tar.gz", "not the one"}});
  set("LOCKSTEP_MIRROR", server.url());
  EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = "cifar100"}); }),
              ::testing::AllOf(HasSubstr("cifar-100-binary.tar.gz"), HasSubstr("wrong checksum")));
  EXPECT_TRUE(fs::is_empty(directory_ / "cache/lockstep/cifar100"));
}

// The checksums that the publishers state. Files of exactly the stated sizes are read to their end.
TEST_F(DataSource, ExpectsThePublishersSizesAndChecksums) {
  struct Published {
    const char* name;
    const char* file;
    std::size_t bytes;
    const char* md5;
  };
  const Published cases[] = {
      {"mnist", "train-images-idx3-ubyte.gz", 9'912'422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
      {"mnist", "train-labels-idx1-ubyte.gz", 28'881, "d53e105ee54ea40749a09fcbcd1e9432"},
      {"mnist", "t10k-images-idx3-ubyte.gz", 1'648'877, "9fb629c4189551a2d022fa330f9573f3"},
      {"mnist", "t10k-labels-idx1-ubyte.gz", 4'542, "ec29112dd5afa0611ce80d1b7f02629c"},
      {"cifar10", "cifar-10-binary.tar.gz", 1000, "c32a1d4ab5d03f1284b67883e8d87530"},
      {"cifar100", "cifar-100-binary.tar.gz", 1000, "03b5dce01913d631647c71ecec9e9cb8"}};
  for (const Published& c : cases) {
    const std::string path = str("/", c.name, "/", c.file);
    const HttpServer server(HttpFiles{{path, std::string(c.bytes, 'x')}});
    set("LOCKSTEP_MIRROR", server.url());
    EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = c.name}); }),
                ::testing::AllOf(HasSubstr(server.url() + path + ": wrong checksum"),
                                 HasSubstr(str(" of ", c.bytes, " bytes, expected ", c.md5))));
    EXPECT_EQ(server.requests(), 1);
    directory_.write(str("cache/lockstep", path),
                     "taken for the file, so that the next one is due");
  }
}

// A proxy is asked for the publisher's host, and refuses.
TEST_F(DataSource, AsksThePublisherWithoutAMirror) {
  for (const char* name : {"no_proxy", "NO_PROXY"}) environment_.set(name, std::nullopt);
  const struct {
    const char* name;
    const char* host;
    const char* url;
  } cases[] = {{"mnist", "ossci-datasets.s3.amazonaws.com:443",
                "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz"},
               {"cifar10", "www.cs.toronto.edu:443",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"},
               {"cifar100", "www.cs.toronto.edu:443",
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"}};
  for (const auto& c : cases) {
    std::string asked;
    HttpServer proxy(HttpHandler([&](const HttpRequest& request) {
      asked = request.path;
      return HttpReply{.status = 403, .content = "no"};
    }));
    set("https_proxy", proxy.url());
    EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = c.name}); }),
                HasSubstr(str("cannot download ", c.url, ": ")));
    proxy.stop();
    EXPECT_EQ(asked, c.host);
  }
}

TEST_F(DataSource, TakesMnistFromAMirrorAndGoesOnWhereItStopped) {
  if (!real_mnist_)
    GTEST_SKIP() << "needs the data set mnist: set LOCKSTEP_DATA to the folder that holds mnist/";
  std::map<std::string, std::string> files;
  for (const std::string& name : kMnistFiles) {
    files["/mnist/" + name + ".gz"] = read_text(*real_mnist_ / (name + ".gz"));
  }
  std::map<std::string, std::string> half = files;
  half.erase("/mnist/t10k-images-idx3-ubyte.gz");
  half.erase("/mnist/t10k-labels-idx1-ubyte.gz");
  const fs::path cache = directory_ / "cache/lockstep/mnist";
  {
    const HttpServer server(half);
    set("LOCKSTEP_MIRROR", server.url());
    EXPECT_THAT(message_of<DataError>([&] { find_or_download_data({.name = "mnist"}); }),
                HasSubstr("t10k-images-idx3-ubyte.gz"));
  }
  const HttpServer server(files);
  set("LOCKSTEP_MIRROR", server.url() + "/");
  EXPECT_EQ(find_or_download_data({.name = "mnist"}), cache);
  EXPECT_EQ(server.requests(), 2) << "whole files are not fetched again";
  EXPECT_EQ(load_mnist(cache, Split::kTest).size(), 10'000);
  EXPECT_EQ(find_or_download_data({.name = "mnist"}), cache);
  EXPECT_EQ(server.requests(), 2);
}

// A .tar.gz made by tar itself, with the batches in a folder, as in CIFAR-10.
TEST_F(DataSource, UnpacksAnArchive) {
  directory_.write("in/cifar-10-batches-bin/data_batch_1.bin", pattern(5000));
  directory_.write("in/cifar-10-batches-bin/test_batch.bin", pattern(3000, 5));
  directory_.write("in/cifar-10-batches-bin/readme.html", "other");
  const std::string archive = (directory_ / "x.tar.gz").string();
  const std::string command =
      "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() + "' cifar-10-batches-bin";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const fs::path out = directory_ / "out";
  unpack_files(archive, out, {"test_batch.bin", "data_batch_1.bin"}, 5000);
  EXPECT_EQ(read_text(out / "data_batch_1.bin"), pattern(5000));
  EXPECT_EQ(read_text(out / "test_batch.bin"), pattern(3000, 5));

  const std::string whole = read_text(archive);
  struct Case {
    std::string content;
    std::string name;
    std::uint64_t maximum_bytes;
    const char* message;
  };
  const Case cases[] = {
      {whole, "data_batch_2.bin", 5000, "holds no file data_batch_2.bin"},
      {whole, "data_batch_1.bin", 4999, "exceeds 4999 bytes"},
      {whole.substr(0, whole.size() / 2), "readme.html", 5000, "cannot unpack"},
      {"no archive at all", "data_batch_1.bin", 5000, "cannot unpack"},
  };
  for (const Case& c : cases) {
    const TemporaryDirectory empty;
    directory_.write("bad.tar.gz", c.content);
    EXPECT_THAT(message_of<DataError>([&] {
                  unpack_files(directory_ / "bad.tar.gz", empty.path(), {c.name}, c.maximum_bytes);
                }),
                ::testing::AllOf(HasSubstr(c.message), HasSubstr("bad.tar.gz")));
    EXPECT_THAT(empty.names(), IsEmpty());
  }
}

std::string incompressible(std::size_t bytes) {
  std::mt19937 random(1);
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random() & 0xff);
  return text;
}

// What follows the wanted files may have damaged them, too.
TEST_F(DataSource, RefusesAnArchiveThatIsCutBehindItsFiles) {
  directory_.write("in/a/wanted", pattern(5000));
  directory_.write("in/b/other", incompressible(300'000));
  const std::string archive = (directory_ / "x.tar.gz").string();
  const std::string command =
      "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() + "' a/wanted b/other";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const TemporaryDirectory out;
  const std::string whole = read_text(archive);
  directory_.write("cut.tar.gz", whole.substr(0, whole.size() - 50'000));
  EXPECT_THAT(message_of<DataError>(
                  [&] { unpack_files(directory_ / "cut.tar.gz", out.path(), {"wanted"}, 5000); }),
              ::testing::AllOf(HasSubstr("cut.tar.gz"), HasSubstr("damaged archive")));
  EXPECT_THAT(out.names(), IsEmpty());
  unpack_files(archive, out.path(), {"wanted"}, 5000);
  EXPECT_EQ(read_text(out / "wanted"), pattern(5000));
}

TEST_F(DataSource, UnpacksTheFirstFileOfAName) {
  directory_.write("in/a/x", pattern(100));
  directory_.write("in/b/x", pattern(200, 5));
  const std::string archive = (directory_ / "x.tar.gz").string();
  const std::string command =
      "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() + "' a/x b/x";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const TemporaryDirectory out;
  unpack_files(archive, out.path(), {"x"}, 100);
  EXPECT_EQ(read_text(out / "x"), pattern(100));
}

// A link in an archive may lead anywhere, and a hard link has no content of its own.
TEST_F(DataSource, UnpacksNoLinkOfAnArchive) {
  directory_.write("in/a/real", pattern(5000));
  fs::create_symlink("/etc/hostname", directory_ / "in/a/symbolic");
  fs::create_hard_link(directory_ / "in/a/real", directory_ / "in/a/hard");
  fs::create_directory(directory_ / "in/b");
  directory_.write("in/b/symbolic", pattern(3000, 5));
  const auto packed = [&](const std::string& names) {
    const std::string archive = (directory_ / "links.tar.gz").string();
    const std::string command =
        "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() + "' " + names;
    EXPECT_EQ(std::system(command.c_str()), 0);
    return fs::path(archive);
  };
  for (const char* link : {"symbolic", "hard"}) {
    const TemporaryDirectory out;
    EXPECT_THAT(message_of<DataError>([&] {
                  unpack_files(packed("a/real a/symbolic a/hard"), out.path(), {link}, 5000);
                }),
                HasSubstr(std::string("holds no file ") + link));
    EXPECT_THAT(out.names(), IsEmpty());
  }
  const TemporaryDirectory out;  // a file of the same name, after the link
  unpack_files(packed("a/symbolic b/symbolic"), out.path(), {"symbolic"}, 5000);
  EXPECT_EQ(read_text(out / "symbolic"), pattern(3000, 5));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(out / "symbolic")));
}

// Two processes fetch at once, beside the leftovers of a third that was killed.
TEST_F(DataSource, AnArchiveIsFetchedByAnyNumberAtOnce) {
  directory_.write("in/folder/one", pattern(5000));
  directory_.write("in/folder/two", pattern(3000, 5));
  const std::string archive = (directory_ / "x.tar.gz").string();
  const std::string command = "tar -czf '" + archive + "' -C '" + (directory_ / "in").string() +
                              "' folder && md5sum <'" + archive + "' >'" +
                              (directory_ / "md5").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const TemporaryDirectory out;
  const pid_t killed = fork();
  ASSERT_GE(killed, 0);
  if (killed == 0) {
    out.write(temporary_beside(out / "x.tar.gz").filename().string(), "half");
    _exit(0);
  }
  ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  ASSERT_EQ(out.names().size(), 1U);

  const HttpServer server(HttpFiles{{"/x.tar.gz", read_text(archive)}});
  const RemoteFile file = {server.url() + "/x.tar.gz", "x.tar.gz",
                           read_text(directory_ / "md5").substr(0, 32), 1'000'000};
  const auto fetch = [&] { download_archive(file, out.path(), {"one", "two"}, 5000, {}); };
  std::future<void> other = std::async(std::launch::async, fetch);
  fetch();
  other.get();
  EXPECT_THAT(out.names(), ::testing::ElementsAre("one", "two"));
  EXPECT_EQ(read_text(out / "one"), pattern(5000));
  EXPECT_EQ(read_text(out / "two"), pattern(3000, 5));
  EXPECT_THROW(download_archive(file, out.path(), {"one", "three"}, 5000, {}), DataError);
  EXPECT_THAT(out.names(), ::testing::ElementsAre("one", "two"));
}

TEST_F(DataSource, WhatAnotherProcessFetchedMeanwhileWillDo) {
  const HttpServer server(HttpFiles{{"/mnist/train-images-idx3-ubyte.gz", std::string(9999, 'x')}});
  set("LOCKSTEP_MIRROR", server.url());
  const auto progress = [&](const std::string&, std::uint64_t, std::uint64_t) {
    write_mnist("cache/lockstep/mnist", 4, ".gz");
  };
  EXPECT_EQ(find_or_download_data({.name = "mnist", .progress = progress}),
            directory_ / "cache/lockstep/mnist");
}

#endif

}  // namespace
}  // namespace lockstep::testing_support
