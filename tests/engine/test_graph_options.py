"""The options funcgraph-* and the marks of long calls, from the option's file to the text.

On the virtual clock each reading is a microsecond later, so texts are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.graph_kernel import graph_kernel
from support.tracefs import Tree, tracefs

DEFAULT = """\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  outer() {
 0)               |    middle() {
 0)   1.000 us    |      inner();
 0)   3.000 us    |    }
 0)   5.000 us    |  }
"""
TEXTS = {
    "funcgraph-overrun": DEFAULT.replace("}\n", "}\n (Overruns: 0)\n"),
    "funcgraph-cpu": """\
# tracer: function_graph
#
#  DURATION                  FUNCTION CALLS
#   |   |                     |   |   |   |
              |  outer() {
              |    middle() {
  1.000 us    |      inner();
  3.000 us    |    }
  5.000 us    |  }
""",
    "funcgraph-overhead": DEFAULT,  # no call is long enough
    "funcgraph-proc": """\
# tracer: function_graph
#
# CPU  TASK/PID         DURATION                  FUNCTION CALLS
# |     |    |           |   |                     |   |   |   |
 0)  script-1000   |               |  outer() {
 0)  script-1000   |               |    middle() {
 0)  script-1000   |   1.000 us    |      inner();
 0)  script-1000   |   3.000 us    |    }
 0)  script-1000   |   5.000 us    |  }
""",
    "funcgraph-duration": """\
# tracer: function_graph
#
# CPU               FUNCTION CALLS
# |                 |   |   |   |
 0) outer() {
 0)   middle() {
 0)     inner();
 0)   }
 0) }
""",
    "funcgraph-tail": DEFAULT.replace("  }\n 0)   5", "  } /* middle */\n 0)   5").replace(
        "|  }\n", "|  } /* outer */\n"
    ),
    "sleep-time": DEFAULT,
    "graph-time": DEFAULT,  # of the profiler
}


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        yield tree


@pytest.mark.parametrize("option", TEXTS)
def test_an_option_changes_the_text_of_what_is_recorded(tree: Tree, option: str) -> None:
    tree.echo("outer middle inner", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    tree.call("outer", 1)
    assert tree.read("trace") == DEFAULT
    value = tree.read(f"options/{option}")
    assert value in {"0\n", "1\n"}
    tree.echo(str(1 - int(value)), f"options/{option}")
    assert tree.read("trace") == TEXTS[option]
    tree.echo(value.strip(), f"options/{option}")
    assert tree.read("trace") == DEFAULT


def test_the_absolute_time_is_that_of_each_record(tree: Tree) -> None:
    tree.echo("outer middle inner", "set_ftrace_filter")
    tree.echo("1", "options/funcgraph-abstime")
    tree.echo("function_graph", "current_tracer")
    tree.call("outer", 1)
    lines = tree.read("trace").splitlines()
    assert lines[2:4] == [
        "#     TIME        CPU  DURATION                  FUNCTION CALLS",
        "#      |          |     |   |                     |   |   |   |",
    ]
    stamps = [round(float(line.split("|")[0]) * 1e6) for line in lines[4:]]
    # A leaf is one line of two records.
    assert [stamp - stamps[0] for stamp in stamps] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("calls", "mark"),
    [(4, " "), (5, "+"), (50, "!"), (500, "#"), (5_000, "*"), (50_000, "@"), (500_000, "$")],
)
def test_a_long_call_is_marked(tree: Tree, calls: int, mark: str) -> None:
    tree.echo("loop_add add_one", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    assert tree.call("loop_add", calls) == calls
    line = tree.read("trace").splitlines()[-1]
    assert line[4] == mark, line
    assert 2 * calls < float(line[5:].split()[0]) < 2.1 * calls + 2
    tree.echo("0", "options/funcgraph-overhead")
    assert tree.read("trace").splitlines()[-1][4] == " "
