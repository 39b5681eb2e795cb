#include <lockstep/cli/flag_names.h>

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include <lockstep/core/log.h>

namespace lockstep::cli {
namespace {

TEST(FlagNames, ReplaceTheOptionsOfAMessage) {
  const std::pair<const char*, const char*> cases[] = {
      {"Loader: no GPU; set LoaderOptions::engine to native",
       "Loader: no GPU; set --loader to native"},
      {"LoaderOptions::engine", "--loader"},
      {"LoaderOptions::engine, LoaderOptions::device.", "--loader, --accelerator."},
      {"error: TrainerOptions::resume: none", "error: --resume: none"},
      {"a folder (DataRequest::directory)", "a folder (--data)"},
      {"as before (RunInfo::split)", "as before (--data, --seed and --val-fraction)"},
      // A resumed run that differs from its checkpoint in these options of a program, and not in
      // others.
      {"give the same RunInfo::recipe_options[inputs], RunInfo::recipe_options[program] as "
       "before",
       "give the same --inputs, --program as before"},
      {"RunInfo::recipe_options[width]", "RunInfo::recipe_options[width]"},
      {"", ""},
      {"no option", "no option"},
      // The longest one counts.
      {"DdpOptions::find_unused_parameters = true, or", "--find-unused-parameters, or"},
      {"DdpOptions::find_unused_parameters = truely", "--find-unused-parameters = truely"},
      {"TrainerOptions::resume = true", "--resume = true"},
      // These have no flag, or are parts of other names.
      {"set ProcessGroupOptions::leaders", "set ProcessGroupOptions::leaders"},
      {"LoaderOptions::engines", "LoaderOptions::engines"},
      {"LoaderOptions::engine_", "LoaderOptions::engine_"},
      {"LoaderOptions::engine.kind", "LoaderOptions::engine.kind"},
      {"LoaderOptions::engine::kind", "LoaderOptions::engine::kind"},
      {"LoaderOptions::engine()", "LoaderOptions::engine()"},
      {"MyLoaderOptions::engine", "MyLoaderOptions::engine"},
      {"lockstep::LoaderOptions::engine", "lockstep::LoaderOptions::engine"},
      {"LoaderOptions::", "LoaderOptions::"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(with_flags(text), expected);
}

// The flags are written out a second time, so that no option can become the flag of another.
TEST(FlagNames, AreThoseOfTheirOptions) {
  const std::map<std::string, std::string> flags = {
      {"CheckpointOptions::background", "--background-checkpoints"},
      {"CheckpointOptions::directory", "--out"},
      {"CheckpointOptions::save_top_k", "--save-top-k"},
      {"DataRequest::directory", "--data"},
      {"DdpOptions::find_unused_parameters", "--find-unused-parameters"},
      {"DdpOptions::find_unused_parameters = true", "--find-unused-parameters"},
      {"ImageDecoderOptions::max_image_pixels", "--max-image-pixels"},
      {"ImageFolderOptions::keep_unreadable", "--on-corrupt-image skip"},
      {"LoaderOptions::batch_size", "--batch-size"},
      {"LoaderOptions::device", "--accelerator"},
      {"LoaderOptions::engine", "--loader"},
      {"LoaderOptions::on_corrupt_image", "--on-corrupt-image"},
      {"PackedImagesOptions::exif_transpose", "--exif-transpose"},
      {"PlateauOptions::monitor", "--plateau"},
      {"RunInfo::recipe_options[image_size]", "--image-size"},
      {"RunInfo::recipe_options[images]", "--data"},
      {"RunInfo::recipe_options[inputs]", "--inputs"},
      {"RunInfo::recipe_options[model]", "--model"},
      {"RunInfo::recipe_options[program]", "--program"},
      {"RunInfo::split", "--data, --seed and --val-fraction"},
      {"StrategyOptions::find_unused_parameters", "--find-unused-parameters"},
      {"TrainerOptions::cuda_graph", "--cuda-graph"},
      {"TrainerOptions::device", "--accelerator"},
      {"TrainerOptions::early_stopping", "--early-stopping"},
      {"TrainerOptions::limit_val_batches", "--limit-test-batches"},
      {"TrainerOptions::on_nan", "--on-nan"},
      {"TrainerOptions::optimizer", "--optimizer"},
      {"TrainerOptions::overwrite", "--overwrite"},
      {"TrainerOptions::resume", "--resume"},
  };
  EXPECT_EQ(flag_names().size(), flags.size()) << "add the new option here";
  for (const auto& [option, flag] : flags) {
    EXPECT_EQ(with_flags("first set " + option + ", then that"),
              "first set " + flag + ", then that");
    // A message may name the same option twice.
    EXPECT_EQ(with_flags(option + ", " + option), flag + ", " + flag);
  }
}

TEST(FlagNames, StandInTheFirstLineOfAnError) {
  EXPECT_EQ(error_line(std::runtime_error("remove TrainerOptions::cuda_graph\nframe #0")),
            "remove --cuda-graph");
}

TEST(FlagNames, StandInTheLog) {
  log_with_flags();
  testing::internal::CaptureStderr();
  log_warning("skipped; raise ImageDecoderOptions::max_image_pixels");
  const std::string written = testing::internal::GetCapturedStderr();
  set_log_sink(nullptr);
  EXPECT_EQ(written, "warning: skipped; raise --max-image-pixels\n");
}

}  // namespace
}  // namespace lockstep::cli
