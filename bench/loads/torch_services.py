"""Servers in PyTorch, and the training that they interrupt.

The models are stock ones at their real size with random weights: image classifiers and BERT-base
at batch 8 in fp32, Llama-shaped ones that read one prompt in bf16. The others are there for the
ways in which their kernels reach memory: multi-tensor updates, graphs, compiled code, arrays of
pointers, flash attention.
"""

import torch
import torch._inductor.config
import torchvision
import transformers

from loads.service import INPUTS, Service, Training
from loads.torch_filler import Filler
from loads.torch_models import images, llama, make_deterministic
from loads.torch_modes import captured, perceptron
from loads.torch_sharing import fingerprint

# How often a training waits for its loss; in between the GPU never runs dry.
LOOK = 10


def pinned(device, tensor):
    """An input on the host, as a data loader leaves it."""
    return tensor.pin_memory() if device == "cuda" else tensor


def to_host(*tensors):
    """The outputs of a request, copied to the host; waits for them."""
    return [tensor.detach().cpu() for tensor in tensors]


def feed(digest, name, tensor):
    """One output into a digest."""
    digest.tensor(name, tensor)


def reserved_bytes():
    """Bytes that PyTorch has from the driver."""
    return torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0


def size_of(model):
    """Bytes of parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def service(model, request, stateful=False):
    """A server of one model; what was needed only to make it is given back."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return Service(request, feed, size_of(model), stateful, reserved_bytes)


def classifier(model, device, batch, side):
    """A server of an image classifier."""
    model = model.to(device).eval()
    generator = torch.Generator().manual_seed(11)
    batches = [
        pinned(device, torch.rand(batch, 3, side, side, generator=generator)) for _ in range(INPUTS)
    ]

    @torch.inference_mode()
    def request(i):
        return to_host(model(batches[i % INPUTS].to(device, non_blocking=True)))

    return service(model, request)


def resnet152(device, size):
    """ResNet-152, 8 pictures."""
    make_deterministic()
    kind = torchvision.models.resnet152 if size == "full" else torchvision.models.resnet18
    return classifier(kind(weights=None), device, 8 if size == "full" else 2, 224)


def inception_v3(device, size):
    """Inception v3, 8 pictures."""
    make_deterministic()
    model = torchvision.models.inception_v3(weights=None, init_weights=True)
    return classifier(model, device, 8 if size == "full" else 2, 299)


def prompts(device, batch, length):
    """Token ids on the host, INPUTS times."""
    generator = torch.Generator().manual_seed(12)
    ids = [torch.randint(1000, 30000, (batch, length), generator=generator) for _ in range(INPUTS)]
    return [pinned(device, one) for one in ids]


def bert(device, size):
    """BERT-base, 8 sentences of 128 tokens."""
    make_deterministic()
    config = transformers.BertConfig()
    if size != "full":
        config = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.BertModel(config).to(device).eval()
    batches = prompts(device, 8, 128)

    @torch.inference_mode()
    def request(i):
        tokens = batches[i % INPUTS].to(device, non_blocking=True)
        answer = model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        return to_host(answer.last_hidden_state, answer.pooler_output)

    return service(model, request)


def llama_server(device, size, masked=False, **shape):
    """Reads a prompt of 512 tokens and says what comes next.

    Unless it is given its mask, the library may ask the GPU first what that is.
    """
    make_deterministic()
    if size != "full":
        shape.update(hidden_size=64, intermediate_size=128)
        shape.update(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    model = llama(device, **shape)
    batches = prompts(device, 1, 512)
    whole = torch.ones(1, 1, 512, 512, dtype=torch.bool, device=device).tril() if masked else None

    @torch.inference_mode()
    def request(i):
        tokens = batches[i % INPUTS].to(device, non_blocking=True)
        answer = model(input_ids=tokens, attention_mask=whole, use_cache=False, logits_to_keep=1)
        return to_host(answer.logits)

    return service(model, request)


def llama_1b(device, size):
    """Llama-shaped, 1.1 B parameters."""
    shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    return llama_server(device, size, vocab_size=32_000, **shape, **heads)


def llama_7b(device, size, masked=False):
    """Llama-shaped, 6.7 B parameters."""
    shape = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 32}
    return llama_server(device, size, masked, vocab_size=32_000, **shape, **heads)


def llama_7b_masked(device, size):
    """The same, given its mask."""
    return llama_7b(device, size, masked=True)


