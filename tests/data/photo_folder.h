// A folder of pictures in the layout of an image folder. Its users link
// tests/formats/jpeg_bytes.cpp.
#pragma once

#include <lockstep/core/strings.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/formats/png.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// 21 pictures in three classes, all of different sizes: JPEG files, some of them progressive, and
/// PNG files. They are called CLASS/NUMBER.jpg or CLASS/NUMBER.png.
class PhotoFolder : public TemporaryDirectory {
 public:
  PhotoFolder() {
    for (int i = 0; i < kPhotos; ++i) {
      const int width = 64 + 5 * i;
      const int height = 140 - 4 * i;
      const std::string name = str(i % 3, "/", i);
      if (i % 2 == 1) {
        write(name + ".jpg",
              encode_jpeg({.width = width, .height = height, .progressive = i % 4 == 1}));
      } else {
        write(name + ".png", detail::encode_png(picture(width, height, 3), width, height));
      }
    }
  }
  ImageDataset dataset(const ImageFolderOptions& options = {}) const {
    return load_image_folder(path(), options);
  }

  static constexpr int kPhotos = 21;
};

}  // namespace lockstep::testing_support
