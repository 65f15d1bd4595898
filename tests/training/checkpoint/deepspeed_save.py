"""A team's own DeepSpeed training: ``python deepspeed_save.py RECIPE FOLDER`` trains three steps on a rank and saves.

Leaves DeepSpeed's checkpoint in ``FOLDER/s3``, the universal one in ``FOLDER/s3_universal``, and the state as DeepSpeed
tells it in ``FOLDER/truth.pt``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import transformers  # noqa: F401

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

from launcher.recipe import codec
from launcher.training.families import make_configuration, make_model

STEPS = 3
CONFIGURATION = {
    "train_batch_size": 4,
    "gradient_clipping": 0.0,
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1, "torch_adam": True}},
}


def main(recipe: Path, folder: Path) -> None:
    for op in ("deepspeed_shm_comm", "shm_comm"):
        deepspeed.ops.__compatible_ops__[op] = False
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    shape = codec.decode(json.loads(recipe.read_text())).model
    model = make_model(make_configuration(shape), shape)
    engine, *_ = deepspeed.initialize(model=model, config=CONFIGURATION, model_parameters=model.parameters())
    for _ in range(STEPS):
        tokens = torch.randint(0, shape.vocab_size, (4, 32))
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    engine.save_checkpoint(folder, tag="s3", client_state={"universal_checkpoint_info": {}})
    torch.save(
        {
            name: {
                "parameter": safe_get_full_fp32_param(parameter),
                "exp_avg": safe_get_full_optimizer_state(parameter, "exp_avg"),
                "exp_avg_sq": safe_get_full_optimizer_state(parameter, "exp_avg_sq"),
            }
            for name, parameter in model.named_parameters()
        },
        folder / "truth.pt",
    )
    convert = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", str(folder / "s3")]
    subprocess.run([*convert, "--output_folder", str(folder / "s3_universal")], check=True)
    (folder / "latest_universal").write_text("s3_universal")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
