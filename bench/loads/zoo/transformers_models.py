"""Models of transformers with random weights: training, and generation with a cache."""

import torch
import transformers

from loads.zoo.torch_common import seeded, trained

VOCABULARY = 1000


def tokens(device, rows=8, length=128):
    """Token ids as a tokenizer would give them."""
    return torch.randint(10, VOCABULARY, (rows, length)).to(device)


def language_training(model, device, steps=2):
    """Trains a language model to say what it is told."""
    model = model.to(device).train()
    ids = tokens(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return trained(model, lambda: model(input_ids=ids, labels=ids).loss, optimizer, steps)


def generation(model, device, **options):
    """Has a language model answer prompts, greedily; the next prompts follow from the answers."""
    model = model.to(device).eval()
    prompt = tokens(device, 4, 32)
    with torch.inference_mode():
        while True:
            answer = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=32,
                min_new_tokens=32,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
            yield answer
            prompt = (answer[:, -32:] * 31 + 7) % VOCABULARY


def llama():
    """A Llama shape with grouped queries."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=512,
        )
    )


def gpt2():
    """A GPT-2 shape, without dropout."""
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=512, n_layer=6, n_head=8, n_positions=512
        )
    )


def bert_training(device):
    """BERT learns masked words."""
    seeded()
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=2048,
    )
    return language_training(transformers.BertForMaskedLM(config), device)


def gpt2_training(device):
    """GPT-2 with dropout learns to repeat."""
    seeded()
    return language_training(gpt2(), device)


def llama_training(device):
    """Llama learns with its activations computed anew."""
    seeded()
    model = llama()
    model.gradient_checkpointing_enable()
    return language_training(model, device)


def t5_training(device):
    """An encoder and a decoder."""
    seeded()
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=512,
        d_kv=64,
        d_ff=1024,
        num_layers=4,
        num_heads=8,
        decoder_start_token_id=0,
    )
    return language_training(transformers.T5ForConditionalGeneration(config), device)


def mixtral_training(device):
    """A mixture of experts."""
    seeded()
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=256,
    )
    return language_training(transformers.MixtralForCausalLM(config), device)


def vit_training(device):
    """A vision transformer learns classes."""
    seeded()
    config = transformers.ViTConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=64,
        patch_size=8,
        num_labels=10,
    )
    model = transformers.ViTForImageClassification(config).to(device).train()
    x = torch.randn(32, 3, 64, 64).to(device)
    y = torch.randint(0, 10, (32,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return trained(model, lambda: model(pixel_values=x, labels=y).loss, optimizer, 3)


def whisper_inference(device):
    """Convolutions over sound, an encoder, and a decoder that attends to it."""
    seeded()
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config).to(device).eval()
    sound = torch.randn(4, config.num_mel_bins, 3000).to(device)
    ids = tokens(device, 4, 64)
    with torch.inference_mode():
        while True:
            for _ in range(4):
                scores = model(input_features=sound, decoder_input_ids=ids).logits
                ids = (ids + scores.argmax(-1)) % VOCABULARY
            yield scores[:, -1], ids


def gpt2_generation(device):
    """Generation with the usual, growing cache."""
    seeded()
    return generation(gpt2(), device)


def llama_generation(device):
    """The same by a Llama in bf16."""
    seeded()
    return generation(llama().to(torch.bfloat16), device)


def llama_static_cache(device):
    """A cache of fixed size; transformers compiles the step for it."""
    seeded()
    return generation(llama(), device, cache_implementation="static")


def llama_sampling(device):
    """Beams, and words drawn at random."""
    seeded()
    model = llama().to(device).eval()
    prompt = tokens(device, 2, 32)
    with torch.inference_mode():
        while True:
            answer = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=16,
                min_new_tokens=16,
                do_sample=True,
                num_beams=3,
                top_k=50,
                pad_token_id=0,
            )
            yield answer
