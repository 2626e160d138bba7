"""Stock models that need several GiB each: what shares a GPU too small for all of them.

Each `build(device, digest, numbers, size)` gives (step, finish, peak_bytes). `step(i)` does the
i-th step and feeds what it computed to the digest; `finish()` feeds what is left at the end;
`peak_bytes()` is the most that PyTorch had allocated from the driver. Outputs are pure functions of
the number of steps. `size` is "full", or "small" for a dry run on a CPU.
"""

import copy

import torch
import torchvision
import transformers

from loads.torch_models import images, llama, make_deterministic, sentences

# Larger outputs are reduced on the GPU before they are compared; copying them to the host and
# hashing them there would be most of the run.
LARGE = 4 << 20
ODD = 0x9E3779B97F4A7C15 - (1 << 64)


def fingerprint(tensor):
    """64 bits of every bit of the tensor and its place, by integer arithmetic: the order of the
    additions does not matter. One changed word always changes it; more than one, all but surely."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    data = torch.nn.functional.pad(data, (0, -data.numel() % 8))
    words = data.view(torch.int64)
    places = torch.arange(words.numel(), device=words.device, dtype=torch.int64)
    mixed = (words ^ (places * ODD)) * (2 * places * 0x2545F4914F6CDD1D + 1)
    return (mixed ^ (mixed >> 29)).sum()


def feed(digest, name, tensor):
    """Small tensors as they are, large ones by their fingerprint."""
    if tensor.numel() * tensor.element_size() > LARGE:
        digest.tensor(f"{name} {tuple(tensor.shape)}", fingerprint(tensor))
    else:
        digest.tensor(name, tensor)


def peak_bytes():
    """The most that PyTorch had from the driver so far."""
    return torch.cuda.max_memory_reserved() if torch.cuda.is_initialized() else 0


def resnet152_train(device, digest, numbers, size):
    """Training of ResNet-152, fp32, SGD with momentum: losses, and all weights at the end."""
    make_deterministic()
    batch = 32 if size == "full" else 2
    kind = torchvision.models.resnet152 if size == "full" else torchvision.models.resnet18
    model = kind(weights=None).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    pictures, labels = images(batch, device)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        scores = model(pictures)
        loss = criterion(scores, labels)
        loss.backward()
        optimizer.step()
        digest.tensor(f"loss{i}", loss)
        digest.tensor(f"scores{i}", scores)
        numbers["last_loss"] = loss.item()

    return step, lambda: digest.parameters(model), peak_bytes


def bert_infer(device, digest, numbers, size):
    """Inference on several BERT-base models of different weights, one after the other."""
    make_deterministic()
    models, batch = (12, 64) if size == "full" else (2, 2)
    config = transformers.BertConfig()
    if size != "full":
        config = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    first = transformers.BertModel(config).to(device).eval()
    served = [first]
    with torch.no_grad():
        for number in range(1, models):
            served.append(copy.deepcopy(first))
            for weights in served[-1].parameters():
                weights.mul_(1 + number / 64)
    numbers["models"] = models
    mask = torch.ones(batch, 128, dtype=torch.long, device=device)

    @torch.inference_mode()
    def step(i):
        tokens = sentences(batch, 128, device, seed=100 + i)
        answer = served[i % models](input_ids=tokens, attention_mask=mask)
        feed(digest, f"hidden{i}", answer.last_hidden_state)
        digest.tensor(f"pooled{i}", answer.pooler_output)

    return step, lambda: None, peak_bytes


def llama_1b(device, digest, numbers, size):
    """A Llama-shaped model of 1 B parameters in bf16: reads prompts, answers one greedily."""
    make_deterministic()
    shape = {
        "vocab_size": 32_000,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    if size != "full":
        shape.update(hidden_size=64, intermediate_size=128)
        shape.update(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    model = llama(device, **shape)
    numbers["parameters"] = sum(weights.numel() for weights in model.parameters())

    @torch.inference_mode()
    def step(i):
        prompt = sentences(4, 128, device, seed=1000 + i)
        feed(digest, f"logits{i}", model(input_ids=prompt).logits)
        said = model.generate(prompt[:1], max_new_tokens=8, do_sample=False, pad_token_id=0)
        digest.tensor(f"words{i}", said)

    return step, lambda: None, peak_bytes
