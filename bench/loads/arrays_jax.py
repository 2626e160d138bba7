"""JAX: a jitted training step with a convolution, gradients, a scan and random numbers."""

import jax
import jax.numpy as jnp


def parameters(key):
    """Random weights of a small network over 16 x 16 pictures of 3 channels."""
    one, two, three = jax.random.split(key, 3)
    return {
        "filter": jax.random.normal(one, (16, 3, 3, 3)) * 0.2,
        "hidden": jax.random.normal(two, (16 * 16 * 16, 128)) * 0.02,
        "out": jax.random.normal(three, (128, 1)) * 0.1,
    }


def forward(weights, pictures):
    """The network's answer for each picture."""
    maps = jax.lax.conv(pictures, weights["filter"], (1, 1), "SAME")
    hidden = jax.nn.gelu(maps.reshape(maps.shape[0], -1) @ weights["hidden"])
    return hidden @ weights["out"]


@jax.jit
def step(weights, pictures, targets):
    """One step of gradient descent; also gives the loss before it."""

    def loss(w):
        return jnp.mean((forward(w, pictures) - targets) ** 2)

    value, slopes = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, s: w - 1e-4 * s, weights, slopes), value


@jax.jit
def running(values):
    """A loop on the device: an exponential average along the first axis."""

    def body(state, value):
        state = 0.9 * state + 0.1 * value
        return state, state

    return jax.lax.scan(body, jnp.zeros(values.shape[1:]), values)[1]


def train(device, steps, digest, numbers):
    """Losses, final weights and the scan's outputs count."""
    with jax.default_device(jax.devices(device)[0]):
        weights = parameters(jax.random.key(0))
        pictures = jax.random.normal(jax.random.key(1), (32, 3, 16, 16))
        targets = pictures.sum(axis=(1, 2, 3))[:, None]
        losses = []
        for i in range(steps):
            weights, loss = step(weights, pictures, targets)
            losses.append(float(loss))
            digest.array(f"loss{i}", loss)
        for name in sorted(weights):
            digest.array(name, weights[name])
        digest.array("running", running(pictures.reshape(32, -1)))
    numbers["losses"] = losses
    numbers["device"] = jax.devices(device)[0].platform
