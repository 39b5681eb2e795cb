// A user's program that downloads from an address where nothing answers. It needs the installed
// downloader to find that out.
#include <cstdio>

#include <lockstep/data/files/data_source.h>

int main() {
  try {
    lockstep::find_or_download_data({.name = "mnist"});
    std::puts("the data is here");
  } catch (const lockstep::NetworkError&) {
    return 0;
  } catch (const lockstep::Error& error) {
    std::puts(error.what());
  }
  return 1;
}
