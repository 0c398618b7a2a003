"""What an architecture with a bias of its output refuses."""

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.models.marian_transformer import MarianTransformerModel
from tests.support import tiny


def test_an_adaptive_softmax_is_refused():
    """It has no projection that a bias could be added to."""
    options = {"adaptive_softmax_cutoff": "4,8", "share_all_embeddings": False}
    with pytest.raises(PluginError, match="leave --adaptive-softmax-cutoff out"):
        tiny.model(architecture=MarianTransformerModel, **options)
