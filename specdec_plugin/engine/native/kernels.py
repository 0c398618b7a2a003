"""What the kernels of this folder take: linear maps, stacks of layers, a softmax for training."""

import ctypes

import torch

from .interface import Header, enumeration, field, structure

#: What PyTorch's stubs do not know.
INT4: torch.dtype = torch.int4  # type: ignore[attr-defined]
#: Types that weights are packed in, by the number of their C++ name. Results are float32.
WEIGHT_TYPES = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.int8: 2,
    INT4: 3,
}
#: Activations behind a linear map, by the number of their C++ name.
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "silu": 3}

#: How weights of float32 are kept if this type holds each of them exactly, in the same way.
KEPT = {torch.float16: 4, torch.bfloat16: 5}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[1]


enumeration(
    "Format",
    {
        **{_name(dtype): number for dtype, number in WEIGHT_TYPES.items()},
        **{f"kept_{_name(dtype)}": number for dtype, number in KEPT.items()},
    },
)
enumeration("Activation", ACTIVATIONS)


@structure
class StackCall(ctypes.Structure):
    """New inputs of a stack of layers. All tensors are contiguous; floats are float32."""

    rows = field("int")
    width = field("int", "new inputs of each row; with firsts the most of any row")
    firsts = field(
        "const int64_t*",
        "(rows + 1) new inputs of all rows before, where widths differ: then vectors, tokens and "
        "out follow each other without padding, and there is no cache and no mask; or null",
    )
    vectors = field("const float*", "(rows, width, dim); null: tokens are embedded")
    tokens = field("const int64_t*", "those of row r begin at tokens + r * token_stride")
    token_stride = field("int")
    from_starts = field("int", "1: those of row r begin starts[r] behind that")
    positions = field("const float*", "(position_limit, dim) vectors of positions, or null")
    position_limit = field("int", "later positions have the last vector")
    counts = field("const int64_t*", "(rows) tokens of each row, before masks; null: no masks")
    block = field("int", "masks of each row, with counts")
    out = field("float*", "(rows, width, dim), or with counts of the masks: (rows, block, dim)")
    starts = field("const int64_t*", "(rows) slots of the cache that are taken")
    limits = field("const int64_t*", "(rows, width) slots that an input attends to, or null")
    self_mask = field("const float*", "(rows, width) added to self-attention's scores, or null")
    total_rows = field("int", "rows of the cache")
    row_index = field("const int64_t*", "(rows) which of them these rows are; null: the first")
    beams = field("int", "rows of the cache for each row of the source; 0 is 1")
    ancestors = field("const int64_t*", "(rows, capacity) rows that hold each row's slots; or null")
    cache = field("float*", "(layers, 2, total_rows, capacity, heads, head dim), or null")
    by_head = field("int", "1: the cache is (layers, 2, total_rows, heads, capacity, head dim)")
    capacity = field("int")
    source_kv = field(
        "const float*", "(layers, 2, then by row of the source: heads, length, head dim), or null"
    )
    source_places = field(
        "const int64_t*",
        "(source rows) the float at which each begins in source_kv: (layers, 2, heads, length, "
        "head dim), with a length of source_lengths; null: source_kv is in that other order",
    )
    source_length = field("int", "the greatest length")
    source_lengths = field("const int64_t*", "(source rows) of which so many are symbols; or null")
    source_index = field(
        "const int64_t*", "(rows) which of them each row reads; null: its row of the cache / beams"
    )


@structure
class SourceKvCall(ctypes.Structure):
    """Cross-attention keys and values of several layers, by one linear map.

    Its outputs are ``count`` vectors of ``heads`` parts each.
    """

    inputs = field("const float*", "(rows, stride, dim); stride 0: (symbols of all rows, dim)")
    rows = field("int")
    stride = field("int")
    begins = field(
        "const int64_t*",
        "(rows) the position of a row's first symbol; stride 0: its index among all symbols",
    )
    starts = field(
        "const int64_t*", "(rows + 1) where each row begins in the result, and the total"
    )
    count = field("int")
    heads = field("int")
    places = field(
        "const int64_t*",
        "(rows) the float at which a row begins in out: (count, heads, length, size of a part); "
        "null: out is in that other order",
    )
    out = field("float*", "(count, then by row: heads, length, size of a part) result")


@structure
class EncodeCall(ctypes.Structure):
    """Rows of an encoder, each of its own length."""

    tokens = field("const int64_t*", "(rows, stride)")
    rows = field("int")
    stride = field("int")
    order = field("const int64_t*", "(rows) the longest first")
    starts = field("const int64_t*", "(rows) where the symbols of a row begin")
    lengths = field("const int64_t*", "(rows) how many they are")
    positions = field("const float*", "(position_limit, dim) vectors of positions, or null")
    position_limit = field("int")
    places = field("const int64_t*", "(rows) where the symbols of a row begin in `out`")
    out = field("float*", "(symbols, dim) result")


Header(
    __file__,
    "linear.h",
    "Linear linear(const void* weight, Format held, const float* bias, int outputs, int inputs, "
    "Format format, int threads)",
)
Header(
    __file__, "stack.h", "Stack stack(int dim, int heads, int norm_first, Activation activation)"
)
Header(__file__, "encode.h")
Header(__file__, "probabilities.h")
