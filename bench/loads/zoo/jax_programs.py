"""JAX: jitted training, loops, transforms, donated buffers, and its several allocators."""

import functools

import jax
import jax.numpy as jnp
from jax import lax


def needs(device):
    """Ends the program if JAX has found another device than the one that is asked for."""
    if {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend()) != device:
        raise SystemExit(f"JAX runs on {jax.default_backend()}, not on {device}")


def network(key, width=1024, depth=4):
    """Weights of a few layers."""
    keys = jax.random.split(key, depth)
    return [jax.random.normal(one, (width, width)) / width**0.5 for one in keys]


def forward(weights, x):
    """The network's output."""
    for weight in weights:
        x = jax.nn.gelu(x @ weight) + 0.5 * x
    return x


def loss_of(weights, x, y):
    """How wrong it is."""
    return jnp.mean((forward(weights, x) - y) ** 2)


def training(device):
    """A jitted step of gradient descent."""
    needs(device)
    key = jax.random.key(0)
    weights = network(key)
    x = jax.random.normal(key, (512, 1024))

    @jax.jit
    def step(weights):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, jnp.tanh(x[::-1]))
        return [w - 0.01 * g for w, g in zip(weights, gradients)], loss

    while True:
        for _ in range(30):
            weights, loss = step(weights)
        yield loss, weights[0][:64]


def donated_buffers(device):
    """Adam whose state is donated: each step's results take the place of its arguments."""
    needs(device)
    key = jax.random.key(0)
    weights = network(key)
    x = jax.random.normal(key, (512, 1024))
    zeros = [jnp.zeros_like(w) for w in weights]
    state = (weights, zeros, [jnp.zeros_like(w) for w in weights])

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state):
        weights, means, squares = state
        gradients = jax.grad(loss_of)(weights, x, jnp.tanh(x[::-1]))
        means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
        squares = [0.99 * s + 0.01 * g * g for s, g in zip(squares, gradients)]
        weights = [w - 1e-3 * m / (jnp.sqrt(s) + 1e-6) for w, m, s in zip(weights, means, squares)]
        return weights, means, squares

    while True:
        for _ in range(30):
            state = step(state)
        yield state[0][0][:64], state[2][3][:64]


def convolutions(device):
    """Convolutions and their gradients, by cuDNN."""
    needs(device)
    one, two, three = jax.random.split(jax.random.key(0), 3)
    filters = [
        jax.random.normal(one, (32, 3, 3, 3)) * 0.2,
        jax.random.normal(two, (32, 32, 3, 3)) * 0.06,
    ]
    x = jax.random.normal(three, (64, 3, 32, 32))

    @jax.jit
    def step(filters):
        def loss(filters):
            maps = jnp.tanh(lax.conv(x, filters[0], (1, 1), "SAME"))
            return jnp.mean((lax.conv(maps, filters[1], (2, 2), "SAME") - 0.5) ** 2)

        value, gradients = jax.value_and_grad(loss)(filters)
        return [f - 0.05 * g for f, g in zip(filters, gradients)], value

    while True:
        for _ in range(20):
            filters, value = step(filters)
        yield value, *filters


def scan(device):
    """A recurrent network by lax.scan, with its gradient."""
    needs(device)
    key = jax.random.key(0)
    weight = jax.random.normal(key, (512, 512)) / 30
    x = jax.random.normal(key, (100, 64, 512))

    @jax.jit
    def step(weight):
        def loss(weight):
            def cell(state, one):
                state = jnp.tanh(state @ weight + one)
                return state, state.mean()

            return lax.scan(cell, jnp.zeros((64, 512)), x)[1].var()

        value, gradient = jax.value_and_grad(loss)(weight)
        return weight - 0.01 * gradient / jnp.abs(gradient).max(), value

    while True:
        for _ in range(5):
            weight, value = step(weight)
        yield value, weight[:64]


def loops_and_branches(device):
    """while_loop and cond: the host waits for what the device decides."""
    needs(device)
    x = jax.random.normal(jax.random.key(0), (1024, 1024))

    @jax.jit
    def settle(x):
        def more(state):
            n, x = state
            return jnp.logical_and(n < 60, jnp.abs(x).max() > 0.1)

        def body(state):
            n, x = state
            x = lax.cond(n % 2 == 0, lambda y: y * 0.95, lambda y: jnp.roll(y, 1, 0) * 0.97, x)
            return n + 1, x

        return lax.while_loop(more, body, (0, x))

    while True:
        rounds, x = settle(x)
        x = x / jnp.abs(x).max() * 4
        yield rounds, x[:64]


