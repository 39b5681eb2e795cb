"""Compares models of torchvision, timm and Hugging Face, exported by Python, with eager Python, bit for bit.

Usage: program_zoo.py PROGRAM_STEPS [--few] [--page docs/programs.md] [NAME...]

Each model has random weights and is exported in training mode with a dynamic batch. PROGRAM_STEPS trains it in each of the
ways below, and Python does the same with the eager model. Where the two differ, the program is compared with
ExportedProgram.module() instead: some models run other code when they are exported.

training, evaluation
    Three steps in this mode, as in program_oracle.py.
two stages
    One step in evaluation mode, cut into two stages that run one after the other, compared with the whole program. A weight
    that both stages use may differ by rounding, because program_steps adds up the gradients of one stage after the other.
ddp
    Two steps in training mode on two ranks, each with a half of the batch. Python computes both halves in one process and
    averages their gradients; the buffers are those of the first half.
pipeline
    Two steps of a Pipeline of two stages with two micro-batches. Python accumulates the gradients of the same micro-batches.
    A model that draws random numbers is compared in evaluation mode, because a pipeline draws other ones in each stage.

Needs torchvision (tools/bootstrap.sh oracles), timm and transformers (tools/bootstrap.sh zoo). Exits with 77 (skipped) and
the reason without them. --few compares a dozen small models of different families, as `make test-all` does;
`make test-exhaustive` compares all. NAME is a part of the names of the models to compare. --page writes the table between
the marks of the page.
"""
import argparse
import copy
import pathlib
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
for place in ("peers", "zoo"):
    sys.path += map(str, (ROOT / ".deps" / place).glob("lib/python3*/site-packages"))

try:
    import torch
    LIBRARY = torch.library.Library("torchvision", "DEF")  # as in benchmarks/peers/vision.py
    for operator in ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
                     "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"):
        LIBRARY.define(operator)
    import timm
    import torchvision
    import transformers
except ImportError as error:
    print(f"skipped: {error}; tools/bootstrap.sh zoo installs it")
    sys.exit(77)

sys.path.insert(0, str(ROOT / "benchmarks"))
from pages import replace_between  # noqa: E402
from program_oracle import (SEED, STEPS, difference, gradients, loss_of, named_inputs, real, state, step_sgd,  # noqa: E402
                            tensors, train)

MARKS = ("<!-- zoo:begin -->", "<!-- zoo:end -->")
DYNAMIC = {0: torch.export.Dim.DYNAMIC}
EQUAL, SAME_MODULE, ROUNDED = "equal", "= module()", "rounding"
ROUNDING = 1e-4  # the largest relative difference that other code of the same mathematics makes
PARTS = 2  # ranks of ddp, stages and micro-batches of a pipeline
PART_STEPS = 2
COLUMNS = ("training", "evaluation", "two stages", "ddp", "pipeline")
FEW = ("torchvision mobilenet_v3_small", "torchvision resnet18", "torchvision squeezenet1_1",
       "timm convnextv2_atto", "timm mixer_s32_224", "timm pvt_v2_b0", "timm vit_tiny_patch16_224",
       "transformers BertForSequenceClassification", "transformers GPT2LMHeadModel", "transformers LlamaForCausalLM",
       "transformers T5ForConditionalGeneration", "transformers WhisperForConditionalGeneration")
# In evaluation mode they keep a part of the graph, so that eager Python itself fails in the second step.
EVALUATED_ONCE = ("timm efficientformerv2_s0", "timm levit_128s")

