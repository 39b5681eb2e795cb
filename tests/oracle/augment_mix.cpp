// Lockstep's side of the comparison with torchvision's MixUp and CutMix: see augment_mix_oracle.py.
//
// Usage: augment_mix mixup|cutmix SIZE CHANNELS HEIGHT WIDTH CLASSES BATCHES <NUMBERS >NUMBERS
//
// Reads the float32 images of one batch, mixes them as each of BATCHES batches would be, and writes
// the images and label probabilities of each. Image i has label i * i modulo CLASSES. Prints the
// drawn numbers to standard error: lambda, then CutMix's box.
#include <torch/types.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include <lockstep/data/loader/batch_mix.h>

namespace {

void write(const torch::Tensor& tensor) {
  std::cout.write(static_cast<const char*>(tensor.const_data_ptr()),
                  static_cast<std::streamsize>(tensor.nbytes()));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string kind = argc == 8 ? argv[1] : "";
  if (kind != "mixup" && kind != "cutmix") {
    std::cerr << "usage: augment_mix mixup|cutmix SIZE CHANNELS HEIGHT WIDTH CLASSES BATCHES\n";
    return 2;
  }
  const auto number = [&](int index) { return static_cast<std::int64_t>(std::atoll(argv[index])); };
  const BatchMix mix = kind == "mixup" ? BatchMix(MixUp{}) : BatchMix(CutMix{});
  const torch::Tensor images = torch::empty({number(2), number(3), number(4), number(5)});
  std::cin.read(static_cast<char*>(images.mutable_data_ptr()),
                static_cast<std::streamsize>(images.nbytes()));
  const torch::Tensor index = torch::arange(images.size(0));
  const torch::Tensor labels = (index * index).remainder(number(6));
  std::cerr.precision(17);
  for (std::int64_t batch = 0; batch < number(7); ++batch) {
    const MixChoice choice =
        choose(mix, images.size(2), images.size(3), {.batch = static_cast<std::uint64_t>(batch)});
    std::cerr << choice.lambda;
    if (choice.box) {
      const auto [top, left, height, width] = *choice.box;
      std::cerr << " " << top << " " << left << " " << height << " " << width;
    }
    std::cerr << "\n";
    torch::Tensor mixed = images.clone();
    data::mix_images(mixed, choice);
    write(mixed);
    write(data::mix_labels(labels, number(6), choice));
  }
}
