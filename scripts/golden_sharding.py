#!/usr/bin/env python3
"""Makes tables of how MaxText cuts the parameters of its models: what golden/sharding/params has, of more cases.

    JAX_PLATFORMS=cpu golden_sharding.py FOLDER

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH) makes the abstract state of its Linen form (no weight is
allocated); FOLDER gets a table for each case of CASES and their list, experts_index.tsv, in the columns of
golden/sharding/params. The columns of the NNX form are "-": its index says so.
"""
import functools
import math
import os
import sys

CASES = {
    "mixtral-8x7b": [("fsdp4_fsdpt2", "fsdp=4,fsdp_transpose=2"), ("fsdp2_tensor2", "fsdp=2,tensor=2")],
    "deepseek2-16b": [("fsdp4_fsdpt2", "fsdp=4,fsdp_transpose=2")],
    "gpt-oss-20b": [("fsdp8", "fsdp=8")],
    "llama4-17b-16e": [("fsdp4_fsdpt2", "fsdp=4,fsdp_transpose=2")],
}
WAYS = ["shard_exp_on_fsdp=true", "use_2d_fsdp_sharding=true"]
# Models with one of them that is not of experts.
OTHERS = [("qwen3.5-35b-a3b", "fsdp2", "fsdp=2", "param_scan_axis=0"),
          ("deepseek2-16b", "fsdp2_context_autoregressive2", "fsdp=2,context_autoregressive=2", "scan_layers=true")]
HEADER = ("nnx_path linen_path nnx_type shape dtype nnx_logical nnx_spec_raw nnx_spec nnx_shard_shape linen_shape "
          "linen_dtype linen_logical linen_spec_raw linen_spec linen_shard_shape diff").split()
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

from flax import linen as nn  # noqa: E402  (XLA_FLAGS first)
import jax  # noqa: E402
from flax.linen import partitioning  # noqa: E402

from maxtext.configs import pyconfig  # noqa: E402
from maxtext.optimizers import optimizers  # noqa: E402
from maxtext.utils import maxtext_utils, model_creation_utils, sharding  # noqa: E402


def entries(names):
    """A logical annotation or a PartitionSpec in the notation of golden/sharding/README.md."""
    def one(name):
        if isinstance(name, (tuple, list)):
            return "(" + ",".join(name) + ")"
        return str(name)
    return "|".join(map(one, names)) if len(names) else "<empty>"


def dims(shape):
    return "x".join(map(str, shape)) or "scalar"


def table(words):
    """The rows of a case, by path."""
    config = pyconfig.initialize(["", os.path.join(os.environ["MAXTEXT_CONFIGS"], "base.yml")] + words)
    devices = jax.devices()[: int(os.environ["DEVICES"])]
    mesh = maxtext_utils.get_mesh_from_config(config, devices)
    model = model_creation_utils.from_config(config, devices, mesh)
    tx = optimizers.get_optimizer(config, maxtext_utils.create_learning_rate_schedule(config), model)
    init = functools.partial(maxtext_utils.init_initial_state, model, tx, config, True, jax.random.PRNGKey(0))
    with partitioning.axis_rules(config.logical_axis_rules):
        boxed = jax.eval_shape(init).params
    rows = {}
    is_box = lambda x: isinstance(x, nn.LogicallyPartitioned)
    for path, leaf in jax.tree_util.tree_leaves_with_path(boxed, is_leaf=is_box):
        name = "/".join(["params"] + [str(p.key) for p in path])
        value, logical = (leaf.value, leaf.names) if is_box(leaf) else (leaf, ())
        raw = nn.logical_to_mesh_axes(logical, config.logical_axis_rules)
        spec = sharding.remove_size_one_mesh_axis(raw, mesh)
        shard = jax.sharding.NamedSharding(mesh, spec).shard_shape(value.shape)
        linen = [dims(value.shape), str(value.dtype), entries(logical), entries(raw), entries(spec), dims(shard)]
        rows[name] = ["-", name, "-", "-", "-", "-", "-", "-", "-"] + linen + ["linen_only"]
    return [rows[name] for name in sorted(rows)]


def write(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines("\t".join(line) + "\n" for line in lines)


def main():
    folder = sys.argv[1]
    index = ["name model mesh mesh_axes layers overrides rows rows_with_diff nnx linen".split()]
    cases = [(model, *mesh, way) for model, meshes in CASES.items() for mesh in meshes for way in WAYS]
    for model, mesh, axes, way in cases + OTHERS:
        sizes = dict(a.split("=") for a in axes.split(","))
        overrides = [f"ici_{axis}_parallelism={n}" for axis, n in sizes.items()] + [way]
        os.environ["DEVICES"] = str(math.prod(map(int, sizes.values())))
        rows = table(["run_name=golden", f"model_name={model}", "hardware=cpu", "attention=dot_product",
                      "skip_jax_distributed_system=true", "enable_checkpointing=false",
                      "dataset_type=synthetic", "enable_nnx=false", "pure_nnx=false", "pure_nnx_decoder=false",
                      "override_model_config=true"] + overrides)
        name = f"{model}__{way.split('=')[0]}_{mesh}__scan"
        write(os.path.join(folder, name + ".tsv"), [HEADER] + rows)
        index.append([name, model, mesh, axes, "scan", " ".join(overrides), str(len(rows)), str(len(rows)),
                      "not made", "ok"])
    write(os.path.join(folder, "experts_index.tsv"), index)


if __name__ == "__main__":
    main()
