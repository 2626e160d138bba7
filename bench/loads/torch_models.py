"""Stock models at their real size: ResNet-152 and BERT-base, random weights from a seed.

The builders serve two masters: the conformance workloads here, deterministic and short, and the
cost measurement, which runs the same steps at PyTorch's default settings.
"""

import torch
import torchvision
import transformers


def make_deterministic(seed=0):
    """Bit-equal results from run to run; without this two bare training runs differ."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def synchronize(device):
    """Waits for the GPU; nothing to wait for elsewhere."""
    if device == "cuda":
        torch.cuda.synchronize()


def images(batch, device, seed=1):
    """Pictures and labels: made on the host, copied to the device from pinned memory."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(batch, 3, 224, 224, generator=generator)
    labels = torch.randint(0, 1000, (batch,), generator=generator)
    if device == "cuda":
        pictures, labels = pictures.pin_memory(), labels.pin_memory()
    return pictures.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def sentences(batch, length, device, seed=2):
    """Token ids as a tokenizer would give them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1000, 30000, (batch, length), generator=generator).to(device)


def resnet152_training_step(device, batch):
    """(model, step): one call of `step` is one step of SGD with momentum; it gives the loss."""
    model = torchvision.models.resnet152(weights=None).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    pictures, labels = images(batch, device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def resnet152_inference_step(device, batch):
    """(model, step): one call of `step` is one batch of pictures classified."""
    model = torchvision.models.resnet152(weights=None).to(device).eval()
    pictures, _ = images(batch, device)

    @torch.inference_mode()
    def step():
        return model(pictures)

    return model, step


def bert_inference_step(device, batch, length):
    """(model, step): one call of `step` is one batch of sentences encoded by BERT-base."""
    model = transformers.BertModel(transformers.BertConfig()).to(device).eval()
    tokens = sentences(batch, length, device)
    mask = torch.ones_like(tokens)

    @torch.inference_mode()
    def step():
        answer = model(input_ids=tokens, attention_mask=mask)
        return answer.last_hidden_state, answer.pooler_output

    return model, step


def llama(device, **shape):
    """A Llama-shaped model in bf16 for inference; `shape` as transformers names it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
    torch.set_default_dtype(before)
    return model


def resnet152_train(device, steps, digest, numbers):
    """Training: losses and every final weight count."""
    make_deterministic()
    model, step = resnet152_training_step(device, batch=8 if device == "cuda" else 2)
    losses = [step() for _ in range(steps)]
    for i, loss in enumerate(losses):
        digest.tensor(f"loss{i}", loss)
    digest.parameters(model)
    numbers["losses"] = [loss.item() for loss in losses]


def resnet152_infer(device, steps, digest, numbers):
    """Inference: every batch's scores count."""
    make_deterministic()
    _, step = resnet152_inference_step(device, batch=8 if device == "cuda" else 2)
    for i in range(steps):
        scores = step()
        digest.tensor(f"scores{i}", scores)
    numbers["mean_score"] = scores.mean().item()


def bert_infer(device, steps, digest, numbers):
    """Inference: hidden states and pooled output count."""
    make_deterministic()
    _, step = bert_inference_step(device, batch=8 if device == "cuda" else 2, length=128)
    for i in range(steps):
        hidden, pooled = step()
        digest.tensor(f"hidden{i}", hidden)
        digest.tensor(f"pooled{i}", pooled)
    numbers["mean_pooled"] = pooled.mean().item()