def vmap_of_gradients(device):
    """Gradients for each sample, and second derivatives."""
    needs(device)
    key = jax.random.key(0)
    weight = jax.random.normal(key, (128, 128)) / 11
    x = jax.random.normal(key, (1024, 128))

    def loss(weight, sample):
        return jnp.tanh(sample @ weight).sum() ** 2 / 128

    @jax.jit
    def step(weight):
        each = jax.vmap(jax.grad(loss), (None, 0))(weight, x)
        curve = jax.vmap(jax.hessian(lambda s: loss(weight, s)))(x[:4])
        return weight - 1e-3 * each.mean(0), jnp.abs(curve).max()

    while True:
        for _ in range(20):
            weight, curve = step(weight)
        yield weight, curve


def fourier_and_algebra(device):
    """cuFFT, cuSOLVER, triangular solutions."""
    needs(device)
    x = jax.random.normal(jax.random.key(0), (256, 256))

    @jax.jit
    def step(x):
        s = x @ x.T / 256 + jnp.eye(256)
        lower = jnp.linalg.cholesky(s)
        values = jnp.linalg.eigvalsh(s)
        y = jnp.fft.ifft2(jnp.fft.fft2(x) * 0.5).real
        q, _ = jnp.linalg.qr(y + lower)
        return jax.scipy.linalg.solve_triangular(lower, q + 0.5 * y, lower=True), values

    while True:
        for _ in range(3):
            x, values = step(x)
        yield x, values


def sorting_and_scatter(device):
    """Sorts, segment sums of integers, gathers, top-k."""
    needs(device)
    x = jax.random.randint(jax.random.key(0), (1 << 19,), 0, 1 << 20)

    @jax.jit
    def step(x):
        order = jnp.argsort(x)
        sums = jax.ops.segment_sum(x[order], x % 1024, 1024)
        top, _ = lax.top_k(x, 64)
        x = (x.at[order[:4096]].add(17) * 5 + sums[x % 1024] + order) % (1 << 20)
        return x, sums, top

    while True:
        for _ in range(15):
            x, sums, top = step(x)
        yield x[:4096], sums, top


def attention(device):
    """Attention in bf16, with its gradient."""
    needs(device)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 512, 8, 64), jnp.bfloat16)

    @jax.jit
    def step(q):
        def loss(q):
            out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return (out.astype(jnp.float32) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(q)
        return q - (0.1 * gradient / jnp.abs(gradient).max()).astype(q.dtype), value

    while True:
        for _ in range(20):
            q, value = step(q)
        yield value, q[0, :64].astype(jnp.float32)


def random_numbers(device):
    """Keys that split, and what is drawn with them."""
    needs(device)
    key = jax.random.key(0)

    @jax.jit
    def draw(key):
        key, one, two, three = jax.random.split(key, 4)
        normal = jax.random.normal(one, (1 << 20,))
        order = jax.random.permutation(two, 1 << 16)
        kinds = jax.random.categorical(three, normal[:4096].reshape(64, 64))
        return key, normal, order, kinds

    while True:
        for _ in range(15):
            key, normal, order, kinds = draw(key)
        yield normal[:4096], order[:4096], kinds


def without_jit(device):
    """Operation by operation, and copies from and to the host."""
    needs(device)
    x = jnp.linspace(0, 1, 1 << 20)
    while True:
        for n in range(20):
            x = jnp.sin(x) + jnp.roll(x, n) * 0.5
            x = x / x.max()
        x = jax.device_put(jax.device_get(x) * 0.99)
        yield x[:4096]


def sharded_over_one(device):
    """The interfaces for many devices, with one."""
    needs(device)
    mesh = jax.make_mesh((1,), ("rows",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.random.normal(jax.random.key(0), (1024, 1024))
    weight = jax.device_put(x / 32, everywhere)
    x = jax.device_put(x, place)

    @functools.partial(jax.jit, out_shardings=place)
    def step(x):
        return jnp.tanh(x @ weight) + 0.1 * x

    while True:
        for _ in range(40):
            x = step(x)
        yield x[:64]
