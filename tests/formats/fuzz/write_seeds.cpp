// write_seeds FOLDER: writes the seeds to files FOLDER/TARGET/NAME, from which libFuzzer starts.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <tests/formats/fuzz/seeds.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_seeds FOLDER\n";
    return 2;
  }
  for (const lockstep::testing_support::Seed& seed : lockstep::testing_support::fuzz_seeds()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / seed.target;
    std::filesystem::create_directories(folder);
    std::ofstream file(folder / seed.name, std::ios::binary);
    if (!(file << seed.content) || !file.flush()) {
      std::cerr << "error: cannot write " << (folder / seed.name).string() << "\n";
      return 1;
    }
  }
}
