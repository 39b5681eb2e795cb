#include <lockstep/report/picture_file.h>

#include <lockstep/core/file.h>
#include <lockstep/formats/png.h>

namespace lockstep::report {

void PictureFile::on_picture(const PictureReport& report) {
  const RunPicture& picture = report.picture;
  write_file_atomically(folder_ / (picture.name + ".png"),
                        detail::encode_png(picture.rgb, static_cast<int>(picture.width),
                                           static_cast<int>(picture.height)));
}

}  // namespace lockstep::report
