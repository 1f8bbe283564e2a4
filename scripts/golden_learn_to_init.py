#!/usr/bin/env python3
"""golden_learn_to_init.py — tests/golden/train/learn_to_init.h5: students whose attention is made of a teacher's weights, by MaxText:

    PYTHONPATH=MAXTEXT/src JAX_PLATFORMS=cpu python scripts/golden_learn_to_init.py FILE

in an environment with MaxText's libraries and a folder with MaxText's base.yml; MAXTEXT is a checkout of e591f30c. tunix is not needed: what
the trainer's modules import of it stands for nothing here.

For each case: attribute `config` (lines of our overrides: the student, its teacher, what it takes and ties); teacher/ and start/ (both
models, the student behind prepare_student_weights), grads/ of the first step, loss and grad_norm of
three steps of the trainer's own _train_step, final/ (the student behind them) and folded/ (its attention behind apply_lti_model_update). Trees
are NNX's, below model/. MaxText trains the teacher's arrays too unless student_params_to_update leaves them out; here it does."""
import json
import sys
import types

import flax
import h5py
import jax
import jax.numpy as jnp
import numpy as np


def stand_in(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


def stand_in_for_tunix():
    kept = flax.struct.dataclass(type("TrainingInput", (), {}), frozen=True)
    parts = {
        "checkpoint_manager": {"CheckpointManager": object},
        "peft_trainer": {"TrainingInput": kept, "PeftTrainer": object},
        "metrics_logger": {},
        "profiler": {},
    }
    made = {name: stand_in(f"tunix.sft.{name}", **members) for name, members in parts.items()}
    stand_in("tunix", sft=stand_in("tunix.sft", **made))


stand_in_for_tunix()
from flax import nnx
from flax.linen import partitioning

from maxtext.configs import pyconfig
from maxtext.layers.learn_to_init_layer import apply_lti_model_update
from maxtext.trainers.post_train.distillation import distillation_utils, lti_utils, train_distill
from maxtext.utils import maxtext_utils, model_creation_utils

STEPS, ROWS, LENGTH, VOCAB = 3, 2, 12, 16
COMMON = f"""dataset_type=synthetic attention=dot_product dtype=float32 weight_dtype=float32 matmul_precision=highest
enable_dropout=false remat_policy=none per_device_batch_size={ROWS} max_target_length={LENGTH} vocab_size={VOCAB} steps={STEPS}
learning_rate=0.01 learning_rate_final_fraction=0.1 warmup_steps_fraction=0 gradient_clipping_threshold=1 opt_type=adamw adam_b1=0.9
adam_b2=0.95 adam_eps=1.e-8 adam_weight_decay=0.1 decoder_block=llama2 mlp_activations=['silu','linear'] base_emb_dim=8 base_mlp_dim=12
base_num_decoder_layers=2 normalization_layer_epsilon=1.e-6 logits_via_embedding=false distill_alpha=0.7 distill_temperature=2.0
learn_to_init_mode=true attn_module_name=self_attention""".split()
ALONE = """run_name=golden base_output_directory=out enable_checkpointing=false override_model_config=true enable_tensorboard=false
enable_goodput_recording=false skip_jax_distributed_system=true hardware=cpu model_name=default tokenizer_path=unused
pure_nnx_decoder=false""".split()
TEACHER = "base_num_query_heads=4 base_num_kv_heads=2 head_dim=4"
STACKED = {r"decoder/layers/self_attention/(query|key|value|out)/kernel": r"decoder/layers/self_attention/\1/C"}
# The student's keys; what it takes of the teacher; what it ties.
CASES = {
    "two_maps": ("base_num_query_heads=2 base_num_kv_heads=1 head_dim=6", STACKED, {}),
    "general_map": ("base_num_query_heads=2 base_num_kv_heads=1 head_dim=2 lti_use_general_linear_map=true", STACKED, {}),
    "one_layer_ties": ("base_num_query_heads=4 base_num_kv_heads=2 head_dim=4 scan_layers=false lti_layer_indices=[1]",
                       {r"decoder/layers_0/self_attention/(query|key|value|out)/kernel": r"decoder/layers_1/self_attention/\1/C"},
                       {r"decoder/layers_0/(mlp/w.*/kernel)": r"decoder/layers_1/\1"}),
}
OF_MODEL = """base_num_query_heads base_num_kv_heads head_dim base_emb_dim base_mlp_dim base_num_decoder_layers vocab_size mlp_activations
normalization_layer_epsilon decoder_block dtype weight_dtype scan_layers logits_via_embedding""".split()
UPDATED = ["^(?!.*/C$)"]


def configure(words):
    return pyconfig.initialize(["golden", "base.yml"] + words + ALONE)


def without_teacher(words):
    """The teacher's keys: the student's, but its own."""
    own = {w.split("=")[0] for w in TEACHER.split()}
    skip = own | {"learn_to_init_mode", "attn_module_name", "lti_use_general_linear_map", "lti_layer_indices"}
    return [w for w in words if w.split("=")[0] not in skip] + TEACHER.split()


def our_config(keys, takes, ties):
    lines = [w.replace("=", ": ", 1) for w in keys]
    lines += ["teacher_overrides." + w.replace("=", ": ", 1) for w in without_teacher(keys) if w.split("=")[0] in OF_MODEL]
    lines += ["teacher_overrides.load_parameters_path: x", f"student_params_to_update: {json.dumps(UPDATED)}"]
    lines += [f"distill_weights_copy_map: {json.dumps(takes)}", f"distill_student_weights_share_map: {json.dumps(ties)}"]
    return "".join(line + "\n" for line in lines)


def put(file, root, state):
    for path, variable in nnx.to_flat_state(state):
        file[root + "/model/" + "/".join(map(str, path))] = np.asarray(variable.get_value(), np.float32)


def draw_batches(seed):
    """Rows of two documents, the second of which ends before the row does."""
    generator = np.random.default_rng(seed)
    half, last = LENGTH // 2, LENGTH - 2
    places = np.arange(LENGTH)
    segments = np.where(places < half, 1, np.where(places < last, 2, 0))
    shape = (STEPS, ROWS, LENGTH)
    names = {"inputs": generator.integers(1, VOCAB, shape), "targets": generator.integers(1, VOCAB, shape)}
    for side in ("inputs", "targets"):
        names[f"{side}_position"] = np.broadcast_to(np.where(segments, places % half, 0), shape)
        names[f"{side}_segmentation"] = np.broadcast_to(segments, shape)
    return {k: v.astype(np.int32) for k, v in names.items()}


def open_models(student_config, teacher_config, takes, ties, mesh):
    teacher = model_creation_utils.from_pretrained(teacher_config, mesh=mesh, rng_key=jax.random.key(7))
    student_config.get_keys()["teacher_config"] = teacher_config
    student = model_creation_utils.from_pretrained(student_config, mesh=mesh)
    lti_utils.prepare_student_weights(student, teacher, teacher_weights_copy_map=takes, student_weights_share_map=ties)
    return student, teacher


def trainer_of(student_config, teacher_config):
    """What _train_step reads of its trainer."""
    forward = train_distill.create_forward_fn
    strategy = distillation_utils.CombinedDistillationStrategy(
        forward(student_config), forward(teacher_config), pad_id=0, temperature=student_config.distill_temperature,
        alpha=student_config.distill_alpha, vocab_size=VOCAB, max_steps=STEPS)
    regex = [train_distill.re.compile(t) for t in UPDATED]

    def is_trained(path, x):
        return isinstance(x, nnx.Param) and any(r.search("/".join(map(str, path))) for r in regex)

    return types.SimpleNamespace(strategy=strategy, wrt_filter=is_trained, gen_model_input_fn=lambda x: x,
                                 _tunix_expects_grad_norm=True)


def inputs_of(batches, step):
    b = {k: jnp.asarray(v[step]) for k, v in batches.items()}
    return {"input_tokens": b["inputs"], "positions": b["inputs_position"], "attention_mask": None,
            "decoder_segment_ids": b["inputs_segmentation"], "targets": b["targets"], "targets_position": b["targets_position"],
            "targets_segmentation": b["targets_segmentation"], "cache": None}


class Watched(nnx.Optimizer):
    """An optimizer that remembers the gradients that it was given."""

    def update(self, model, grads, **kwargs):
        self.seen = nnx.data(grads)
        return super().update(model, grads, **kwargs)


def write(file, name, batches):
    words, takes, ties = CASES[name]
    keys = COMMON + words.split()
    student_config, teacher_config = configure(keys), configure(without_teacher(keys))
    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(student_config, jax.devices()), student_config.mesh_axes)
    group = file.create_group(name)
    group.attrs["config"] = our_config(keys, takes, ties)
    with jax.set_mesh(mesh), partitioning.axis_rules(student_config.logical_axis_rules):
        student, teacher = open_models(student_config, teacher_config, takes, ties, mesh)
        put(group, "teacher", nnx.state(teacher, nnx.Param))
        put(group, "start", nnx.state(student, nnx.Param))
        trainer = trainer_of(student_config, teacher_config)
        rule = train_distill.get_distillation_optimizer(student_config, STEPS)
        optimizer = Watched(student, rule, wrt=trainer.wrt_filter)
        bundle = train_distill.ModelBundle(teacher, student)
        told = []
        for step in range(STEPS):
            loss, _, norm = train_distill.MaxTextDistillationTrainer._train_step(trainer, bundle, optimizer, inputs_of(batches, step))
            told.append((float(loss), float(norm)))
            if step == 0:
                put(group, "grads", optimizer.seen)
        put(group, "final", nnx.state(student, nnx.Param))
        apply_lti_model_update(student, student_config)
        put(group, "folded", nnx.state(student, nnx.All(nnx.Param, lambda path, x: "self_attention" in path)))
    group["loss"], group["grad_norm"] = np.asarray(told, np.float32).T
    print(name, told)


def main():
    with h5py.File(sys.argv[1], "w", libver=("v110", "v110")) as file:
        file.attrs["maxtext_commit"] = "e591f30c"
        batches = draw_batches(3)
        for key, value in batches.items():
            file[f"batches/{key}"] = value
        for name in CASES:
            write(file, name, batches)


if __name__ == "__main__":
    main()
