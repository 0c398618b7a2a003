"""Packaging of specdec_plugin: ``pip install .`` (see README.md; ``make venv`` does it for you)."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"

# fairseq 0.12.2 does not import under Python 3.11; fairseq-fixed is the same code with that mended.
FAIRSEQ = "fairseq-fixed==0.12.3.1"
# Photographs to cut patches out of, and what reads others.
PHOTOS = ["pillow>=9.1", "scikit-learn"]
# Jobs of Slurm, or of this machine.
JOBS = ["submitit>=1.5"]
# A server of translations.
SERVER = ["prometheus-client", "starlette>=0.37", "uvicorn>=0.29"]
# Words as Moses splits them; fairseq's --tokenizer moses.
MOSES = ["sacremoses"]

setup(
    name="specdec-plugin",
    version="0.1.0",
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
            *[*PHOTOS, *JOBS, *SERVER, *MOSES],
            "playwright",  # drives Chromium where there is one
        ],
        "import": ["safetensors"],  # weights of specdec-import
        "lint": ["clang-format==19.1.7", "mypy>=1.11", "ruff>=0.6"],
        "moses": MOSES,
        "peers": ["ctranslate2"],
        "serve": SERVER,
        "slurm": JOBS,
        "superres": PHOTOS,
        # Right-to-left text in figures; matplotlib draws it by itself from version 3.11 on.
        "viz": ["arabic-reshaper", "python-bidi"],
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
        ]
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
