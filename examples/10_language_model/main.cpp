// Trains a small GPT on sentences of different lengths: as replicas, with DistributedDataParallel,
// or as a pipeline with a stage on each rank. Both make the steps of one process, up to rounding.
// README.md explains the parts.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::ProcessGroup;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kWords = 29;    // size of the vocabulary
constexpr std::int64_t kLongest = 24;  // words of the longest sentence
constexpr std::int64_t kWidth = 32, kHeads = 4, kBlocks = 4;
constexpr std::int64_t kSentences = 12;  // sentences in a batch of all ranks
constexpr int kBatches = 2;              // batches whose gradients a step accumulates
constexpr int kMicroBatches = 4;         // parts into which the pipeline cuts a batch
constexpr std::int64_t kPadding = -100;  // target where there is no next word
constexpr double kMaxNorm = 1;

// --- Text ---

// A sentence counts in steps of one, two or three words, so that its first two words determine the
// others.
torch::Tensor sentence(std::int64_t number) {
  const std::int64_t length = 3 + number * number % (kLongest - 2);
  return (7 * number + (1 + number % 3) * torch::arange(length, torch::kInt64)).remainder(kWords);
}

struct Batch {
  torch::Tensor x, y;  // [sentences, words]: each word, and the word that follows it
};

// This rank's sentences of batch `number`, padded to the longest of them.
Batch make_batch(std::int64_t number, std::int64_t rank, std::int64_t ranks) {
  std::vector<torch::Tensor> x, y;
  for (std::int64_t i = rank; i < kSentences; i += ranks) {
    const torch::Tensor words = sentence(number * kSentences + i);
    x.push_back(words.slice(0, 0, -1));
    y.push_back(words.slice(0, 1));
  }
  return {torch::pad_sequence(x, /*batch_first=*/true),
          torch::pad_sequence(y, /*batch_first=*/true, kPadding)};
}

std::vector<Batch> batches_of(int step, std::int64_t rank, std::int64_t ranks) {
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) {
    batches.push_back(make_batch(step * kBatches + i, rank, ranks));
  }
  return batches;
}

// The number of words to predict.
std::int64_t valid_words(const std::vector<Batch>& batches) {
  std::int64_t valid = 0;
  for (const Batch& batch : batches) valid += batch.y.ne(kPadding).sum().item<std::int64_t>();
  return valid;
}

// --- The model ---

struct BlockImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = x + attend(norm1(x));
    return hidden + down(torch::gelu(up(norm2(hidden))));
  }

  // The attention is causal: no word sees what follows it. Padding follows all words of a sentence,
  // so that it needs no mask.
  torch::Tensor attend(const torch::Tensor& x) {
    // [sentences, words, 3 * width] becomes three times [sentences, heads, words, width / heads].
    const auto parts =
        qkv(x).unflatten(2, {3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4}).unbind();
    const torch::Tensor heads = torch::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    return out(heads.transpose(1, 2).flatten(2));
  }

  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  // Without a bias: keys' biases have gradients of nothing but rounding, which Adam would scale up.
  nn::Linear qkv =
      register_module("qkv", nn::Linear(nn::LinearOptions(kWidth, 3 * kWidth).bias(false)));
  nn::Linear out = register_module("out", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));
};
TORCH_MODULE(Block);

// A GPT, or one of several stages of it, with the names of the whole. The weight of the output is
// that of the embedding: one tensor in the whole GPT, a copy in the first and in the last stage.
struct GptImpl : nn::Module {
  // Every stage draws the random numbers of the whole GPT, and keeps what belongs to it.
  explicit GptImpl(std::int64_t stage = 0, std::int64_t stages = 1)
      : is_first(stage == 0), is_last(stage + 1 == stages) {
    nn::Embedding all_words(kWords, kWidth), all_positions(kLongest, kWidth);
    nn::init::normal_(all_words->weight, 0, 0.02);
    nn::init::normal_(all_positions->weight, 0, 0.02);
    if (is_first) words = register_module("words", all_words);
    if (is_first) positions = register_module("positions", all_positions);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const Block block;
      if (i * stages / kBlocks != stage) continue;
      blocks.push_back(register_module("block" + std::to_string(i), block));
    }
    if (!is_last) return;
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    output = register_parameter("output", all_words->weight);
  }

  // The first stage takes words, every other stage what the stage before it returns.
  torch::Tensor forward(torch::Tensor x) {
    if (is_first) x = words(x) + positions(torch::arange(x.size(1), torch::kInt64));
    for (Block& block : blocks) x = block(x);
    return is_last ? torch::linear(norm(x), output) : x;
  }

  const bool is_first, is_last;
  nn::Embedding words{nullptr}, positions{nullptr};
  std::vector<Block> blocks;
  nn::LayerNorm norm{nullptr};
  torch::Tensor output;
};
TORCH_MODULE(Gpt);

// --- Training ---

struct Settings {
  bool pipeline = false;
  int steps = 20;
  std::string save{};  // prefix of the files with the trained weights, if not empty
};

torch::Tensor sum_of_losses(const torch::Tensor& logits, const torch::Tensor& y) {
  return nn::functional::cross_entropy(
      logits.flatten(0, 1), y.flatten(),
      nn::functional::CrossEntropyFuncOptions().ignore_index(kPadding).reduction(torch::kSum));
}

