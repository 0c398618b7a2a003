"""Tasks for mBART and for many languages, with tiny models, drafters and heads for them."""

from typing import List, NamedTuple

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from tests.support.command_lines import (
    HEADS,
    PLUGIN,
    TINY_TRAINING,
    generate_args,
    once_per_run,
    run_cli,
    train_args,
)


class Setting(NamedTuple):
    """A task, and flags that it needs."""

    task: str
    always: List[str]
    in_training: List[str]

    @property
    def flags(self) -> List[str]:
        """What programs other than fairseq's need."""
        return ["--task", f"specdec_{self.task}", *self.always]

    def train(self, corpus, folder, *more):
        flags = ["--task", f"specdec_{self.task}", *self.always, *self.in_training]
        return train_args(corpus.data_dir, folder, *flags, *more)

    def train_draft(self, corpus, folder, kind, verifier, *more):
        """The command line that trains a drafter (``block_nat``) or heads (``blockwise``)."""
        fixed = ["fairseq-train", corpus.data_dir, "--user-dir", PLUGIN, *self.always]
        fixed += ["--task", f"{kind}_{self.task}", *self.in_training, *TINY_TRAINING]
        fixed += ["--verifier-path", verifier, "--dropout", 0, "--save-dir", folder]
        return [*map(str, (*fixed, "--max-update", 100, *more))]

    def generate(self, corpus, checkpoint, *more, prefix="specdec_"):
        flags = ["--task", prefix + self.task, "-s", "en", "-t", "es", *self.always]
        return generate_args(corpus.data_dir, checkpoint, *flags, *more)


MULTI = "translation_multi_simple_epoch"
PAIRS = ["--lang-pairs", "en-es,es-en", "--encoder-langtok", "src", "--decoder-langtok"]
SETTINGS = {
    "mbart": Setting(
        "translation_from_pretrained_bart",
        ["--langs", "en,es"],
        ["--arch", "mbart_base", "--layernorm-embedding", "-s", "en", "-t", "es"],
    ),
    "prefix": Setting(MULTI, PAIRS, []),
    "replacing": Setting(MULTI, [*PAIRS, "--lang-tok-replacing-bos-eos"], []),
}


def trained(corpus, name, factory):
    """Path of a model that a setting's task trained for some updates."""

    def build(folder):
        args = SETTINGS[name].train(corpus, folder, "--max-update", 100)
        if name == "mbart":
            pretend_to_pretrain(args, folder / "pretrained.pt")
            args += ["--finetune-from-model", str(folder / "pretrained.pt")]
        run_cli(args)

    return str(once_per_run(factory, name, build) / "checkpoint_last.pt")


def pretend_to_pretrain(args, path):
    """A model to start from: BART's own first weights are too small to learn much so soon."""
    args = options.parse_args_and_arch(options.get_training_parser(), args[1:])
    cfg = convert_namespace_to_omegaconf(args)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    torch.manual_seed(1)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=weight.size(1) ** -0.5)
    save_untrained(model.state_dict(), args, str(path))


def drafter_of(corpus, name, factory):
    """Path of a drafter for :func:`trained`, from a warm start."""
    setting, verifier = SETTINGS[name], trained(corpus, name, factory)

    def build(folder):
        init = folder / "init.pt"
        done = run_cli(
            ["specdec-init-drafter", corpus.data_dir, "-s", "en", "-t", "es", *setting.flags]
            + ["--verifier", verifier, "--output", init, "--block-size", 4, "--share-encoder"]
        )
        more = [*done.stdout.splitlines()[-1].split(), "--finetune-from-model", init]
        more += ["--criterion", "glancing_block_loss"]
        run_cli(setting.train_draft(corpus, folder, "block_nat", verifier, *more))

    return str(once_per_run(factory, f"{name}-drafter", build) / "checkpoint_last.pt")


def heads_of(corpus, name, factory):
    """Path of heads alone for :func:`trained`."""
    verifier = trained(corpus, name, factory)

    def build(folder):
        more = ["--arch", "blockwise_transformer", "--frozen-base", "--heads", "source"]
        more += ["--block-size", HEADS, "--criterion", "blockwise_cross_entropy"]
        more += ["--head-loss", "mean"]
        run_cli(SETTINGS[name].train_draft(corpus, folder, "blockwise", verifier, *more))

    return str(once_per_run(factory, f"{name}-heads", build) / "checkpoint_last.pt")
