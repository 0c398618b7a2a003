"""One declaration in Python for what crosses to C++: sizes, offsets and signatures are checked."""

import ctypes
import random

import pytest

from specdec_plugin.engine import native
from specdec_plugin.engine.native import interface

from ..support.own_kernels import compiled, loaded

HEADER = """
#pragma once
#include "interface.h"
namespace native {
class Counter {
 public:
  explicit Counter(int64_t start) : count(start) {}
  int64_t count;
};
extern "C" double counter_add(Counter* counter, const Given* given) {
  for (int i = 0; i < given->inner.size; ++i) counter->count += given->inner.values[i];
  if (given->kind == Kind::twice) counter->count *= TWO;
  *given->out = float(counter->count);
  return counter->count * HALF;
}
}  // namespace native
"""


def declare_structures():
    @interface.structure
    class Inner(ctypes.Structure):
        """Held by the other."""

        size = interface.field("int")
        values = interface.field("const int64_t*", "(size)")

    interface.enumeration("Kind", {"once": 0, "twice": 3})
    interface.constants(TWO=2, HALF=0.5, MUCH=1 << 40)

    @interface.structure
    class Given(ctypes.Structure):
        """What is added."""

        flag = interface.field("int32_t")
        inner = interface.field("Inner")
        kind = interface.field("Kind")
        out = interface.field("float*")

    return Inner, Given


def test_a_kernel_of_ones_own(registry, tmp_path):
    (tmp_path / "counter.h").write_text(HEADER)
    inner, given = declare_structures()
    interface.Header(str(tmp_path / "module.py"), "counter.h", "Counter counter(int64_t start)")
    library = loaded(tmp_path)
    values, out = (ctypes.c_int64 * 3)(1, 1 << 40, 5), ctypes.c_float()
    counter = library.counter_new(4)
    call = given(inner=inner(3, ctypes.addressof(values)), kind=3, out=ctypes.addressof(out))
    total = 2 * (10 + (1 << 40))
    assert library.counter_add(counter, ctypes.byref(call)) == total / 2
    assert out.value == ctypes.c_float(total).value
    with pytest.raises(ctypes.ArgumentError):
        library.counter_add(counter, ctypes.byref(inner()))
    library.counter_free(counter)


@pytest.mark.parametrize(
    "definitions",
    [
        'extern "C" void first_run(Counter* counter, const float* in, int rows) {}\n'
        'extern "C" double second_run([[maybe_unused]] int threads) { return 0; }\n',
        'extern "C" {\n// In a block.\nvoid first_run(Counter* counter, const float* in,\n'
        "               int rows) {\n  if (rows) return;\n}\n\n"
        "double second_run(int threads) {\n  return 0;\n}\n}\n",
    ],
)
def test_functions_are_those_that_the_header_defines(registry, tmp_path, definitions):
    inner = "static int inner(int value) { return value; }\n"
    (tmp_path / "counter.h").write_text(inner + definitions)
    header = interface.Header(str(tmp_path / "module.py"), "counter.h")
    assert list(map(str, header.functions)) == [
        "void first_run(Counter* counter, const float* in, int rows)",
        "double second_run(int threads)",
    ]


def test_a_function_that_is_not_found_is_a_warning(registry, tmp_path):
    hidden = HEADER.replace("double counter_add", "auto counter_add").replace(
        "given) {", "given) -> double {"
    )
    (tmp_path / "counter.h").write_text(hidden)
    declare_structures()
    interface.Header(str(tmp_path / "module.py"), "counter.h")
    done = compiled(tmp_path, ["-Werror"])
    assert done.returncode != 0 and "missing-declarations" in done.stderr


def test_constructors_are_checked_by_the_compiler(registry, tmp_path):
    (tmp_path / "counter.h").write_text(HEADER)
    declare_structures()
    interface.Header(str(tmp_path / "module.py"), "counter.h", "Counter counter(int64_t* start)")
    done = compiled(tmp_path)
    assert done.returncode != 0 and "counter_new" in done.stderr


def test_another_layout_does_not_compile(registry, tmp_path):
    @interface.structure
    class Packed(ctypes.Structure):
        """Laid out as C++ does not."""

        _pack_ = 1
        size = interface.field("int")
        values = interface.field("int64_t*")

    (tmp_path / "packed.h").write_text('#include "interface.h"\n')
    interface.Header(str(tmp_path / "module.py"), "packed.h")
    done = compiled(tmp_path)
    assert done.returncode != 0 and "offsetof(Packed, values) == 4" in done.stderr


def test_the_text_does_not_depend_on_the_order_of_declarations(monkeypatch):
    wanted = interface.header_text(), interface.unit_text()
    for name in ("_headers", "_structures", "_constants"):
        entries = list(getattr(interface, name).items())
        random.Random(1).shuffle(entries)
        monkeypatch.setattr(interface, name, dict(entries))
    assert (interface.header_text(), interface.unit_text()) == wanted


def test_objects_of_the_kernels_live_as_long_as_their_owners(monkeypatch):
    class Library:
        freed = []

        def toy_new(self, *arguments):
            return sum(arguments)

        def toy_free(self, handle):
            self.freed.append(handle)

    class Owner:
        pass

    library, owner = Library(), Owner()
    monkeypatch.setattr(native, "library", lambda: library)
    assert native.own(owner, "toy", 3, 4) == 7
    assert library.freed == []
    del owner
    assert library.freed == [7]
