// folder_listing FOLDER [ROUNDS]: prints the seconds that load_image_folder() takes, one line per
// round, for folder_listing.py.
#include <cstdlib>
#include <iostream>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: folder_listing FOLDER [ROUNDS]\n";
    return 2;
  }
  try {
    for (int rounds = argc == 3 ? std::atoi(argv[2]) : 1; rounds > 0; --rounds) {
      const Clock::time_point begin = Clock::now();
      const ImageDataset dataset = load_image_folder(argv[1]);
      const double seconds = seconds_since(begin);
      std::cout << seconds << ' ' << dataset.size() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << first_line(error) << '\n';
    return exit_code(error);
  }
}
