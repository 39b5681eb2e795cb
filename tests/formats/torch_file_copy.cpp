// torch_file_copy FROM [TO]: reads a file of torch.save and prints the names of its tensors, one
// per line. If TO is given, writes the tensors to it. For torch_file_oracle.py.
#include <iostream>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/torch_file.h>

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: torch_file_copy FROM [TO]\n";
    return 2;
  }
  try {
    const lockstep::MappedFile file(argv[1]);
    const lockstep::TorchFile content = lockstep::parse_torch_file(file.bytes(), "file");
    for (const auto& [name, tensor] : content.tensors) std::cout << name << '\n';
    if (argc == 3) lockstep::write_torch_file(argv[2], content.tensors);
    std::cerr << (content.has_checksums ? "checksums" : "no checksums") << '\n';
  } catch (const lockstep::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
