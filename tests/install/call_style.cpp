// Every options aggregate in the style of the guides: the members that matter by name, the rest left out. Compiled
// with -Wextra, which complains of a member left out that has no initializer of its own; never run.
#include <lockstep/formats/pack.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/lockstep.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/report/contact_sheet.h>
#include <lockstep/trace/chrome_trace.h>
#include <lockstep/train/checkpoint.h>
#include <lockstep/train/trainer.h>

namespace lockstep {

template <class... Options>
void take(const Options&...) {}

void call_in_the_style_of_the_guides() {
  take(ProcessGroupOptions{.backend = "shm"}, WorkerEnvironment{.rank = 1}, LaunchOptions{.nproc_per_node = 2},
       LaunchResult{.exit_code = 1});
  take(LoaderOptions{.batch_size = 64, .threads = 2}, Batch{.size = 1}, BatchSamplerOptions{.batch_size = 8},
       DistributedSamplerOptions{.rank = 0, .world_size = 2}, RandomSamplerOptions{.replacement = true},
       WeightedRandomSamplerOptions{.replacement = false}, SamplerPosition{.epoch = 1});
  take(ImageFolderOptions{.decoding = ImageReader::Decoding::kExact}, PackImagesOptions{.threads = 2},
       PackImagesOptions{.resize = Resize{16}}, PackedImagesOptions{.verification = PackVerification::kFirstRead},
       PackInfo{.kind = PackKind::kPixels}, ImageView{.pixels = nullptr});
  take(Augmentation{Pad{4}, RandomCrop{32}, CenterCrop{32}, Resize{.size = 64, .shorter_side = true},
                    RandomResizedCrop{.size = 32}, RandomHorizontalFlip{}, RandomRotation{15}, ColorJitter{0.4},
                    ColorJitter{.hue = 0.1}, RandomErasing{.probability = 0.5}, Cutout{8},
                    Normalize{.mean = {0.5}, .std = {0.5}}},
       MixUp{.alpha = 0.2}, CutMix{.alpha = 1});
  take(DataParallelOptions{.weights = {2, 1}});
  take(DdpOptions{.static_graph = true}, SgdOptions{.lr = 0.1}, AdamOptions{.lr = 0.1}, AdamWOptions{.lr = 0.1},
       GradScalerOptions{.init_scale = 1024}, PowerSgdOptions{.matrix_approximation_rank = 2},
       PeriodicModelAveragerOptions{.period = 4}, PipelineOptions{.micro_batches = 8, .schedule = Schedule::kZbH1});
  take(CheckImagesOptions{.threads = 2}, TrainerOptions{.max_epochs = 2},
       ScheduleOptions{.kind = ScheduleKind::kStep}, CheckpointInfo{.epoch = 2},
       RunInfo{.world_size = 2}, EpochReport{.epoch = 1}, RunReport{.seconds_total = 1});
  take(MnistNetOptions{.dropout = false}, ResNetOptions{.block = ResNetBlock::kBasic});
  take(ContactSheetLayout{.title = "a sheet"}, Span{.name = "a span"});
}

}  // namespace lockstep
