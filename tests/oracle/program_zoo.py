"""Compares models of torchvision, timm and Hugging Face, exported by Python, with eager Python, bit for bit.

Usage: program_zoo.py PROGRAM_STEPS [--page docs/programs.md] [NAME...]

Each model has random weights, is exported in training mode with a dynamic batch, and is trained for three steps in both
modes by program_steps and by eager Python, as program_oracle.py does. Where the two differ, the program is compared with
ExportedProgram.module() instead: some models run other code when they are exported. In evaluation mode, each model is also
cut into two stages, whose outputs and gradients are compared with those of the whole; a weight that both stages use may
differ by rounding there, because program_steps adds up the gradients of one stage after the other, unlike Pipeline.

Needs torchvision (tools/bootstrap.sh oracles), timm and transformers (tools/bootstrap.sh zoo). Exits with 77 (skipped) and
the reason without them. --page writes the table between the marks of the page. Part of `make test-exhaustive`.
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
from program_oracle import difference, named_inputs, train  # noqa: E402

MARKS = ("<!-- zoo:begin -->", "<!-- zoo:end -->")
DYNAMIC = {0: torch.export.Dim.DYNAMIC}
SAME_MODULE = "= module()"
ROUNDING = 1e-4  # the largest relative difference that other code of the same mathematics makes

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


def tokens():
    return torch.randint(1, 100, (2, 16))


def language():
    ids = tokens()
    return {"input_ids": ids, "labels": ids.clone()}


def labelled(**inputs):
    return {**inputs, "labels": torch.tensor([0, 1])}


HUGGING_FACE = {  # class: (configuration, its values, arguments)
    "AlbertForSequenceClassification": ("AlbertConfig", {**WORDS, "embedding_size": 16},
                                        lambda: labelled(input_ids=tokens())),
    "BartForConditionalGeneration": ("BartConfig", {**SEQUENCES, "max_position_embeddings": 64,
                                                    "decoder_start_token_id": 2}, language),
    "BertForSequenceClassification": ("BertConfig", WORDS, lambda: labelled(
        input_ids=tokens(), attention_mask=torch.ones(2, 16, dtype=torch.long))),
    "BloomForCausalLM": ("BloomConfig", dict(vocab_size=100, hidden_size=32, n_layer=2, n_head=4), language),
    "CLIPModel": ("CLIPConfig", dict(text_config=WORDS, vision_config=IMAGES, projection_dim=16),
                  lambda: {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)}),
    "DistilBertForSequenceClassification": ("DistilBertConfig", dict(
        vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64, pad_token_id=0),
        lambda: labelled(input_ids=tokens())),
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
                                     lambda: labelled(pixel_values=torch.randn(2, 3, 32, 32))),
    "RobertaForMaskedLM": ("RobertaConfig", WORDS, language),
    "SegformerForSemanticSegmentation": ("SegformerConfig", dict(
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16),
        lambda: {"pixel_values": torch.randn(2, 3, 64, 64)}),
    "T5ForConditionalGeneration": ("T5Config", dict(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                                                    decoder_start_token_id=0, pad_token_id=0, use_cache=False), language),
    "ViTForImageClassification": ("ViTConfig", IMAGES, lambda: labelled(pixel_values=torch.randn(2, 3, 32, 32))),
    "WhisperForConditionalGeneration": ("WhisperConfig", {
        **SEQUENCES, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20,
        "decoder_start_token_id": 1}, lambda: {"input_features": torch.randn(2, 8, 40), "labels": tokens()}),
}


def models():
    """Yields (name, function that makes the model, function that makes (args, kwargs))."""
    def images(side):
        return lambda: ((torch.randn(2, 3, side, side),), {})
    for name, side in VISION.items():
        yield f"torchvision {name}", lambda n=name: getattr(torchvision.models, n)(weights=None, num_classes=10), images(side)
    for name in SEGMENTATION:
        yield (f"torchvision {name}", lambda n=name: getattr(torchvision.models.segmentation, n)(
            weights=None, weights_backbone=None, num_classes=5), images(64))
    for name, side in TIMM.items():
        yield f"timm {name}", lambda n=name: timm.create_model(n, num_classes=10), images(side)
    for name, (config, values, arguments) in HUGGING_FACE.items():
        def make(name=name, config=config, values=values):
            model = getattr(transformers, name)(getattr(transformers, config)(**values))
            if hasattr(model.config, "use_cache"):
                model.config.use_cache = False
            return model
        yield f"transformers {name}", make, lambda a=arguments: ((), a())


def run_ours(program, folder, *words):
    result = subprocess.run([program, folder / "net.pt2", folder / "inputs.pt", folder / "outputs.pt", *words],
                            capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip())
    return torch.load(folder / "outputs.pt")


def compare(program, make, draw, folder):
    """Returns a row of the table: nodes, training, evaluation, two stages."""
    torch.manual_seed(0)
    model = make().train()
    args, kwargs = draw()
    shapes = tuple(DYNAMIC for _ in args) if args else {name: DYNAMIC for name in kwargs}
    exported = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    torch.export.save(exported, folder / "net.pt2")
    torch.save({name: value.detach().clone() for name, value in named_inputs(model, args, kwargs).items()},
               folder / "inputs.pt")
    words = []
    for mode in ("train", "eval"):
        ours = run_ours(program, folder, mode, "3")
        eager = copy.deepcopy(model).train(mode == "train")
        text, largest = difference(ours, train(eager, args, kwargs))
        if text and mode == "train":
            # The module shares the parameters of the model.
            module_text, _ = difference(ours, train(copy.deepcopy(exported).module(), args, kwargs))
            text = text if module_text else SAME_MODULE
        elif text and words == [SAME_MODULE] and largest < ROUNDING:
            text = "rounding"  # module() cannot change its mode
        words.append(text or "equal")
    whole = run_ours(program, folder, "eval", "1")
    staged, _ = difference(run_ours(program, folder, "eval", "1", "2"), whole)
    words.append(staged or "equal")
    return len(exported.graph.nodes), words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make, draw in models():
            if options.names and not any(word in name for word in options.names):
                continue
            try:
                nodes, words = compare(options.program, make, draw, pathlib.Path(folder))
            except Exception as error:  # a model that cannot be exported must not hide the others
                nodes, words = 0, [f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"] * 3
            wrong += any(word not in ("equal", SAME_MODULE, "rounding") for word in words[:2])
            rows.append(f"| {name} | {nodes} | {' | '.join(words)} |")
            print(rows[-1], flush=True)
    print(f"{len(rows)} models compared, {wrong} differ")
    if options.page:
        table = "\n".join(["| model | nodes | training | evaluation | two stages |", "|---|---|---|---|---|", *rows])
        replace_between(options.page, *MARKS, table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
