"""PyTorch eager: layers in training, optimizers, attention."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from loads.zoo.torch_common import convnet, mlp, needs_gpu, pictures, regression, seeded, trained


def mlp_with(device, optimizer_of):
    """Trains the small network with an optimizer."""
    seeded()
    model = mlp(device)
    x, y = regression(device)
    return trained(model, lambda: functional.mse_loss(model(x), y), optimizer_of(model))


def mlp_sgd(device):
    """SGD with momentum and weight decay."""
    return mlp_with(
        device,
        lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4),
    )


def mlp_adam_for_loop(device):
    """Adam, one tensor after the other."""
    return mlp_with(
        device, lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    )


def mlp_adam_foreach(device):
    """Adam by multi-tensor kernels, whose pointers lie in the kernels' parameters."""
    return mlp_with(
        device, lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
    )


def mlp_adamw_fused(device):
    """AdamW, all of a step in one kernel."""
    return mlp_with(
        device, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    )


def mlp_clipped_and_scheduled(device):
    """RMSprop with clipped gradients, a cosine schedule and an average of the weights."""
    seeded()
    model = mlp(device, width=1024)
    x, y = regression(device, width=1024)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    average = torch.optim.swa_utils.AveragedModel(model)
    while True:
        for _ in range(15):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        average.update_parameters(model)
        yield loss, norm, next(average.parameters())


def lbfgs(device):
    """L-BFGS, which asks for the loss again and again within a step."""
    seeded()
    model = mlp(device, width=512, depth=2)
    x, y = regression(device, width=512)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=20, history_size=8)

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    while True:
        yield optimizer.step(closure), next(model.parameters())


def accumulated_gradients(device):
    """Several backward passes for one step."""
    seeded()
    model = mlp(device)
    x, y = regression(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        for _ in range(4):
            optimizer.zero_grad()
            for part, target in zip(x.chunk(4), y.chunk(4)):
                loss = functional.mse_loss(model(part), target) / 4
                loss.backward()
            optimizer.step()
        yield loss, model[0].weight.grad


def residual_network(device):
    """Convolutions and batch norm."""
    seeded()
    model = convnet(device)
    x, y = pictures(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(model, lambda: functional.cross_entropy(model(x), y), optimizer, 10)


def channels_last(device):
    """Convolutions in bf16, the channels last."""
    seeded()
    model = convnet(device).to(torch.bfloat16, memory_format=torch.channels_last)
    x, y = pictures(device, count=128)
    x = x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return trained(model, lambda: functional.cross_entropy(model(x).float(), y), optimizer, 10)


def autoencoder(device):
    """Convolutions there, transposed ones back."""
    seeded()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=2, padding=1),
        nn.GroupNorm(8, 32),
        nn.SiLU(),
        nn.Conv2d(32, 64, 4, stride=2, padding=1),
        nn.SiLU(),
        nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
        nn.SiLU(),
        nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1),
    ).to(device)
    x, _ = pictures(device, count=128)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, lambda: functional.mse_loss(model(x), x), optimizer, 10)


def convolutions_1d_and_3d(device):
    """Dilated convolutions over sound, and volumes."""
    seeded()
    sound, volume = torch.randn(16, 32, 4096).to(device), torch.randn(2, 8, 32, 32, 32).to(device)
    flat = [nn.Conv1d(32, 32, 3, dilation=2**i, padding=2**i).to(device) for i in range(6)]
    solid = nn.Conv3d(8, 16, 3, padding=1).to(device)
    with torch.no_grad():
        while True:
            for _ in range(5):
                for layer in flat:
                    sound = torch.tanh(layer(sound)) + sound * 0.5
                maps = solid(volume)
                volume = volume + 0.01 * maps[:, :8]
                volume = volume / volume.abs().amax()
            yield sound[0], maps[0, 0]


def attention(device, backend, dtype, backward):
    """One way to compute attention, with or without its gradient."""
    seeded()
    q, k, v = (torch.randn(4, 16, 1024, 64).to(device, dtype) for _ in range(3))
    q.requires_grad_(backward)
    while True:
        for _ in range(10):
            with sdpa_kernel(backend):
                out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            if backward:
                (gradient,) = torch.autograd.grad(out.square().mean(), q)
                k = (k + 0.1 * gradient / gradient.abs().amax()).clamp(-4, 4)
            else:
                k = (k + 0.01 * out).clamp(-4, 4)
        yield out[0, 0], k[0, 0]