def adamw(device, size):
    """A request is a training step of GPT-2 with AdamW: its loss, a fingerprint of each weight."""
    make_deterministic()
    # Eager attention: the backward pass of the others is not deterministic in fp32.
    config = transformers.GPT2Config(attn_implementation="eager")
    if size != "full":
        config.n_embd, config.n_layer, config.n_head = 64, 2, 4
    model = transformers.GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    batches = prompts(device, 4, 256 if size == "full" else 16)

    def request(i):
        tokens = batches[i % INPUTS].to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            prints = torch.stack([fingerprint(weights) for weights in model.parameters()])
        return to_host(loss, prints)

    return service(model, request, stateful=True)


def small_inputs(device):
    """Rows for the perceptron."""
    generator = torch.Generator().manual_seed(13)
    return [pinned(device, torch.randn(256, 512, generator=generator)) for _ in range(INPUTS)]


def graph(device, size):
    """A request replays a training step captured as a CUDA graph, and then an inference."""
    make_deterministic()
    model = perceptron(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = small_inputs(device)
    x = torch.zeros(256, 512, device=device)

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def infer():
        with torch.no_grad():
            return model(x)

    x.copy_(batches[0])
    replay_train, loss = captured(train, device)
    replay_infer, answer = captured(infer, device)

    def request(i):
        x.copy_(batches[i % INPUTS], non_blocking=True)
        replay_train()
        replay_infer()
        return to_host(loss, answer)

    return service(model, request, stateful=True)


def compiled(device, size):
    """A request is an inference through Inductor's kernels, and one through its CUDA graphs."""
    make_deterministic()
    # In this process: helpers would be tenants of the same name.
    torch._inductor.config.compile_threads = 1
    model = perceptron(device).eval()
    batches = small_inputs(device)
    plain, quick = torch.compile(model), torch.compile(model, mode="reduce-overhead")

    @torch.no_grad()
    def request(i):
        x = batches[i % INPUTS].to(device, non_blocking=True)
        return to_host(plain(x), quick(x))

    return service(model, request)


def linalg(device, size):
    """Batches of small systems: LU, solve, Cholesky. Their kernels get arrays of pointers."""
    make_deterministic()
    generator = torch.Generator().manual_seed(14)
    count, side = (512, 32) if size == "full" else (8, 8)
    matrices = torch.randn(count, side, side, generator=generator).to(device)
    sides = [
        pinned(device, torch.randn(count, side, 4, generator=generator)) for _ in range(INPUTS)
    ]
    eye = side * torch.eye(side, device=device)

    def request(i):
        right = sides[i % INPUTS].to(device, non_blocking=True)
        factors, pivots = torch.linalg.lu_factor(matrices)
        solved = torch.linalg.lu_solve(factors, pivots, right)
        again = torch.linalg.solve(matrices + eye, right)
        lower = torch.linalg.cholesky(matrices @ matrices.mT + eye)
        return to_host(factors, pivots, solved, again, torch.cholesky_solve(right, lower))

    return Service(request, feed, 4 * matrices.numel(), memory=reserved_bytes)


def attention(device, size):
    """Flash attention in bf16 over keys and values that stay on the GPU."""
    make_deterministic()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    generator = torch.Generator().manual_seed(15)
    shape = (4, 16, 2048, 128) if size == "full" else (1, 2, 32, 16)
    keys, values = (torch.randn(shape, generator=generator).bfloat16().to(device) for _ in "kv")
    queries = [
        pinned(device, torch.randn(shape, generator=generator).bfloat16()) for _ in range(INPUTS)
    ]
    backends = [SDPBackend.FLASH_ATTENTION if device == "cuda" else SDPBackend.MATH]
    attend = torch.nn.functional.scaled_dot_product_attention

    @torch.inference_mode()
    def request(i):
        query = queries[i % INPUTS].to(device, non_blocking=True)
        with sdpa_kernel(backends):
            plain = attend(query, keys, values)
            return to_host(plain, attend(query, keys, values, is_causal=True))

    return Service(request, feed, 4 * keys.numel(), memory=reserved_bytes)


def resnet152_training(device, size):
    """Training of ResNet-152, batch 32, fp32, SGD with momentum."""
    make_deterministic()
    kind = torchvision.models.resnet152 if size == "full" else torchvision.models.resnet18
    model = kind(weights=None).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    pictures, labels = images(32 if size == "full" else 2, device)
    filler = Filler(device)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        filler.touch(i)
        if i % LOOK == 0:
            loss.item()

    return Training(step, filler.wait, filler.take)