VISION = {"alexnet": 96, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "mnasnet0_5": 64,
          "mobilenet_v3_small": 64, "regnet_y_400mf": 64, "resnet18": 64, "shufflenet_v2_x1_0": 64, "squeezenet1_1": 64,
          "swin_t": 64, "vgg11_bn": 64, "vit_b_16": 224}
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
TIMM = {"cait_xxs24_224": 224, "convnextv2_atto": 64, "deit_tiny_patch16_224": 224, "dla34": 64, "edgenext_xx_small": 64,
        "efficientformerv2_s0": 224, "fastvit_t8": 64, "ghostnet_050": 64, "gmlp_s16_224": 224, "hrnet_w18_small": 64,
        "inception_next_atto": 64, "lcnet_050": 64, "levit_128s": 224, "mixer_s32_224": 224, "mobileone_s0": 64,
        "mobilevit_xxs": 64, "nfnet_l0": 64, "poolformer_s12": 64, "pvt_v2_b0": 64, "regnetx_002": 64,
        "repvgg_a0": 64, "res2net50_26w_4s": 64, "resmlp_12_224": 224, "resnet50d": 64, "rexnet_100": 64,
        "selecsls42b": 64, "skresnet18": 64, "tf_efficientnetv2_b0": 64, "tinynet_e": 64, "vit_tiny_patch16_224": 224,
        "vovnet39a": 64, "xcit_nano_12_p16_224": 224}

WORDS = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
SEQUENCES = dict(vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                 decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, pad_token_id=0, bos_token_id=1,
                 eos_token_id=2, use_cache=False)
IMAGES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)


def tokens(batch):
    return torch.randint(1, 100, (batch, 16))


def language(batch):
    ids = tokens(batch)
    return {"input_ids": ids, "labels": ids.clone()}


def images(batch, side=32):
    return torch.randn(batch, 3, side, side)


def labelled(batch, **inputs):
    return {**inputs, "labels": torch.arange(batch) % 2}


HUGGING_FACE = {  # class: (configuration, its values, arguments for a batch of n)
    "AlbertForSequenceClassification": ("AlbertConfig", {**WORDS, "embedding_size": 16},
                                        lambda n: labelled(n, input_ids=tokens(n))),
    "BartForConditionalGeneration": ("BartConfig", {**SEQUENCES, "max_position_embeddings": 64,
                                                    "decoder_start_token_id": 2}, language),
    "BertForSequenceClassification": ("BertConfig", WORDS, lambda n: labelled(
        n, input_ids=tokens(n), attention_mask=torch.ones(n, 16, dtype=torch.long))),
    "BloomForCausalLM": ("BloomConfig", dict(vocab_size=100, hidden_size=32, n_layer=2, n_head=4), language),
    "CLIPModel": ("CLIPConfig", dict(text_config=WORDS, vision_config=IMAGES, projection_dim=16),
                  lambda n: {"input_ids": tokens(n), "pixel_values": images(n)}),
    "DistilBertForSequenceClassification": ("DistilBertConfig", dict(
        vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64, pad_token_id=0),
        lambda n: labelled(n, input_ids=tokens(n))),
    "GPT2LMHeadModel": ("GPT2Config", dict(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                           bos_token_id=1, eos_token_id=2), language),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", WORDS, language),
    "Gemma2ForCausalLM": ("Gemma2Config", {**WORDS, "num_key_value_heads": 2, "head_dim": 8}, language),
    "LlamaForCausalLM": ("LlamaConfig", {**WORDS, "num_key_value_heads": 2}, language),
    "MistralForCausalLM": ("MistralConfig", {**WORDS, "num_key_value_heads": 2}, language),
    "OPTForCausalLM": ("OPTConfig", dict(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, max_position_embeddings=64,
        word_embed_proj_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2), language),
    "PhiForCausalLM": ("PhiConfig", WORDS, language),
    "Qwen2ForCausalLM": ("Qwen2Config", {**WORDS, "num_key_value_heads": 2}, language),
    "Qwen3ForCausalLM": ("Qwen3Config", {**WORDS, "num_key_value_heads": 2, "head_dim": 8}, language),
    "ResNetForImageClassification": ("ResNetConfig", dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
                                                          layer_type="basic"),
                                     lambda n: labelled(n, pixel_values=images(n))),
    "RobertaForMaskedLM": ("RobertaConfig", WORDS, language),
    "SegformerForSemanticSegmentation": ("SegformerConfig", dict(
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16),
        lambda n: {"pixel_values": images(n, 64)}),
    "T5ForConditionalGeneration": ("T5Config", dict(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                                                    decoder_start_token_id=0, pad_token_id=0, use_cache=False), language),
    "ViTForImageClassification": ("ViTConfig", IMAGES, lambda n: labelled(n, pixel_values=images(n))),
    "WhisperForConditionalGeneration": ("WhisperConfig", {
        **SEQUENCES, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20,
        "decoder_start_token_id": 1}, lambda n: {"input_features": torch.randn(n, 8, 40), "labels": tokens(n)}),
}