def attention_math(device):
    """Attention by matrix products."""
    return attention(device, SDPBackend.MATH, torch.float32, True)


def attention_flash(device):
    """Flash attention in bf16, with its gradient."""
    return attention(device, SDPBackend.FLASH_ATTENTION, torch.bfloat16, True)


def attention_efficient(device):
    """Memory-efficient attention."""
    needs_gpu(device)
    return attention(device, SDPBackend.EFFICIENT_ATTENTION, torch.float32, False)


def attention_cudnn(device):
    """cuDNN's attention, a graph that it compiles."""
    needs_gpu(device)
    return attention(device, SDPBackend.CUDNN_ATTENTION, torch.bfloat16, False)


def transformer_encoder(device):
    """PyTorch's own encoder, with dropout."""
    seeded()
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    x = torch.randn(16, 128, 256).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return trained(model, lambda: functional.mse_loss(model(x), x.roll(1, 1)), optimizer, 5)


def recurrent(device, kind):
    """A recurrent network over sequences; cuDNN keeps its weights in one piece."""
    seeded()
    model = kind(128, 256, num_layers=2, batch_first=True).to(device)
    x = torch.randn(32, 64, 128).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return trained(model, lambda: model(x)[0].square().mean(), optimizer, 10)


def lstm(device):
    """LSTM."""
    return recurrent(device, nn.LSTM)


def gru(device):
    """GRU."""
    return recurrent(device, nn.GRU)


def embeddings(device):
    """A large table, of which every step reads and changes a few rows."""
    seeded()
    table = nn.Embedding(200_000, 128).to(device)
    head = nn.Linear(128, 1).to(device)
    parameters = [*table.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    tokens = torch.randint(0, 200_000, (64, 256)).to(device)
    model = nn.Sequential(table, head)
    while True:
        for _ in range(10):
            optimizer.zero_grad(set_to_none=True)
            loss = (model(tokens).mean(1) - 1).square().mean()
            loss.backward()
            optimizer.step()
            tokens = (tokens * 48271 + 11) % 200_000
        yield loss, table.weight[:64]


def mixture_of_experts(device):
    """Each token goes to two of eight experts: top-k, index_select, index_add."""
    seeded()
    router = nn.Linear(256, 8).to(device)
    experts = nn.ModuleList(nn.Linear(256, 256) for _ in range(8)).to(device)
    x = torch.randn(4096, 256).to(device)
    optimizer = torch.optim.SGD([*router.parameters(), *experts.parameters()], lr=0.05)
    while True:
        for _ in range(3):
            optimizer.zero_grad()
            weights, chosen = router(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for n, expert in enumerate(experts):
                rows, slots = (chosen == n).nonzero(as_tuple=True)
                told = expert(x.index_select(0, rows)) * weights[rows, slots].unsqueeze(1)
                out = out.index_add(0, rows, told)
            loss = functional.mse_loss(out, x.flip(1))
            loss.backward()
            optimizer.step()
        yield loss, router.weight


def activation_checkpoints(device):
    """Layers that are computed again for the backward pass, dropout included."""
    seeded()
    layers = [mlp(device, 512, 1)[:-1].append(nn.Dropout(0.1)) for _ in range(8)]
    model = nn.ModuleList(layers).to(device)
    x = torch.randn(2048, 512).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss():
        y = x
        for layer in model:
            y = checkpoint(layer, y, use_reentrant=False)
        return functional.mse_loss(y, x)

    return trained(model, loss, optimizer, 5)


def gradient_penalty(device):
    """The gradient of a gradient."""
    seeded()
    model = nn.Sequential(nn.Linear(256, 512), nn.Softplus(), nn.Linear(512, 1)).to(device)
    x = torch.randn(4096, 256).to(device).requires_grad_()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss():
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).square().mean()

    return trained(model, loss, optimizer)
