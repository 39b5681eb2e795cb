#include <lockstep/core/credentials.h>

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Credentials, AreHiddenInAddresses) {
  const std::pair<const char*, const char*> cases[] = {
      {"http://ada:secret@host:5000/path", "http://***@host:5000/path"},
      {"https://secret@host", "https://***@host"},
      {"http://ada:se@cret@host/path", "http://***@host/path"},
      {"http://ada:12/34@host", "http://***@host"},
      {"http://ada:12?34@host:5000/x", "http://***@host:5000/x"},
      {"http://ada:12/3@4/5@host", "http://***@host"},
      {"http://t0/k3n@host", "http://***@host"},
      {"http://[x]:12/34@host", "http://***@host"},
      {"http:///ada:secret@host", "http://***@host"},
      {"http://localhost:5000/a@b", "http://***@b"},  // host and path, or user and password?
      {"http://ada:a://b@host", "http://***@host"},
      {"http://a:1,http://eve:12/34@b", "http://a:1,http://***@b"},
      {"ada:12/34@a,http://b:1", "***@a,http://b:1"},
      {"//ada:secret@host", "//***@host"},
      {"http:/ada:secret@host", "***@host"},
      {"HTTP_PROXY=ada:secret@host", "HTTP_PROXY=***@host"},
      {"ada::secret@host", "***@host"},
      {"ada:secret@plt", "***@plt"},
      {"ada:secret@host_1", "***@host_1"},
      {"http://ada:se/cret@host/x", "http://***@host/x"},
      {"http://ada:se#c?ret@host", "http://***@host"},
      {"--mlflow-uri=http://ada:secret@host", "--mlflow-uri=http://***@host"},
      {"http_proxy=socks5h://ada:secret@host:1", "http_proxy=socks5h://***@host:1"},
      {"http://ada:secret@a,http://eve:hidden@b", "http://***@a,http://***@b"},
      {"ada:secret@host:5000", "***@host:5000"},
      {"--mlflow-uri=ada:secret@host", "--mlflow-uri=***@host"},
      {"https://host/x?a=1&access_token=secret&b=2", "https://host/x?a=1&access_token=***&b=2"},
      {"https://host/?X-Amz-Signature=secret", "https://host/?X-Amz-Signature=***"},
      {"https://host/?sv=1&sig=secret#part", "https://host/?sv=1&sig=***#part"},
      {"https://host/#api_key=secret", "https://host/#api_key=***"},
      {"https://host/?PASSWORD=secret;q=1", "https://host/?PASSWORD=***;q=1"},
      {"https://host/?password=sec;ret", "https://host/?password=***"},
      {"https://host/?%74oken=secret", "https://host/?%74oken=***"},
      {"https://host/?api_key=secret&access_key=secret",
       "https://host/?api_key=***&access_key=***"},
      {"host:5000/?token=secret", "host:5000/?token=***"},
  };
  for (const auto& [word, hidden] : cases) {
    EXPECT_EQ(word_without_credentials(word), hidden);
    EXPECT_EQ(without_credentials(hidden), hidden) << "hidden twice";
  }
  EXPECT_EQ(word_without_credentials("http://ada:se cr'et@host"), "http://***@host");
}

TEST(Credentials, LeaveOtherTextsAsTheyAre) {
  for (const char* text :
       {"",
        "http://localhost:5000/a/b",
        "http://[::1]:5000/a@b",
        "sqlite:///a@b.db",
        "c10::f@plt",
        "./program(c10::f@plt+0x1a)",
        "at::native::f@LIBTORCH_1.0",
        "std::f@@GLIBCXX_3.4.29",
        "ssl::f@@OPENSSL_1_1_0",
        "std::f@V2_3",
        "c10::f@0x7f10",
        "mailto:ada@host",
        "host:5000/image@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "git@host:path",
        "user@host",
        "12:30 @ noon",
        "--lr=0.1",
        "a:b",
        "sqlite:///x.db",
        "https://host/?q=1&step=2",
        "train: --mlflow-uri must be http://HOST:PORT or https://, got 'ada@host'",
        "key=value&token=kept outside of addresses"}) {
    EXPECT_EQ(without_credentials(text), text);
  }
}

TEST(Credentials, AreHiddenByTheNamesOfTheirParameters) {
  for (const char* name :
       {"token", "id_token", "secret", "password", "passwd", "pwd", "apikey", "api_key", "api-key",
        "x-signature", "credential", "oauth", "key", "Key", "sig", "my-sig", "my_sig"}) {
    EXPECT_EQ(word_without_credentials(std::string("http://h/?a=1&") + name + "=x&b=2"),
              std::string("http://h/?a=1&") + name + "=***&b=2");
  }
  for (const char* name : {"monkey", "keys", "sigma", "design", "user", "path"}) {
    const std::string word = std::string("http://h/?") + name + "=x";
    EXPECT_EQ(word_without_credentials(word), word);
  }
  for (const char* name : {"pass", "my-key", "my_key", "passphrase", "authorization", "jwt"}) {
    EXPECT_EQ(word_without_credentials(std::string("http://h/?") + name + "=x"),
              std::string("http://h/?") + name + "=***");
  }
  // A semicolon belongs to the value unless a parameter with a name follows it.
  for (const char* value : {"a;b", "a;", "a;=b", "a;b;", "a;;"}) {
    EXPECT_EQ(word_without_credentials(std::string("http://h/?token=") + value + "&b=2"),
              "http://h/?token=***&b=2")
        << value;
  }
  EXPECT_EQ(word_without_credentials("http://h/?token=a;b=2"), "http://h/?token=***;b=2");
  EXPECT_EQ(word_without_credentials("http://h/?token="), "http://h/?token=***");
  EXPECT_EQ(word_without_credentials("http://h/?token=.,"), "http://h/?token=***.,");
  EXPECT_EQ(word_without_credentials("http://h/?token=a&x&secret=b#key=c;sig=d"),
            "http://h/?token=***&x&secret=***#key=***;sig=***");
}

