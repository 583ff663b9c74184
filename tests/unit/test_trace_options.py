"""The table of options against what Linux 6.1 lists."""

from __future__ import annotations

from ftracefs.trace.options import (
    BLK_OPTIONS,
    FUNCTION_GRAPH_OPTIONS,
    FUNCTION_OPTIONS,
    NOP_OPTIONS,
    OPTION_NAMES,
    TRACE_DEFAULT_FLAGS,
    TraceIter,
    TracerOpt,
    trace_options_text,
)

COMMON = """\
print-parent nosym-offset nosym-addr noverbose noraw nohex nobin noblock trace_printk annotate
nouserstacktrace nosym-userobj noprintk-msg-only context-info nolatency-format record-cmd
norecord-tgid overwrite nodisable_on_free irq-info markers noevent-fork nopause-on-trace hash-ptr
function-trace nofunction-fork nodisplay-graph nostacktrace
"""
TRACERS = {
    NOP_OPTIONS: "notest_nop_accept notest_nop_refuse",
    FUNCTION_OPTIONS: "nofunc_stack_trace nofunc-no-repeats",
    FUNCTION_GRAPH_OPTIONS: "nofuncgraph-overrun funcgraph-cpu funcgraph-overhead nofuncgraph-proc"
    " funcgraph-duration nofuncgraph-abstime funcgraph-irqs nofuncgraph-tail sleep-time"
    " graph-time",
    BLK_OPTIONS: "noblk_classic noblk_cgroup noblk_cgname",
}


def _states(options: tuple[TracerOpt, ...]) -> list[tuple[str, bool]]:
    return [(option.name, option.default) for option in options]


def test_defaults_and_order_are_those_of_linux() -> None:
    for options, behind in TRACERS.items():
        text = trace_options_text(TRACE_DEFAULT_FLAGS, _states(options))
        assert text.split() == COMMON.split() + behind.split()


def test_every_common_option_has_a_name_of_its_own() -> None:
    assert set(OPTION_NAMES) == set(TraceIter)
    assert len(set(OPTION_NAMES.values())) == len(TraceIter)
