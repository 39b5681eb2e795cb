// A user's program, for which nobody answers: to find that out it needs the installed downloader.
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
