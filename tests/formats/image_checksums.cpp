// image_checksums: for each file named on standard input, prints a line with the CRC-32 of the RGB
// that ImageDecoder reads, the width and the height, or with the error. See image_oracle.py.
#include <libdeflate.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/image_decoder.h>

int main() {
  lockstep::detail::ImageDecoder decoder;
  std::vector<std::uint8_t> pixels;
  for (std::string path; std::getline(std::cin, path);) {
    try {
      const lockstep::MappedFile file(path);
      const lockstep::ImageHeader& header = decoder.open(file.bytes(), path);
      pixels.resize(lockstep::rgb_bytes(whole(header)));
      decoder.decode(whole(header), 8, pixels);
      std::cout << libdeflate_crc32(0, pixels.data(), pixels.size()) << ' ' << header.width << ' '
                << header.height << '\n';
    } catch (const lockstep::DataError& error) {
      std::cout << "error: " << error.what() << '\n';
    }
  }
}
