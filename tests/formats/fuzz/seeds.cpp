#include <tests/formats/fuzz/seeds.h>

#include <cctype>

#include <lockstep/core/encoding/pickle_writer.h>
#include <lockstep/formats/checkpoint_manifest.h>
#include <lockstep/formats/safetensors.h>
#include <tests/formats/fuzz/targets.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/formats/pack_bytes.h>
#include <tests/formats/png_bytes.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

// "grey 8" becomes "png_grey_8".
std::string seed_name(const std::string& format, const char* kind) {
  std::string name = format + '_' + kind;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

std::string small_safetensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},)"
                     R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"U8","shape":[],"data_offsets":[24,25]},)"
                     R"("c":{"dtype":"I64","shape":[0],"data_offsets":[25,25]}})",
                     pattern(25));
}

std::string checked_safetensors() {
  const std::string data = pattern(8);
  return serialize_safetensors({{"a", {"F32", {2}, as_bytes(data)}}}, {{"format", "pt"}});
}

std::string small_manifest() {
  return formats::serialize_manifest(
      {.step = 60,
       .metrics = {{"loss", 0.25}},
       .files = {{"model.safetensors", {.bytes = 5, .checksum = 7}}}});
}

std::string pickle_of_values() {
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("epoch"), pickle.integer(3);
  pickle.text("rates"), pickle.begin_list(), pickle.number(0.1), pickle.none(), pickle.end_list();
  pickle.integer(1), pickle.begin_tuple(), pickle.integer(std::int64_t{1} << 40),
      pickle.boolean(true);
  pickle.ordered_dict(), pickle.end_tuple();
  pickle.text("type"), pickle.global("torch", "bfloat16");
  pickle.text("device"), pickle.global("torch", "device");
  pickle.begin_tuple(), pickle.text("cuda"), pickle.integer(1), pickle.end_tuple(), pickle.call();
  pickle.end_dict();
  return pickle.finish();
}

}  // namespace

std::vector<Seed> fuzz_seeds() {
  std::vector<Seed> seeds = {
      {"checkpoint_manifest", "checkpoint_manifest", fuzz_checkpoint_manifest, small_manifest()},
      {"cifar", "cifar", fuzz_cifar, cifar_records(3)},
      {"cifar100", "cifar100", fuzz_cifar100, cifar100_records(3)},
      {"gzip", "gzip", fuzz_gzip, gzip(pattern(3000, 1))},
      {"idx", "idx_images", fuzz_idx, idx_images(3, 5, 7)},
      {"idx", "idx_labels", fuzz_idx, idx_labels(20)},
      {"npy", "npy", fuzz_npy, npy_array("<f4", "(2, 3)", pattern(24))},
      {"pack", "pack_of_files", fuzz_pack, file_pack()},
      {"pack", "pack_of_pixels", fuzz_pack, pixel_pack(3)},
      {"pack", "pack_of_own_sizes", fuzz_pack, pixel_pack(3, true)},
      {"pickle", "pickle_of_python", fuzz_pickle, python_state_pickle()},
      {"pickle", "pickle_of_values", fuzz_pickle, pickle_of_values()},
      {"pickle", "pickle_of_tensor", fuzz_pickle,
       tensor_pickle("K\6", "K\1", "K\2\x85", "K\2\x85")},
      {"safetensors", "safetensors", fuzz_safetensors, small_safetensors()},
      {"safetensors", "safetensors_with_checksums", fuzz_safetensors, checked_safetensors()},
      {"torch_file", "torch_file", fuzz_torch_file, small_torch_file()},
      {"torch_file", "torch_file_of_python", fuzz_torch_file,
       pack({.pickle = python_state_pickle(), .storages = {{"0", pattern(24)}}})},
      {"torch_file", "torch_file_legacy", fuzz_torch_file, legacy_torch_file()},
  };
  for (const JpegSpec& kind : jpeg_kinds(37, 41)) {
    seeds.push_back({"jpeg", seed_name("jpeg", kind.name), fuzz_jpeg, encode_jpeg(kind)});
  }
  for (const PngSpec& kind : png_kinds(13, 9)) {
    seeds.push_back({"png", seed_name(kind.interlaced ? "png_interlaced" : "png", kind.name),
                     fuzz_png, make_png(kind).file});
  }
  return seeds;
}

}  // namespace lockstep::testing_support