def models():
    """Yields (name, function that makes the model, function that makes (args, kwargs) for a batch of n)."""
    def pictures(side):
        return lambda n: ((images(n, side),), {})
    for name, side in VISION.items():
        yield (f"torchvision {name}", lambda n=name: getattr(torchvision.models, n)(weights=None, num_classes=10),
               pictures(side))
    for name in SEGMENTATION:
        yield (f"torchvision {name}", lambda n=name: getattr(torchvision.models.segmentation, n)(
            weights=None, weights_backbone=None, num_classes=5), pictures(64))
    for name, side in TIMM.items():
        yield f"timm {name}", lambda n=name: timm.create_model(n, num_classes=10), pictures(side)
    for name, (config, values, arguments) in HUGGING_FACE.items():
        def make(name=name, config=config, values=values):
            model = getattr(transformers, name)(getattr(transformers, config)(**values))
            if hasattr(model.config, "use_cache"):
                model.config.use_cache = False
            return model
        yield f"transformers {name}", make, lambda n, a=arguments: ((), a(n))


def parts_of(args, kwargs):
    """The arguments of each of the PARTS parts of a batch."""
    return [(tuple(value.chunk(PARTS)[i] for value in args), {name: value.chunk(PARTS)[i] for name, value in kwargs.items()})
            for i in range(PARTS)]


def train_ranks(model, parts):
    """What DistributedDataParallel computes, in one process: gradients are averaged, and buffers are those of rank 0."""
    results, random = {}, []
    for rank in range(PARTS):
        torch.manual_seed(SEED + rank)
        random.append(torch.get_rng_state())
    for step in range(PART_STEPS):
        before = [buffer.clone() for buffer in model.buffers()]
        totals = [None for _ in model.parameters()]
        for rank in reversed(range(PARTS)):  # the buffers of rank 0 remain
            for buffer, value in zip(model.buffers(), before):
                buffer.copy_(value)
            torch.set_rng_state(random[rank])
            model.zero_grad()
            args, kwargs = parts[rank]
            outputs = tensors(model(*args, **kwargs))
            loss_of(outputs).backward()
            random[rank] = torch.get_rng_state()
            totals = [parameter.grad if total is None else total + parameter.grad
                      for parameter, total in zip(model.parameters(), totals)]
        for parameter, total in zip(model.parameters(), totals):
            parameter.grad = None if total is None else total / PARTS
        if step == 0:
            results.update({f"output.{i}": real(output.detach()).clone() for i, output in enumerate(outputs)})
            results.update(gradients(model))
        step_sgd(model)
    return {**results, **state(model)}


def train_micro_batches(model, parts):
    """What a pipeline computes, in one process: the gradients of the micro-batches add up to those of the mean loss."""
    results = {}
    for step in range(PART_STEPS):
        model.zero_grad()
        losses = []
        for args, kwargs in parts:
            losses.append(loss_of(tensors(model(*args, **kwargs))) * (1 / PARTS))
            losses[-1].backward()
        if step == 0:
            results["output.0"] = sum(losses[1:], losses[0]).detach()
            results.update(gradients(model))
        step_sgd(model)
    return {**results, **state(model)}


@torch.no_grad()
def draws_random_numbers(model, args, kwargs):
    before = torch.get_rng_state()
    copy.deepcopy(model).train()(*args, **kwargs)
    return not torch.equal(before, torch.get_rng_state())