// Whether what precedes the "@" is a user is decided by what follows the colon, and by the name.
TEST(Credentials, MayHaveUnusualNamesAndPlaces) {
  const std::pair<const char*, const char*> cases[] = {
      {"a.b_c%40+d-e:pw@host", "***@host"},
      {"--x=a:b@c=d", "--x=***@c=d"},
      {"a:b=c@host", "***@host"},
      {"dir/name:pw@host", "dir/name:pw@host"},
      {":pw@host", ":pw@host"},
      {"host@a:b", "host@a:b"},
      {"http://[::1]/a@b", "http://[::1]/a@b"},
      {"http://ada:secret/x", "http://ada:secret/x"},
      {"http://ada:12x/y@host", "http://***@host"},
      {"http://a@b@c", "http://***@c"},
      {"http://u:p@a/http://v:q@b", "http://***@b"},
      {"http://host/@:x", "http://***@:x"},
      {"http://a:1,git+x-y.z://eve:12/34@b", "http://a:1,git+x-y.z://***@b"},
      {"http://[::1]:50a/x@host", "http://***@host"},
      {"http://[::1]x/y@host", "http://***@host"},
      {"http://[::1/x@host", "http://***@host"},
      {"http://[::1]:/a@b", "http://[::1]:/a@b"},
      {"http://[fe80::1%25]/a@b", "http://[fe80::1%25]/a@b"},
      {"http:///a:b@host", "http://***@host"},
      {"ada:pw@sha256", "***@sha256"},
      {"ada:pw@sha256:0123456789abcdef0123456789abcde",
       "***@sha256:0123456789abcdef0123456789abcde"},
      {"ada:pw@sha256:0123456789abcdef0123456789abcdeg",
       "***@sha256:0123456789abcdef0123456789abcdeg"},
      {"ada:pw@md5:0123456789abcdef0123456789abcdef", "***@md5:0123456789abcdef0123456789abcdef"},
      {"std::f@12", "std::f@12"},
      {"std::f@12x", "***@12x"},
      {"std::f@12.5", "***@12.5"},
      {"std::f@GLIBC_x", "***@GLIBC_x"},
      {"std::f@GLIBC_", "***@GLIBC_"},
      {"std::f@_2", "***@_2"},
      {"std::f@glibc_2", "***@glibc_2"},
      {"std::f@got", "std::f@got"},
  };
  for (const auto& [word, hidden] : cases) EXPECT_EQ(word_without_credentials(word), hidden);
}

TEST(Credentials, AreHiddenInWordsBetweenAllKindsOfMarks) {
  for (const char mark : std::string_view(" \t\r\n'\"`<>(){}")) {
    const std::string text = std::string("a:b@c") + mark + "http://d:e@f" + mark + mark + "g";
    EXPECT_EQ(without_credentials(text),
              std::string("***@c") + mark + "http://***@f" + mark + mark + "g")
        << static_cast<int>(mark);
  }
}

TEST(Credentials, AreHiddenInTexts) {
  EXPECT_EQ(
      without_credentials("cannot reach http://ada:secret@host/x: timeout\n('https://t0ken@h', "
                          "got \"eve:hidden@h\")"),
      "cannot reach http://***@host/x: timeout\n('https://***@h', got \"***@h\")");
  EXPECT_EQ(
      without_credentials("no answer from 'http://ada:se'cret@host' ('https://h/?token=se'c'):"),
      "no answer from 'http://***@host' ('https://h/?token=***'):");
}

TEST(Credentials, AreTakenOutOfAnAddress) {
  const AddressParts parts = address_parts("http://a%64a:s%40c%2Fret:%zz@host:5000/x?y=1@2");
  EXPECT_EQ(parts.address, "http://host:5000/x?y=1@2");
  EXPECT_EQ(parts.username, "ada");
  EXPECT_EQ(parts.password, "s@c/ret:%zz");
  EXPECT_EQ(address_parts("https://t0ken@host").username, "t0ken");
  EXPECT_EQ(address_parts("https://t0ken@host").password, "");
  EXPECT_EQ(address_parts("https://ada%40:pw%21@host").username, "ada@");
  EXPECT_EQ(address_parts("https://ada%40:pw%21@host").password, "pw!");
  EXPECT_EQ(address_parts("https://ada:a:b%4@host").password, "a:b%4");
  EXPECT_EQ(address_parts("https://ada:%4g%@host").password, "%4g%");
  // A password may have a slash, which otherwise would begin the path.
  EXPECT_EQ(address_parts("https://ada:1a/b@host/x").address, "https://host/x");
  EXPECT_EQ(address_parts("https://ada:1a/b@host/x").password, "1a/b");
  for (const char* plain : {"https://host:1a/b", "https://[::1]/a@b", "https://[::1]:5000/a@b",
                            "https://host:/a@b", "https://"}) {
    EXPECT_EQ(address_parts(plain).address, plain);
    EXPECT_EQ(address_parts(plain).password, "");
  }
  EXPECT_EQ(address_parts("https://:pw@host").username, "");
  EXPECT_EQ(address_parts("https://:pw@host").password, "pw");
  for (const char* plain : {"http://host:5000/a@b", "host", "", "ada:secret@host"}) {
    EXPECT_EQ(address_parts(plain).address, plain);
    EXPECT_EQ(address_parts(plain).username, "");
  }
}

}  // namespace
}  // namespace lockstep
