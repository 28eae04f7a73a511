"""What is read from the text of a compiled program, against texts whose figures are counted by hand."""

import jax
import jax.numpy as jnp
import pytest

from experiments.mesh.compiled_program import Collective, Program, array_bytes, main_memory_bytes

LOOP = """HloModule jit_f, entry_computation_layout={()->()}, num_partitions=4

%region_1.2 (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %x = bf16[4,6]{1,0} parameter(0)
  %ag = bf16[8,6]{1,0} all-gather(%x), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}
}

%cond (p: (s32[], f32[8])) -> pred[] {
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %w = (s32[], f32[8]) while(%t), condition=%cond, body=%region_1.2, backend_config={"known_trip_count":{"n":"12"}}
  %ar = (f32[8]{0}, f32[2,3]{1,0}) all-reduce(%w, %z), replica_groups={}, to_apply=%add
  %s = (f32[4], f32[16]) all-gather-start(%w), replica_groups={{0,1,2,3}}, dimensions={0}
  %d = f32[16] all-gather-done(%s)
  %p = f32[10] collective-permute(%w), source_target_pairs={{0,1},{1,0}}
  %rs = f32[5] reduce-scatter(%w), replica_groups={{0,1,2,3}}, to_apply=%add
}
"""


def test_loops_count_as_often_as_they_run() -> None:
    found = {one.kind + str(one.times): one for one in Program.read(LOOP).collectives()}
    assert found["all-gather12"] == Collective("all-gather", "bf16", (8, 6), 2, 12, 96)
    assert found["all-reduce1"] == Collective("all-reduce", "f32", (14,), 4, 1, 56)
    assert found["all-gather1"].shape == (16,) and found["all-gather1"].group == 4


def test_what_a_device_sends() -> None:
    """In a ring of g each sends (g - 1) / g of what is gathered, twice that of what is summed."""
    found = {one.kind + str(one.times): one.sent_bytes for one in Program.read(LOOP).collectives()}
    assert found["all-gather12"] == 12 * 96 / 2
    assert found["all-reduce1"] == 2 * 56 * 3 / 4
    assert found["all-gather1"] == 64 * 3 / 4
    assert found["collective-permute1"] == 40
    assert found["reduce-scatter1"] == 3 * 20


def test_bytes_of_types() -> None:
    assert array_bytes("(f32[8]{0}, bf16[2,3], pred[], s4[3])") == 32 + 12 + 1 + 2
    assert main_memory_bytes("(f32[8]{0:T(128)S(1)}, f32[2]{0:T(128)})") == 8


TRAFFIC = """HloModule jit_f

%fused (p0: f32[12,100], p1: s32[], p2: f32[100]) -> f32[100] {
  %p0 = f32[12,100]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[100]{0} parameter(2)
  %slice = f32[1,100]{1,0} dynamic-slice(%p0, %p1, %p1), dynamic_slice_sizes={1,100}
  %flat = f32[100]{0} bitcast(%slice)
  ROOT %sum = f32[100]{0} add(%flat, %p2)
}

%stored (p0.1: f32[12,100], p1.1: f32[1,100]) -> f32[12,100] {
  %p0.1 = f32[12,100]{1,0} parameter(0)
  %p1.1 = f32[1,100]{1,0} parameter(1)
  %zero = s32[] constant(0)
  ROOT %update = f32[12,100]{1,0} dynamic-update-slice(%p0.1, %p1.1, %zero, %zero)
}

%body (p: (s32[], f32[12,100], f32[100])) -> (s32[], f32[12,100], f32[100]) {
  %p = (s32[], f32[12,100], f32[100]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %all = f32[12,100]{1,0} get-tuple-element(%p), index=1
  %x = f32[100]{0} get-tuple-element(%p), index=2
  %f = f32[100]{0} fusion(%all, %i, %x), kind=kLoop, calls=%fused
  %r = f32[1,100]{1,0} bitcast(%f)
  %u = f32[12,100]{1,0} fusion(%all, %r), kind=kLoop, calls=%stored
  ROOT %t = (s32[], f32[12,100], f32[100]) tuple(%i, %u, %f)
}

%cond (p: (s32[], f32[12,100], f32[100])) -> pred[] {
  %p.2 = (s32[], f32[12,100], f32[100]) parameter(0)
  ROOT %b = pred[] constant(true)
}

ENTRY %main (a: f32[12,100]) -> f32[100] {
  %a = f32[12,100]{1,0} parameter(0)
  %w = (s32[], f32[12,100], f32[100]) while(%a), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"12"}}
  %fast = f32[100]{0:T(128)S(1)} negate(%v)
  %v = f32[100]{0} get-tuple-element(%w), index=2
  %c = (f32[100]{0:S(1)}, f32[100]{0}, u32[]{:S(2)}) copy-start(%v)
  %cd = f32[100]{0:S(1)} copy-done(%c)
  ROOT %n = f32[100]{0} exponential(%v)
}
"""  # noqa: E501