def word_for(ours, eager, module=None, may_round=False):
    """The word in the table. eager() and module() train in Python, and return what `ours` should be."""
    text, largest = difference(ours, eager())
    if not text:
        return EQUAL
    if module and not difference(ours, module())[0]:
        return SAME_MODULE
    return ROUNDED if may_round and largest < ROUNDING else text


def compare(program, name, make, draw, folder):
    """Returns the number of nodes and the words of the COLUMNS."""
    torch.manual_seed(0)
    model = make().train()
    args, kwargs = draw(2)
    shapes = tuple(DYNAMIC for _ in args) if args else {name: DYNAMIC for name in kwargs}
    exported = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    torch.export.save(exported, folder / "net.pt2")

    def save(file, args, kwargs):
        torch.save({name: value.detach().clone() for name, value in named_inputs(model, args, kwargs).items()},
                   folder / file)

    def ours(inputs, *words):
        result = subprocess.run([program, folder / "net.pt2", folder / inputs, folder / "outputs.pt", *map(str, words)],
                                capture_output=True, text=True, timeout=600)
        if result.returncode:
            raise RuntimeError(result.stderr.strip())
        return torch.load(folder / "outputs.pt")

    def eager(mode):
        return copy.deepcopy(model).train(mode == "train")

    def module():
        return copy.deepcopy(exported).module()  # has the mode of the export, and copies of the parameters

    save("inputs.pt", args, kwargs)
    training = word_for(ours("inputs.pt", "train", STEPS), lambda: train(eager("train"), args, kwargs),
                        lambda: train(module(), args, kwargs))
    has_other_code = training == SAME_MODULE
    steps = 1 if name in EVALUATED_ONCE else STEPS
    evaluation = word_for(ours("inputs.pt", "eval", steps), lambda: train(eager("eval"), args, kwargs, steps),
                          may_round=has_other_code)
    stages = word_for(ours("inputs.pt", "eval", 1, PARTS), lambda: ours("inputs.pt", "eval", 1), may_round=True)

    args, kwargs = draw(2 * PARTS)
    save("parts.pt", args, kwargs)
    parts = parts_of(args, kwargs)
    ddp = word_for(ours("parts.pt", "train", PART_STEPS, "ddp"), lambda: train_ranks(eager("train"), parts),
                   lambda: train_ranks(module(), parts))
    mode = "eval" if draws_random_numbers(model, args, kwargs) else "train"
    pipeline = word_for(ours("parts.pt", mode, PART_STEPS, "pipeline"), lambda: train_micro_batches(eager(mode), parts),
                        None if mode == "eval" else lambda: train_micro_batches(module(), parts),
                        may_round=mode == "eval" and has_other_code)
    return len(exported.graph.nodes), (training, evaluation, stages, ddp, pipeline)


def chosen(options):
    every = list(models())
    if options.few:
        if missing := set(FEW) - {name for name, _, _ in every}:
            sys.exit(f"there is no model {', '.join(sorted(missing))}")
        return [each for each in every if each[0] in FEW]
    result = [each for each in every if not options.names or any(part in each[0] for part in options.names)]
    return result or sys.exit(f"no model has {' or '.join(options.names)} in its name")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    if options.few and options.names:
        parser.error("--few and NAME cannot be combined")
    if options.page and (options.few or options.names):
        parser.error("--page needs all models")
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make, draw in chosen(options):
            try:
                nodes, words = compare(options.program, name, make, draw, pathlib.Path(folder))
            except Exception as error:  # a model that cannot be exported must not hide the others
                text = str(error).splitlines() or [""]
                nodes, words = 0, [f"{type(error).__name__}: {text[0][:90]}"] * len(COLUMNS)
            wrong += any(word not in (EQUAL, SAME_MODULE, ROUNDED) for word in words)
            rows.append(f"| {name} | {nodes} | {' | '.join(words)} |")
            print(rows[-1], flush=True)
    print(f"{len(rows)} models compared, {wrong} differ")
    if options.page:
        header = ["| model | nodes | " + " | ".join(COLUMNS) + " |", "|---|---" + "|---" * len(COLUMNS) + "|"]
        replace_between(options.page, *MARKS, "\n".join(header + rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
