"""golden_random_routing.py — what MaxText makes of models whose experts are drawn (use_random_routing):

    PYTHONPATH=MAXTEXT/src python golden_random_routing.py GOLDEN/models OUT.h5 [NAME..]

in the environment of golden_families.py. MaxText draws by JAX's generator, mxtrain by Philox4x32-10 (Salmon et al. 2011): here the
indices are Philox's, computed below as include/mx/ops.h defines them, and given to MaxText in place of its own; all else is MaxText's.
A group for each model below (of NAME alone): its file and words beside its config_cli as attributes; loss and moe_lb_loss of loss_fn
on its first batch, and gradients of the
routers, under the names that they have without stacks of layers."""
import re
import sys

import golden_families as families
import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.linen import partitioning

from maxtext.common.goodput import create_goodput_recorder
from maxtext.layers import moe
from maxtext.trainers.pre_train import train
from maxtext.utils import train_utils

WORDS = "use_random_routing=true load_balance_loss_weight=0.5"
# Layers of a stack are traced once: models with several of them that draw are not scanned.
CASES = {"mixtral": f"{WORDS} scan_layers=false", "variants/deepseek4": WORDS, "variants/deepseek_no_shared": WORDS,
         "llama4": f"{WORDS} scan_layers=false"}
KEPT = re.compile(r"gate/(kernel|bias)$")
drawing = {"seed": 0, "layer": 0}


def philox(key, stream, counter):
    """Four words for each counter."""
    counter = np.asarray(counter, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [counter & low, counter >> np.uint64(32), np.full_like(counter, stream & 0xFFFFFFFF), np.full_like(counter, stream >> 32)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=-1)


def random_routing(rng_key, gate_logits, num_experts_per_tok):
    """Of step 0, in the layer whose get_topk was called."""
    b, t, n = gate_logits.shape
    stream = drawing["layer"]
    word = philox(drawing["seed"], stream, [0])[0]
    words = philox(int(word[1]) << 32 | int(word[0]), stream, np.arange((b * t * num_experts_per_tok + 3) // 4)).ravel()
    ids = (words[:b * t * num_experts_per_tok] * np.uint64(n) >> np.uint64(32)).astype(np.int32).reshape(b, t, num_experts_per_tok)
    ids = jnp.asarray(ids)
    return jnp.take_along_axis(gate_logits, ids, axis=-1), ids


get_topk = moe.RoutedMoE.get_topk


def get_topk_of_layer(self, *args, **kwargs):
    drawing["layer"] = self.number
    return get_topk(self, *args, **kwargs)


def configure(golden, words):
    cli = golden.attrs["config_cli"].split() + words.split()
    named = [w.split("=", 1)[1] for w in cli if w.startswith("model_name=")]
    last = {w.split("=", 1)[0]: w for w in cli if not w.startswith("model_name=")}
    # With it MaxText does not ask for experts on several devices.
    rules = ["override_logical_axis_rules=true"]
    return families.configure(*named or [golden.attrs["model_name"]], list(last.values()) + rules)


def stored(golden, name):
    """A parameter's value, of a stack's if the file has one."""
    for at in (f"params/params/{name}", f"nnx_aux/model/{name}"):
        if at in golden["linen"]:
            return golden["linen"][at][...]
    of = re.fullmatch(r"decoder/layers_(\d+)/(.*)", name)
    layer, rest = int(of[1]), of[2]
    stack, period = golden["linen/params/params/decoder/layers"], 1
    if "layers_0" in stack:
        period = sum(1 for k in stack if re.fullmatch(r"layers_\d+", k))
        stack = stack[f"layers_{layer % period}"]
    return np.take(stack[rest][...], layer // period, axis=1)


def set_parameters(model, golden):
    state = nnx.state(model, nnx.Any(nnx.Param, families.AUX))
    for path, variable in nnx.to_flat_state(state):
        value = stored(golden, "/".join(map(str, path)))
        assert value.shape == variable.get_value().shape, path
        variable.set_value(jnp.asarray(value))
    nnx.update(model, state)


def number_routers(model):
    def place(path):
        return [int(p.rsplit("_", 1)[1]) for p in map(str, path) if re.fullmatch(r"layers_\d+", p)]

    routers = sorted((place(path), module) for path, module in nnx.iter_graph(model) if isinstance(module, moe.RoutedMoE))
    for number, (_, module) in enumerate(routers):
        module.number = number


def differentiate(model, config, mesh, batch):
    """loss_fn's loss, what it tells besides, and gradients by all parameters."""
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        graph, param, rest = nnx.split(model, nnx.Param, ...)

        def loss_of(p):
            return train.loss_fn(nnx.merge(graph, p, rest, copy=True), config, dict(batch), None, None)

        (loss, aux), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(param)
    return loss, aux, grads


def run(golden, words, out):
    config = configure(golden, words)
    (_, _, _, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, create_goodput_recorder(config))
    set_parameters(state.model, golden)
    number_routers(state.model)
    drawing["seed"] = config.init_weights_seed
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in families.BATCH}
    loss, aux, grads = differentiate(state.model, config, mesh, batch)
    out["loss"], out["moe_lb_loss"] = np.float32(loss), np.float32(aux["moe_lb_loss"])
    for path, variable in nnx.to_flat_state(grads):
        name = "/".join(map(str, path))
        if not KEPT.search(name):
            continue
        value = np.asarray(variable.get_value(), np.float32)
        if "moe_layers/" in name:  # a stack of one
            name, value = name.replace("moe_layers/", "moe_layers_0/"), np.squeeze(value, 1)
        out.create_dataset(f"grads/{name}", data=value)
    print(out.name, float(loss), float(aux["moe_lb_loss"]))


def main():
    moe.random_routing = random_routing
    moe.RoutedMoE.get_topk = get_topk_of_layer
    with h5py.File(sys.argv[2], "w", libver=("v110", "v110")) as out:
        for name in sys.argv[3:] or CASES:
            group = out.create_group(name.rsplit("/", 1)[-1])
            group.attrs["model"], group.attrs["words"] = name, CASES[name]
            with h5py.File(f"{sys.argv[1]}/{name}.h5") as golden:
                run(golden, CASES[name], group)


if __name__ == "__main__":
    main()
