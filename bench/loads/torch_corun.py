"""Models of Tally's experiment: what answers requests, and what trains beside it. Random weights.

A latency model `build(device, size)` gives `(forward, inputs)`: a call and the arguments that it
takes. A training gives a `Training` of loads/service.py.
"""

import functools

import torch
import torchvision
import transformers

from loads.service import Training
from loads.torch_models import images, llama, make_deterministic
from loads.torch_services import LOOK


def half(model, device):
    """A model for inference in fp16."""
    return model.half().to(device).eval()


def tokens(device, batch, length, most=30_000):
    """Token ids on the device."""
    generator = torch.Generator().manual_seed(12)
    return torch.randint(1000, most, (batch, length), generator=generator).to(device)


def one_picture(make, device):
    """One picture, fp32; `make` makes the model."""
    make_deterministic()
    model = make(weights=None)
    generator = torch.Generator().manual_seed(11)
    picture = torch.rand(1, 3, 224, 224, generator=generator)
    return model.to(device).eval(), [picture.to(device)]


def resnet50(device, size):
    """ResNet-50, one picture, fp32."""
    return one_picture(torchvision.models.resnet50, device)


def resnet152(device, size):
    """ResNet-152, one picture, fp32."""
    return one_picture(torchvision.models.resnet152, device)


def bert(device, size, **shape):
    """BERT-base, one sentence of 128 tokens, fp16."""
    make_deterministic()
    if size != "full":
        shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = half(transformers.BertModel(transformers.BertConfig(**shape)), device)
    return lambda ids: model(ids).last_hidden_state, [tokens(device, 1, 128)]


def bert_large(device, size):
    """BERT-large, one sentence of 384 tokens, fp16."""
    shape = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    forward, _ = bert(device, size, **shape, intermediate_size=4096)
    return forward, [tokens(device, 1, 384)]


def llama_1b(device, size, prompt=512):
    """Llama-shaped, 1.1 B parameters, a prompt of 512 tokens, bf16."""
    make_deterministic()
    shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    model = llama(device, vocab_size=32_000, **shape, **heads)
    call = functools.partial(model, use_cache=False, logits_to_keep=1)
    return lambda ids: call(input_ids=ids).logits, [tokens(device, 1, prompt)]


def llama_1b_long(device, size):
    """The same as `llama_1b`, a prompt of 1,024 tokens."""
    return llama_1b(device, size, prompt=1024)


def without_copies(attention, query, key, value, *_):
    """Attention of a GPT-Neo layer, for one prompt without padding.

    The library's own copies a constant to the GPU in every layer and waits for it: no CUDA graph
    can hold that.
    """
    queries, keys = query.size(-2), key.size(-2)
    mask = attention.bias[:, :, keys - queries : keys, :keys]
    attend = torch.nn.functional.scaled_dot_product_attention
    # GPT-Neo does not scale.
    return attend(query, key, value, attn_mask=mask, scale=1.0), None


def gpt_neo(device, size):
    """GPT-Neo-shaped, 1.3 B parameters, a prompt of 128 tokens, fp16."""
    make_deterministic()
    shape = {"hidden_size": 2048, "num_layers": 24, "num_heads": 16}
    config = transformers.GPTNeoConfig(attention_types=[[["global", "local"], 12]], **shape)
    model = half(transformers.GPTNeoForCausalLM(config), device)
    for block in model.transformer.h:
        attention = block.attn.attention
        attention._attn = functools.partial(without_copies, attention)
    # Without a mask the library asks the GPU whether the prompt is several in one.
    everything = torch.ones(1, 1, 128, 128, dtype=torch.bool, device=device)
    call = functools.partial(model, attention_mask=everything, use_cache=False)
    return lambda ids: call(ids).logits, [tokens(device, 1, 128)]


def training(model, device, loss):
    """Endless steps of AdamW; `loss(model)` computes one."""
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        value = loss(model)
        value.backward()
        optimizer.step()
        if i % LOOK == 0:
            value.item()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    return Training(step, wait, lambda _: 0)


def classifier_training(make, device, size, batch):
    """So many pictures; `make` makes the model."""
    make_deterministic()
    pictures, labels = images(batch if size == "full" else 2, device)
    criterion = torch.nn.CrossEntropyLoss()
    model = make(weights=None)
    return training(model, device, lambda model: criterion(model(pictures), labels))


def resnet50_training(device, size):
    """ResNet-50, 128 pictures."""
    return classifier_training(torchvision.models.resnet50, device, size, 128)


def launch_bound_training(device, size):
    """ResNet-152, 8 pictures: its kernels are over before the CPU has launched the next."""
    return classifier_training(torchvision.models.resnet152, device, size, 8)


def bert_training(device, size):
    """BERT-base, 32 sentences of 384 tokens, words to be guessed."""
    make_deterministic()
    ids = tokens(device, 32 if size == "full" else 1, 384 if size == "full" else 16)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**({} if size == "full" else small))
    model = transformers.BertForMaskedLM(config)
    return training(model, device, lambda model: model(ids, labels=ids).loss)


def gpt2_large_training(device, size):
    """GPT-2-large, one text of 512 tokens."""
    make_deterministic()
    ids = tokens(device, 1, 512)
    config = transformers.GPT2Config(n_embd=1280, n_layer=36, n_head=20)
    model = transformers.GPT2LMHeadModel(config)
    return training(model, device, lambda model: model(ids, labels=ids).loss)


def whisper_small_training(device, size):
    """Whisper-small, 16 recordings of 30 s."""
    make_deterministic()
    generator = torch.Generator().manual_seed(13)
    sound = torch.randn(16, 80, 3000, generator=generator).to(device)
    words = tokens(device, 16, 128)
    layers = {"encoder_layers": 12, "decoder_layers": 12}
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    width = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**width, **layers, **heads)
    )
    return training(model, device, lambda model: model(input_features=sound, labels=words).loss)


def pegasus_training(device, size):
    """PEGASUS-shaped, 4 texts of 512 tokens, summaries of 128."""
    make_deterministic()
    ids, summary = tokens(device, 4, 512), tokens(device, 4, 128)
    layers = {"encoder_layers": 16, "decoder_layers": 16}
    config = transformers.PegasusConfig(vocab_size=96_103, d_model=1024, **layers)
    model = transformers.PegasusForConditionalGeneration(config)
    return training(model, device, lambda model: model(input_ids=ids, labels=summary).loss)
