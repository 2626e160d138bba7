"""Names of models and workloads, as people write them."""

NAMES = {
    "bert": "BERT-base",
    "bert_infer": "BERT inference",
    "bert_large": "BERT-large",
    "gpt2_large": "GPT-2-large",
    "gpt_neo": "GPT-Neo",
    "inception_v3": "Inception v3",
    "jax_7b": "JAX, Llama-shaped, 6.7 B",
    "launch_bound": "ResNet-152, batch 8",
    "llama_1b": "Llama, 1.1 B",
    "llama_1b_long": "Llama, 1.1 B, 1,024 tokens",
    "llama_7b": "Llama, 6.7 B",
    "llama_7b_segments": "Llama, 6.7 B, expandable segments",
    "llama_7b_segments_masked": "the same, given its mask",
    "pegasus": "Pegasus",
    "resnet152": "ResNet-152",
    "resnet152_train": "ResNet-152 training, batch 32",
    "resnet152_train_64": "ResNet-152 training, batch 64",
    "resnet152_train_64_async": "ResNet-152 training, batch 64, cudaMallocAsync",
    "resnet152_train_64_segments": "ResNet-152 training, batch 64, expandable segments",
    "resnet50": "ResNet-50",
    "whisper_small": "Whisper-small",
}


def name_of(model):
    """A model's name as people write it."""
    return NAMES.get(model, model)
