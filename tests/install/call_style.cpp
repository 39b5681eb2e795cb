// Initialises every options aggregate of the headers below in the style of the guides: important
// members by name, the rest left out. strict_compilation.py reports aggregates that are missing
// here. Compiled with -Wextra, which warns about an omitted member without a default initializer;
// never run.
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/lockstep.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/report/contact_sheet.h>
#include <lockstep/report/run_record.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/trainer.h>

namespace lockstep {

template <class... Options>
void take(const Options&...) {}

void call_in_the_style_of_the_guides() {
  take(ProcessGroupOptions{.backend = "shm"}, WorkerEnvironment{.rank = 1},
       LaunchOptions{.nproc_per_node = 2}, LaunchResult{.exit_code = 1},
       P2POp{.kind = P2POp::Kind::kRecv}, P2POp{.peer = 1}, MeshDimension{.size = 2});
  take(LoaderOptions{.batch_size = 64, .threads = 2}, Batch{.size = 1},
       BatchSamplerOptions{.batch_size = 8}, DistributedSamplerOptions{.rank = 0, .world_size = 2},
       RandomSamplerOptions{.replacement = true},
       WeightedRandomSamplerOptions{.replacement = false}, SamplerPosition{.epoch = 1},
       EpochShare{.indices = {0, 1}}, EpochShare{.occurrences = {0, 1}}, BatchRequest{.seed = 1});
  take(ImageFolderOptions{.decoding = ImageReader::Decoding::kScaled},
       PackImagesOptions{.threads = 2}, PackImagesOptions{.resize = Resize{16}},
       PackedImagesOptions{.verification = PackVerification::kFirstRead},
       ImageView{.pixels = nullptr}, ReducedView{.factor = 2},
       ImageDecoderOptions{.tolerate_damage = true}, SyntheticDigitsOptions{.count = 10},
       CorruptImage{.index = 1}, ImagesCheck{.images = 1}, PackedSize{.images = 1});
  take(
      Augmentation{Pad{4}, RandomCrop{32}, CenterCrop{32}, Resize{.size = 64, .shorter_side = true},
                   RandomResizedCrop{.size = 32}, RandomHorizontalFlip{}, RandomRotation{15},
                   ColorJitter{0.4}, ColorJitter{.hue = 0.1}, RandomErasing{.probability = 0.5},
                   Cutout{8}, Normalize{.mean = {0.5}, .std = {0.5}}},
      MixUp{.alpha = 0.2}, CutMix{.alpha = 1}, RandomMix{.cutmix = {.alpha = 0.5}},
      RandomMix{.mixup = {.alpha = 0.2}});
  take(DataParallelOptions{.weights = {2, 1}});
  take(DdpOptions{.static_graph = true}, SgdOptions{.lr = 0.1}, AdamOptions{.lr = 0.1},
       AdamWOptions{.lr = 0.1}, GradScalerOptions{.init_scale = 1024},
       PowerSgdOptions{.matrix_approximation_rank = 2}, PeriodicModelAveragerOptions{.period = 4},
       PipelineOptions{.micro_batches = 8, .schedule = Schedule::kZbH1},
       ParameterGroup{.options = SgdOptions{.lr = 0.1}});
  take(pipeline::Table{.name = "a table"}, pipeline::Table{.worker_of = {0, 1}},
       pipeline::Table{.micro_batches = 4}, pipeline::Action{.stage = 1},
       pipeline::Interval{.begin = 1}, pipeline::Timeline{.end = 1},
       pipeline::TableFacts{.bubble = 0.5});
  take(CheckImagesOptions{.threads = 2}, TrainerOptions{.max_epochs = 2},
       ProfilerOptions{.kind = Profiler::kSimple}, TraceOptions{.steps = 5},
       SetupSeconds{.group = 1}, GpuUsage{.utilisation = 0.5}, Span{.name = "a span"},
       RankTrace{.rank = 1}, ClockOffset{.nanoseconds = 1}, StrategyOptions{.stages = 4},
       GlobalModeOptions{.deterministic = true}, StepSettings{.precision = Precision::k32},
       DataShare{.size = 2}, StepPart{.weight = 0.5}, ScheduleOptions{.kind = ScheduleKind::kStep},
       PlateauOptions{.patience = 2}, EarlyStoppingOptions{.monitor = "accuracy"},
       CheckpointOptions{.keep_last = 3}, CheckpointInfo{.epoch = 2}, RunInfo{.world_size = 2},
       EpochReport{.epoch = 1}, EvaluationReport{.step = 1}, Evaluation{.loss = 1},
       RunOrigin{.command = "train"}, MetricValue{.name = "psnr"}, MetricTable{.name = "confusion"},
       RunReport{.seconds_total = 1});
  take(MnistNetOptions{.dropout = false}, ResNetOptions{.block = ResNetBlock::kBasic},
       recipes::RecipeDataOptions{.may_download = false}, recipes::TaskOptions{.num_classes = 10});
  take(ProgramOptions{.namespaces = {"aten"}}, ProgramInput{.name = "x"},
       ProgramSplitOptions{.by_time = true});
  take(OnnxExportOptions{.opset = 17}, OnnxExport{.nodes = 1});
  take(report::ContactSheetLayout{.title = "a sheet"}, Span{.name = "a span"});
}

}  // namespace lockstep