// AdamW that decays matrices and embeddings, but neither biases nor the weights of normalisations.
lockstep::Optimizer make_optimizer(const nn::Module& net) {
  return lockstep::Optimizer(lockstep::group_parameters(
      net, [](const std::string& /*name*/, const torch::Tensor& parameter) {
        return lockstep::AdamWOptions{
            .lr = 5e-3, .beta2 = 0.95, .eps = 1e-5, .weight_decay = parameter.dim() < 2 ? 0 : 0.1};
      }));
}

// The rate rises for three steps, then falls along a cosine to a tenth.
double rate_factor(int step, int steps) {
  return lockstep::learning_rate_factor(
      {.kind = lockstep::ScheduleKind::kCosine, .warmup_epochs = 3, .final_fraction = 0.1}, step,
      /*steps_per_epoch=*/1, steps);
}

// The last rank prints, because in a pipeline it is the one that has the loss.
void print(const ProcessGroup& group, int step, const torch::Tensor& loss,
           const torch::Tensor& norm) {
  if (group.rank() + 1 != group.size()) return;
  std::printf("step %2d: loss %.9g, gradient norm %.9g\n", step + 1, loss.item<double>(),
              norm.item<double>());
}

// Each rank has the whole model and a share of the sentences.
void train_replicas(ProcessGroup& group, const Settings& settings) {
  Gpt net;
  lockstep::DistributedDataParallel ddp(net, group);
  lockstep::Optimizer optimizer = make_optimizer(*net);
  lockstep::MeanOverRanks mean(group);
  for (int step = 0; step < settings.steps; ++step) {
    const std::vector<Batch> batches = batches_of(step, group.rank(), group.size());
    optimizer.scale_lr(rate_factor(step, settings.steps));
    optimizer.zero_grad();
    mean.start(valid_words(batches));  // once for a step, with the words of all of its batches
    torch::Tensor loss = torch::zeros({});
    for (const Batch& batch : batches) {
      std::optional<lockstep::DdpCore::NoSync> no_sync;
      if (&batch != &batches.back()) no_sync.emplace(ddp.core());  // gradients stay on this rank
      const torch::Tensor part = mean.of(sum_of_losses(ddp.forward(batch.x), batch.y));
      part.backward();
      loss += part.detach();
    }
    const torch::Tensor norm = lockstep::clip_grad_norm_(optimizer.parameters(), kMaxNorm);
    optimizer.step();
    group.all_reduce(loss, lockstep::ReduceOp::kAverage);
    print(group, step, loss, norm);
  }
  if (settings.save.empty() || group.rank() != 0) return;
  lockstep::save_torch_file(settings.save + ".pt", lockstep::state_dict(*net));
}

// Each rank has a stage of the model, and all sentences pass through all stages.
void train_pipeline(ProcessGroup& group, const Settings& settings) {
  Gpt stage(group.rank(), group.size());
  lockstep::PipelineOptions options{.micro_batches = kMicroBatches,
                                    .loss_reduction = lockstep::LossReduction::kSum};
  if (stage->is_first) {
    options.tied = {{"words", stage->words->weight}};
  } else if (stage->is_last) {
    options.tied = {{"words", stage->output}};
  }
  lockstep::DistributedPipeline pipe({stage}, group, torch::kCPU, options);
  lockstep::Optimizer optimizer = make_optimizer(*stage);
  for (int step = 0; step < settings.steps; ++step) {
    const std::vector<Batch> batches = batches_of(step, /*rank=*/0, /*ranks=*/1);
    optimizer.scale_lr(rate_factor(step, settings.steps));
    optimizer.zero_grad();
    const std::int64_t valid = valid_words(batches);
    const auto criterion = [valid](const torch::Tensor& logits, const torch::Tensor& y) {
      return sum_of_losses(logits, y) / valid;
    };
    torch::Tensor loss = torch::zeros({});
    for (const Batch& batch : batches) {
      const torch::Tensor part = pipe.step(criterion, batch.x, batch.y);  // adds to the gradients
      if (part.defined()) loss += part.detach();                          // on the last rank
    }
    const torch::Tensor norm = lockstep::clip_grad_norm_(pipe.parameters(), kMaxNorm, group);
    optimizer.step();
    print(group, step, loss, norm);
  }
  if (settings.save.empty()) return;
  lockstep::save_torch_file(settings.save + "-" + std::to_string(group.rank()) + ".pt",
                            lockstep::state_dict(*stage));
}

int number_of(const std::string& name, const std::string& value) {
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stopped == end && number >= 0) return number;
  throw lockstep::ConfigError(name + " must be a number from 0, got '" + value + "'");
}

Settings parse(const std::vector<std::string>& arguments) {
  Settings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--pipeline") {
      settings.pipeline = true;
    } else if (name != "--steps" && name != "--save") {
      throw lockstep::ConfigError("unknown option " + name);
    } else if (++i == arguments.size()) {
      throw lockstep::ConfigError(name + " needs a value");
    } else if (name == "--steps") {
      settings.steps = number_of(name, arguments[i]);
    } else {
      settings.save = arguments[i];
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse({argv + 1, argv + argc});
  auto group = lockstep::init_process_group();
  const std::int64_t most = settings.pipeline ? kBlocks : kSentences;
  if (group.size() > most) {
    throw lockstep::ConfigError(
        "there are " + std::to_string(most) +
        (settings.pipeline ? " blocks, and each stage needs one" : " sentences in a batch") +
        ": start at most as many ranks");
  }
  torch::set_num_threads(1);
  torch::manual_seed(0);
  settings.pipeline ? train_pipeline(group, settings) : train_replicas(group, settings);
  group.barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
