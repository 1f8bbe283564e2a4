"""golden_words.py — what MaxText makes of models that have golden files when other keys are set:

    PYTHONPATH=MAXTEXT/src python golden_words.py GOLDEN/models OUT.h5 [NAME..]

in the environment and the folder of golden_families.py. A group for each case below (of NAME alone): the model's file and the words beside
its config_cli as attributes; loss and moe_lb_loss of loss_fn on the first batch of training, and some gradients, under the names that
they have without stacks of layers. Parameters are those of the file."""
import sys

import golden_families as families
import h5py
import jax.numpy as jnp
import numpy as np
from golden_random_routing import configure, differentiate, set_parameters

from maxtext.common.goodput import create_goodput_recorder
from maxtext.utils import train_utils

EXPERTS = "mlp/moe_block/MoeBlock_0"
# The model, words, and gradients by our name: MaxText's, and which part of it.
CASES = {
    "scores": ("variants/gemma4_experts", "norm_topk_prob=false load_balance_loss_weight=0.5", {
        f"decoder/layers_3/{EXPERTS}/gate/kernel": (f"decoder/scanned_blocks/local_layers/{EXPERTS}/gate/kernel", np.s_[:, 0, 3]),
        f"decoder/layers_5/{EXPERTS}/gate/kernel": (f"decoder/scanned_blocks/global_layer/{EXPERTS}/gate/kernel", np.s_[:, 0]),
        f"decoder/layers_5/{EXPERTS}/per_expert_scale": (f"decoder/scanned_blocks/global_layer/{EXPERTS}/per_expert_scale", np.s_[:, 0]),
    }),
    "latent_chunks": ("variants/deepseek_no_shared", "moba=true moba_chunk_size=3 moba_topk=2", {
        f"decoder/{layers}_0/self_attention/{name}/kernel": (f"decoder/{layers}/self_attention/{name}/kernel", np.s_[:, 0])
        for layers in ("dense_layers", "moe_layers") for name in ("wkv_a", "wkv_b", "wq_b")
    }),
}


def run(golden, words, kept, out):
    config = configure(golden, words)
    (_, _, _, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, create_goodput_recorder(config))
    set_parameters(state.model, golden)
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in families.BATCH}
    loss, aux, grads = differentiate(state.model, config, mesh, batch)
    out["loss"], out["moe_lb_loss"] = np.float32(loss), np.float32(aux["moe_lb_loss"])
    grads = families.flat(grads)
    for ours, (theirs, part) in kept.items():
        out.create_dataset(f"grads/{ours}", data=np.asarray(grads[theirs][part], np.float32))
    print(out.name, float(loss), float(aux["moe_lb_loss"]))


def main():
    with h5py.File(sys.argv[2], "a", libver=("v110", "v110")) as out:
        for name in sys.argv[3:] or CASES:
            model, words, kept = CASES[name]
            if name in out:
                del out[name]
            group = out.create_group(name)
            group.attrs["model"], group.attrs["words"] = model, words
            with h5py.File(f"{sys.argv[1]}/{model}.h5") as golden:
                run(golden, words, kept, group)


if __name__ == "__main__":
    main()