def test_memory_traffic() -> None:
    """Of a stack of layers a loop reads one layer's slice a trip, and writes one."""
    layer = 400
    trip = (layer + 4 + layer + layer) + (layer + layer)  # slice, index, x, result; what is stored, where
    assert Program.read(TRAFFIC).memory_traffic() == 12 * trip + layer + layer + 2 * layer


TPU = """HloModule jit_step, num_partitions=8

%start (p: bf16[16,128]) -> (bf16[16,128], bf16[128,128], u32[]) {
  %p = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(0)
  %ag.1 = bf16[128,128]{1,0} all-gather(%p), channel_id=3, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, dimensions={0}
  ROOT %cc = (bf16[16,128]{1,0}, bf16[128,128]{1,0}, u32[]{:S(2)}) custom-call(%ag.1), custom_call_target="AsyncCollectiveStart"
}

%middle (q: bf16[128,128], r: f32[10], s: f32[10]) -> (f32[10], bf16[128,128]) {
  %q = bf16[128,128]{1,0} parameter(0)
  %r = f32[10]{0} parameter(1)
  %ag.2 = bf16[128,128]{1,0} all-gather(%q), channel_id=3, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, dimensions={0}
  %n = f32[10]{0} negate(%r)
  ROOT %t = (f32[10]{0}, bf16[128,128]{1,0}) tuple(%n, %q)
}

ENTRY %main (a: bf16[16,128], b: f32[10]) -> f32[10] {
  %a = bf16[16,128]{1,0} parameter(0)
  %b = f32[10]{0} parameter(1)
  %one = (bf16[16,128]{1,0}, bf16[128,128]{1,0}, u32[]{:S(2)}) fusion(%a), kind=kCustom, calls=%start
  %buffer = bf16[128,128]{1,0} get-tuple-element(%one), index=1
  %two = (f32[10]{0}, bf16[128,128]{1,0}) fusion(%buffer, %b), kind=kOutput, calls=%middle
  %ars = (f32[4], f32[6]) all-reduce-start(%b), channel_id=4, replica_groups={}, to_apply=%add
  %ags = ((f32[2], f32[3]), (f32[16], f32[24]), u32[], u32[]) all-gather-start(%b), channel_id=5, replica_groups=[1,8]<=[8]
  %w = f32[12,100]{1,0} parameter(2)
  %sl = ((f32[12,100]{1,0}), f32[1,100]{1,0:S(1)}, u32[]{:S(2)}) slice-start(%w), slice={[0:1], [0:100]}
  ROOT %n = f32[10]{0} get-tuple-element(%two), index=0
}
"""  # noqa: E501


def test_what_a_tpu_compiler_writes() -> None:
    """A collective cut into fusions is one; groups along a mesh's axis; several results of one exchange."""
    collectives = Program.read(TPU).collectives()
    found = {one.kind + str(len(one.shape)): one for one in collectives}
    assert len(collectives) == len(found) == 3
    assert found["all-gather2"] == Collective("all-gather", "bf16", (128, 128), 4, 1, 128 * 128 * 2)
    assert found["all-reduce1"] == Collective("all-reduce", "f32", (10,), 8, 1, 40)
    assert found["all-gather1"] == Collective("all-gather", "f32", (40,), 8, 1, 160)


def test_what_a_tpu_moves() -> None:
    """What a fusion only hands on is not moved; of what is fetched in slices only the slice."""
    started = 16 * 128 * 2 + (16 * 128 + 128 * 128) * 2  # its operand; its results
    assert Program.read(TPU).memory_traffic() == started + 80 + 40 + 4 * (2 + 3 + 16 + 24) + 8 + 400


@pytest.mark.parametrize("length", [1, 7])
def test_of_a_program_of_xla(length: int) -> None:
    """The traffic grows with the trips of the loop; the same text format as this version of XLA writes."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=length)[0]

    n = 64
    compiled = jax.jit(f).lower(jnp.zeros((n, n)), jnp.zeros((n, n))).compile()
    traffic = Program.read(compiled.as_text()).memory_traffic()
    product = 3 * 4 * n * n
    assert length * product <= traffic <= (length + 2) * 2 * product
