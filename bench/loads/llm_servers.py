"""LLM servers over HTTP, with made weights: how each is started, asked, and what its models weigh.

Nothing is downloaded: vLLM makes weights of a shape by itself, llama.cpp is given a file of random
weights. Prompts are token ids, so that no tokenizer is needed, and tokens come back as ids.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

# Shapes of Llama 2 7 B and of TinyLlama 1.1 B; `tiny` is for a dry run.
SHAPES = {
    "7b": {"hidden": 4096, "forward": 11008, "layers": 32, "heads": 32, "kv_heads": 32},
    "1b": {"hidden": 2048, "forward": 5632, "layers": 22, "heads": 32, "kv_heads": 4},
    "tiny": {"hidden": 256, "forward": 512, "layers": 2, "heads": 4, "kv_heads": 2},
}
VOCABULARY, CONTEXT = 32000, 2048
# Of all servers: no telemetry, nothing fetched, and NVLink multicast stays off.
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


class ServerFailed(RuntimeError):
    """A server ended, or did not answer as it should."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a prompt: token ids, and seconds until the first and the last of them."""

    tokens: tuple
    first: float
    all: float

    @property
    def per_token(self):
        """Seconds per token after the first."""
        return (self.all - self.first) / max(len(self.tokens) - 1, 1)


def parameters(model):
    """How many numbers a model's weights are."""
    shape = SHAPES[model]
    head = shape["hidden"] // shape["heads"]
    attention = 2 * shape["hidden"] * (shape["hidden"] + shape["kv_heads"] * head)
    layer = attention + 3 * shape["hidden"] * shape["forward"] + 2 * shape["hidden"]
    return 2 * VOCABULARY * shape["hidden"] + shape["layers"] * layer + shape["hidden"]


def stream(port, path, body, tokens_of, timeout):
    """Asks for a stream of server-sent events; `tokens_of` finds the token ids in each."""
    address = f"http://127.0.0.1:{port}{path}"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    started, first, tokens = time.perf_counter(), None, []
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            for line in answer:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[5:])
                if "error" in event:
                    raise ServerFailed(str(event["error"])[:500])
                found = tokens_of(event)
                if found and first is None:
                    first = time.perf_counter() - started
                tokens += found
    except urllib.error.HTTPError as error:
        raise ServerFailed(error.read()[:500].decode(errors="replace")) from None
    except OSError as error:
        raise ServerFailed(str(error)) from None
    if first is None:
        raise ServerFailed("no token came")
    return Answer(tuple(tokens), first, time.perf_counter() - started)


class Vllm:
    """vLLM's OpenAI-compatible server."""

    name = "vllm"

    def __init__(self, folder, site=None, graphs=False):
        self.folder, self.graphs = pathlib.Path(folder), graphs
        path = [str(site)] if site else []
        path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        self.settings = {**QUIET, **({"PYTHONPATH": ":".join(path)} if path else {})}

    def weights(self, model):
        """Bytes of a model's weights, in bfloat16."""
        return 2 * parameters(model)

    def _made(self, model):
        """The folder of a model: a configuration is all it needs."""
        shape, place = SHAPES[model], self.folder / model
        place.mkdir(parents=True, exist_ok=True)
        configuration = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 2 * CONTEXT,
            "hidden_size": shape["hidden"],
            "intermediate_size": shape["forward"],
            "num_hidden_layers": shape["layers"],
            "num_attention_heads": shape["heads"],
            "num_key_value_heads": shape["kv_heads"],
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "initializer_range": 0.02,
        }
        (place / "config.json").write_text(json.dumps(configuration))
        return place

    def command(self, model, port, share):
        """Its command line, with a share of the GPU's memory."""
        argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        argv += ["--model", str(self._made(model)), "--load-format", "dummy"]
        argv += ["--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(port)]
        argv += ["--gpu-memory-utilization", str(share), "--max-model-len", str(CONTEXT)]
        argv += ["--no-enable-prefix-caching", "--served-model-name", model]
        return argv + ([] if self.graphs else ["--enforce-eager"])

    def ask(self, model, port, prompt, count, timeout=120):
        """Sends a prompt, without sampling."""
        body = {"model": model, "prompt": list(prompt), "max_tokens": count, "temperature": 0}
        body |= {"ignore_eos": True, "seed": 1, "detokenize": False}
        body |= {"stream": True, "return_token_ids": True}

        def tokens_of(event):
            return [token for choice in event["choices"] for token in choice.get("token_ids") or []]

        return stream(port, "/v1/completions", body, tokens_of, timeout)


class LlamaCpp:
    """llama.cpp's `llama-server`, with models as GGUF files: `7b.gguf` and `1b.gguf` in a folder."""

    name = "llama.cpp"
    settings = QUIET

    def __init__(self, server, models):
        self.server, self.models = pathlib.Path(server), pathlib.Path(models)

    def weights(self, model):
        """Bytes of a model's weights: all of its file but a little."""
        return (self.models / f"{model}.gguf").stat().st_size

    def command(self, model, port, _share):
        """Its command line: it takes what the model and its cache need."""
        argv = [str(self.server), "--model", str(self.models / f"{model}.gguf"), "--port", str(port)]
        argv += ["--host", "127.0.0.1", "--n-gpu-layers", "999", "--parallel", "1"]
        return argv + ["--ctx-size", str(CONTEXT), "--no-webui", "--cache-ram", "0"]

    def ask(self, _model, port, prompt, count, timeout=120):
        """Sends a prompt, without sampling."""
        body = {"prompt": list(prompt), "n_predict": count, "temperature": 0, "seed": 1}
        body |= {"ignore_eos": True, "cache_prompt": False, "return_tokens": True, "stream": True}
        return stream(port, "/completion", body, lambda event: event.get("tokens", []), timeout)


def is_ready(port):
    """True if a server answers that it is well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
