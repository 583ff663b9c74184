"""The assembler's language: what each directive does, and what it says when it refuses."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulated_kernel.assembler import AssemblerError, Assembly, Symbol, assemble

TEXT = 0xFFFFFFFF81000000
DATA = 0xFFFFFFFF82000000
BASES = {".text": TEXT, ".data": DATA}
FENTRY = "FUNC_NOTRACE __fentry__\nret\nENDFUNC __fentry__\n"


def build(text: str, **sources: str) -> Assembly:
    return assemble(
        {"test.S": text, **{name.replace("_", "."): s for name, s in sources.items()}}, BASES
    )


def code(text: str) -> bytes:
    return build(text).segments[".text"][1]


def data(text: str) -> bytes:
    return build(f".data\n{text}").segments[".data"][1]


def error(text: str, **sources: str) -> str:
    with pytest.raises(AssemblerError) as caught:
        build(text, **sources)
    return str(caught.value)


def symbol(assembly: Assembly, name: str) -> Symbol:
    (found,) = [symbol for symbol in assembly.symbols if symbol.name == name]
    return found


# --- functions and objects ----------------------------------------------------------------------


def test_func_calls_fentry_and_records_the_call_site() -> None:
    assembly = build(FENTRY + "FUNC vfs_read\nret\nENDFUNC vfs_read")
    address = TEXT + 16
    assert symbol(assembly, "vfs_read") == ("vfs_read", address, 6, ".text", "T")
    assert assembly.mcount == [address]
    distance = TEXT - (address + 5)
    call = b"\xe8" + distance.to_bytes(4, "little", signed=True)
    assert assembly.segments[".text"][1][16:] == call + b"\xc3"


def test_functions_are_aligned_with_int3_between_them() -> None:
    text = code("FUNC_NOTRACE a\nret\nENDFUNC a\nFUNC_NOTRACE b\nnop\nENDFUNC b")
    assert text == b"\xc3" + b"\xcc" * 15 + b"\x90"


def test_func_endbr_has_its_call_site_behind_endbr64() -> None:
    assembly = build(FENTRY + "FUNC_ENDBR a\nENDFUNC a")
    assert assembly.mcount == [TEXT + 20]
    assert assembly.segments[".text"][1][16:21] == bytes.fromhex("f30f1efae8")
    assert symbol(assembly, "a").size == 9


def test_func_notrace_has_no_call_site() -> None:
    assembly = build("FUNC_NOTRACE a\nnop\nENDFUNC a")
    assert assembly.mcount == []
    assert assembly.segments[".text"][1] == b"\x90"


def test_static_functions_of_one_name_live_in_several_files() -> None:
    one = "FUNC_STATIC helper\nENDFUNC helper\nFUNC_NOTRACE a\ncall helper\nENDFUNC a"
    two = "FUNC_NOTRACE b\ncall helper\nENDFUNC b\nFUNC_STATIC helper\nENDFUNC helper"
    assembly = assemble({"f.S": FENTRY, "1.S": one, "2.S": two}, BASES)
    helpers = [symbol for symbol in assembly.symbols if symbol.name == "helper"]
    assert [(helper.address - TEXT, helper.kind) for helper in helpers] == [(16, "t"), (64, "t")]
    text = assembly.segments[".text"][1]
    for caller, target in ((32, 16), (48, 64)):
        distance = int.from_bytes(text[caller + 1 : caller + 5], "little", signed=True)
        assert caller + 5 + distance == target
    assert "helper" not in assembly.labels
    assert assembly.mcount == [TEXT + 16, TEXT + 64]


def test_a_static_function_hides_the_global_one_only_in_its_file() -> None:
    own = "FUNC_NOTRACE_STATIC f\nret\nENDFUNC f\nFUNC_NOTRACE a\njmp f\nENDFUNC a"
    other = "FUNC_NOTRACE f\nret\nENDFUNC f\nFUNC_NOTRACE b\njmp f\nENDFUNC b"
    text = assemble({"1.S": own, "2.S": other}, BASES).segments[".text"][1]
    assert text[16:18] == text[48:50] == b"\xeb\xee"


def test_a_static_name_may_be_a_mnemonic_or_a_part_of_another_name() -> None:
    text = "FUNC_NOTRACE_STATIC add\nadd eax, 1\njmp add_more\nadd_more: ret\nENDFUNC add"
    assert code(text) == bytes.fromhex("83c001 eb00 c3")


def test_endbr_static_combines_both() -> None:
    assembly = build(FENTRY + "FUNC_ENDBR_STATIC a\nENDFUNC a")
    assert assembly.mcount == [TEXT + 20]
    assert symbol(assembly, "a").kind == "t"


def test_object_is_a_data_symbol_with_a_size() -> None:
    assembly = build(".data\n.byte 1\nOBJECT jiffies\n.quad 7\n.long 1\nENDOBJECT jiffies")
    assert symbol(assembly, "jiffies") == ("jiffies", DATA + 1, 12, ".data", "D")
    assert assembly.labels["jiffies"] == DATA + 1


def test_static_objects_are_private_and_lower_case() -> None:
    source = ".data\nOBJECT_STATIC lock\n.quad lock\nENDOBJECT lock"
    assembly = assemble({"1.S": source, "2.S": source}, BASES)
    assert [symbol.kind for symbol in assembly.symbols] == ["d", "d"]
    content = assembly.segments[".data"][1]
    assert content == (DATA).to_bytes(8, "little") + (DATA + 8).to_bytes(8, "little")


def test_a_plain_label_is_a_symbol_without_size() -> None:
    assembly = build("FUNC_NOTRACE f\nnop\nftrace_call: ret\nENDFUNC f\n.data\nhere: .byte 0")
    assert symbol(assembly, "ftrace_call") == ("ftrace_call", TEXT + 1, 0, ".text", "t")
    assert symbol(assembly, "here") == ("here", DATA, 0, ".data", "d")
    assert assembly.labels == {"f": TEXT, "ftrace_call": TEXT + 1, "here": DATA}


def test_symbols_come_in_address_order_with_the_kind_of_their_section() -> None:
    bases = {".text": TEXT, ".text.init": TEXT - 0x1000, ".rodata": DATA}
    source = (
        "FUNC_NOTRACE f\nret\nENDFUNC f\n.section .text.init\nFUNC_NOTRACE g\nret\nENDFUNC g\n"
        ".section .rodata\nOBJECT table\n.byte 0\nENDOBJECT table"
    )
    symbols = assemble({"a.S": source}, bases).symbols
    assert [(symbol.name, symbol.kind) for symbol in symbols] == [
        ("g", "T"),
        ("f", "T"),
        ("table", "D"),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("FUNC a\nFUNC b\nENDFUNC b", "test.S:2: FUNC a is still open: FUNC b"),
        ("FUNC_NOTRACE a\nret", "test.S:1: FUNC a is never closed: FUNC_NOTRACE a"),
        ("FUNC_NOTRACE a\nENDFUNC b\nENDFUNC a", "test.S:2: the open FUNC is a: ENDFUNC b"),
        ("ENDFUNC a", "test.S:1: no FUNC is open here: ENDFUNC a"),
        ("FUNC_NOTRACE a\nENDOBJECT a\nENDFUNC a", "test.S:2: no OBJECT is open here"),
        ("FUNC_NOTRACE a\n.data\nENDFUNC a", "test.S:3: a began in section .text"),
        (".data\nFUNC_NOTRACE a\nENDFUNC a", "test.S:2: a function in section .data"),
        ("FUNC_NOTRACE\nENDFUNC", "test.S:1: bad name ''"),
        ("FUNC_NOTRACE a b\n", "test.S:1: bad name 'a b'"),
        ("FUNC_NOTRACE rdi\n", "test.S:1: rdi is the name of a register or operator"),
        ("FUNC_NOTRACE Not\n", "test.S:1: Not is the name of a register or operator"),
        ("FUNC_NOTRACE a..b\n", "test.S:1: bad name 'a..b'"),
        ("a: nop\na: nop", "test.S:2: a is already defined at test.S:1: a: nop"),
    ],
)
def test_bad_symbols_are_refused(text: str, what: str) -> None:
    assert what in error(text)


# --- labels ---------------------------------------------------------------------------------------


def test_local_labels_are_private_to_their_function() -> None:
    function = "FUNC_NOTRACE {0}\njmp .Lend\nnop\n.Lend: ret\nENDFUNC {0}\n"
    assembly = build(function.format("a") + function.format("b"))
    text = assembly.segments[".text"][1]
    assert text[:4] == text[16:] == bytes.fromhex("eb0190c3")
    assert [symbol.name for symbol in assembly.symbols] == ["a", "b"]
    assert set(assembly.labels) == {"a", "b"}


def test_local_labels_outside_functions_are_private_to_their_file() -> None:
    source = "jmp .Lx\n.Lx: nop"
    assert assemble({"1.S": source, "2.S": source}, BASES).segments[".text"][1] == bytes.fromhex(
        "eb0090 eb0090"
    )


def test_numeric_labels_mean_the_nearest_in_that_direction() -> None:
    assert code("1: nop\njmp 1b\njmp 1f\n1: jmp 1b\n.data\n.byte 0") == bytes.fromhex(
        "90 ebfd eb00 ebfe"
    )


def test_several_labels_may_stand_before_a_statement() -> None:
    assembly = build("a: b: 1: nop")
    assert assembly.labels == {"a": TEXT, "b": TEXT}


def test_dot_is_the_address_of_the_statement() -> None:
    assert code("nop\njmp .\njmp . + 2") == bytes.fromhex("90 ebfe eb00")
    assert data(".long 1, . - 4\n.byte 5".replace(". - 4", f". - {DATA:#x}"))[4:] == bytes(
        [4, 0, 0, 0, 5]
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("jmp nowhere", "test.S:1: undefined symbol nowhere: jmp nowhere"),
        ("FUNC_NOTRACE a\n  jmp .Lx\nENDFUNC a\n.Lx:", "test.S:2: undefined symbol .Lx: jmp .Lx"),
        ("jmp 1b", "test.S:1: no label 1 before this line"),
        ("jmp 2f", "test.S:1: undefined symbol 2f"),
        ("call .data + nothing", "undefined symbol"),
        ("cs: nop", "cs is the name of a register or operator"),
    ],
)
def test_bad_labels_are_refused(text: str, what: str) -> None:
    assert what in error(text)


def test_all_errors_are_told_at_once() -> None:
    lines = error("jmp a\ncall b\nmov rax, [rip + a]").splitlines()
    assert [line.split(": ", 2)[:2] for line in lines] == [
        ["test.S:1", "undefined symbol a"],
        ["test.S:2", "undefined symbol b"],
        ["test.S:3", "undefined symbol a"],
    ]


def test_a_flood_of_errors_is_cut_short() -> None:
    lines = error("\n".join(f"jmp x{n}" for n in range(200))).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "and 150 more"


# --- jumps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "length"), [(127, 2), (128, 5)])
def test_a_forward_jump_is_short_while_it_reaches(gap: int, length: int) -> None:
    text = code(f"jmp 1f\n.zero {gap}\n1:")
    assert len(text) == length + gap


@pytest.mark.parametrize(("gap", "length"), [(126, 2), (127, 6)])
def test_a_backward_branch_is_short_while_it_reaches(gap: int, length: int) -> None:
    text = code(f"1: .zero {gap}\njne 1b")
    assert len(text) == length + gap


def test_growing_one_jump_can_push_another_out_of_reach() -> None:
    text = code("jmp 1f\njmp 2f\n.zero 125\n1: .zero 10\n2:")
    assert (text[0], text[5]) == (0xE9, 0xE9)


def test_alignment_follows_the_jumps_before_it() -> None:
    assert code("jmp 1f\n.balign 16\n.zero 128\n1:")[:16] == bytes.fromhex("e98b000000" + "cc" * 11)


def test_loop_and_jrcxz_have_no_long_form() -> None:
    assert code("1: loop 1b\njrcxz 1b") == bytes.fromhex("e2fe e3fc")
    assert "test.S:1: 0x80 is out of reach: jrcxz 1f" in error("jrcxz 1f\n.zero 128\n1:")


def test_a_call_out_of_reach_is_refused() -> None:
    with pytest.raises(AssemblerError, match=r"a\.S:1: .* is out of reach: call far_away"):
        assemble({"a.S": "call far_away"}, BASES, externs={"far_away": 0xFFFF888000000000})


def test_externs_are_symbols_of_another_image() -> None:
    assembly = assemble({"a.S": "call printk"}, BASES, externs={"printk": TEXT + 0x1005})
    assert assembly.segments[".text"][1] == bytes.fromhex("e800100000")
    assert assembly.labels == {}


def test_a_label_that_exists_elsewhere_is_refused() -> None:
    with pytest.raises(AssemblerError, match=r"a\.S:2: printk exists elsewhere already"):
        assemble({"a.S": "nop\nprintk: ret"}, BASES, externs={"printk": TEXT})


# --- constants and expressions --------------------------------------------------------------------


def test_constants_come_from_the_caller_and_from_the_source() -> None:
    assembly = assemble(
        {"a.S": "HALF = WHOLE / 2\nmov eax, [rdi + HALF*2 - 1]"}, BASES, {"WHOLE": 16}
    )
    assert assembly.segments[".text"][1] == bytes.fromhex("8b470f")
    assert assembly.constants == {"HALF": 8}


def test_constants_may_be_used_before_their_line_in_instructions() -> None:
    assert code("mov eax, LATER\nLATER = 3") == bytes.fromhex("b803000000")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("100 / 7 * 2", 28),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % 4", 3),
        ("1 << 4", 16),
        ("(1 << 4) + 1", 17),
        ("0x10 | 0x01 | 2", 0x13),
        ("0xff & ~0x0f", 0xF0),
        ("5 ^ 1", 4),
        ("- - 3", 3),
        ("-(1 + 1)", -2),
        ("0x80 >> 3", 16),
    ],
)
def test_expressions(expression: str, value: int) -> None:
    assert data(f".quad {expression}") == (value % (1 << 64)).to_bytes(8, "little")
    assert build(f"X = {expression}").constants == {"X": value}


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("1 << 2 + 1", "needs parentheses"),
        ("1 | 2 & 3", "needs parentheses"),
        ("1 + 2 | 4", "needs parentheses"),
        ("1 << 2 << 3", "needs parentheses"),
        ("010", "never octal"),
        ("08", "never octal"),
        ("1 +", "bad expression"),
        ("(1", "missing )"),
        ("1)", "unexpected ')'"),
        ("1 2", "unexpected 2"),
        ("'a'", "bad expression"),
        ("1_000", "bad expression"),
        ("0b11", "bad expression"),
        ("1.5", "bad expression"),
        ("@", "bad expression"),
        ("1 / 0", "division by zero"),
        ("1 % (1 - 1)", "division by zero"),
        ("1 << 65", "shift by 65"),
        ("1 << -1", "shift by -1"),
        ("(" * 40 + "1" + ")" * 40, "nested too deeply"),
        ("9" * 30, "too many digits"),
        ("UNKNOWN", "UNKNOWN: not a constant defined before this line"),
    ],
)
def test_bad_expressions_are_refused(expression: str, what: str) -> None:
    assert what in error(f"X = {expression}")


def test_a_constant_has_one_value() -> None:
    assert build("X = 1\nX = 2 - 1").constants == {"X": 1}
    assert "b.S:1: X is already 0x1, defined at a.S:1: X = 2" in error(
        "nop", a_S="X = 1", b_S="X = 2"
    )
    with pytest.raises(AssemblerError, match="defined by the caller"):
        assemble({"a.S": "X = 2"}, BASES, {"X": 1})


def test_a_name_is_a_constant_or_a_label_but_not_both() -> None:
    assert "test.S:2: X is a constant already" in error("X = 1\nX: nop")
    assert "X is a constant already" in error("X = 1\nFUNC_NOTRACE_STATIC X\nENDFUNC X")


def test_constants_cannot_have_the_name_of_a_register() -> None:
    assert "cs is the name of a register" in error("cs = 1")
    with pytest.raises(AssemblerError, match="constant RIP has the name of a register"):
        assemble({"a.S": "nop"}, BASES, {"RIP": 128})


# --- data -----------------------------------------------------------------------------------------


def test_values_of_every_width() -> None:
    assert data(".byte 1, -1, 255\n.word 0x1234\n.long -2\n.quad 1 << 63") == bytes.fromhex(
        "01ffff 3412 feffffff 0000000000000080"
    )


def test_values_may_be_addresses_and_differences() -> None:
    content = data("a: .quad a + 8, b\n.long b - a\nb:\n.text\n.data\n.quad a - b")
    assert content == (DATA + 8).to_bytes(8, "little") + (DATA + 20).to_bytes(8, "little") + (
        20
    ).to_bytes(4, "little") + (-20 % (1 << 64)).to_bytes(8, "little")


def test_strings_and_their_escapes() -> None:
    assert data(r'.ascii "a#b;c", "\n\t\0\\\"\101"') == b'a#b;c\n\t\0\\"A'
    assert data('.asciz "one", "two"  # "three"') == b"one\0two\0"


def test_zero_and_balign() -> None:
    assert data(".zero 3\n.balign 8\n.byte 1\n.balign 4, 0xee") == bytes(8) + b"\x01\xee\xee\xee"


def test_padding_inside_a_function_can_be_executed() -> None:
    text = code("FUNC_NOTRACE a\nret\n.balign 4\nret\nENDFUNC a\n.balign 8")
    assert text == bytes.fromhex("c3909090 c3cccccc")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (".byte 256", "0x100 does not fit in 8 bits"),
        (".byte -129", "-0x81 does not fit in 8 bits"),
        (".long a\na:", "does not fit in 32 bits"),
        (".quad 1 << 64", "does not fit in 64 bits"),
        (".byte", "a value is missing"),
        (".byte 1,", "a value is missing"),
        (".quad rax", "rax"),
        (".ascii nothing", "is not a string"),
        (".ascii", "a string is missing"),
        ('.ascii "open', "is not a string"),
        (r'.ascii "\x41"', r"unknown escape \x"),
        (r'.ascii "\777"', "more than a byte"),
        (".balign 3", "cannot align to 3"),
        (".balign 0", "cannot align to 0"),
        (".balign", "cannot align to 0"),
        (".balign 4, 256", "the fill is one byte"),
        (".balign 4, 0, 2", "the fill is one byte"),
        (".zero -1", "cannot make -1 bytes"),
        (".zero 1 << 40", "bytes of zeros"),
        (".zero a\na:", "a: not a constant"),
        ('.string "x"', "unknown directive .string"),
        ('.include "x"', "unknown directive .include"),
        ('.incbin "x"', "unknown directive .incbin"),
        (".err", "unknown directive .err"),
        (".if 1", "unknown directive .if"),
        (".rept 3", "unknown directive .rept"),
        (".globl x", "unknown directive .globl"),
        (".text 1", "unexpected '1'"),
        (".section", "bad section name ''"),
        ('.section .data, "aw"', "bad section name"),
    ],
)
def test_bad_directives_are_refused(text: str, what: str) -> None:
    assert what in error(text)


# --- sections and files ---------------------------------------------------------------------------


def test_sections_collect_what_several_files_put_there() -> None:
    assembly = assemble(
        {"1.S": ".byte 1\n.data\n.byte 2", "2.S": ".byte 3\n.section .data\n.byte 4"}, BASES
    )
    assert assembly.segments == {".text": (TEXT, b"\x01\x03"), ".data": (DATA, b"\x02\x04")}


def test_a_section_needs_an_address() -> None:
    assert "test.S:2: no address for section .init: nop" in error(".section .init\nnop")


def test_sections_must_not_overlap() -> None:
    with pytest.raises(AssemblerError, match=r"section \.text ends at 0x1002, inside .* \.data"):
        assemble({"a.S": "nop\nnop\n.data\n.byte 0"}, {".text": 0x1000, ".data": 0x1001})


def test_includes_are_read_first_and_seen_by_every_file() -> None:
    sources = {
        "a.S": "TWO_NOPS\nmov eax, SIZE",
        "z.inc": "SIZE = 8\n.macro TWO_NOPS\nnop\nnop\n.endm",
    }
    assert assemble(sources, BASES).segments[".text"][1] == bytes.fromhex("9090 b808000000")


def test_an_include_holds_no_code() -> None:
    assert "x.inc:1: a .inc file holds constants and macros only: nop" in error("nop", x_inc="nop")


def test_a_macro_of_a_source_stays_in_it() -> None:
    assert "b.S:1: neither an instruction nor a macro: TWICE" in error(
        "nop", a_S=".macro TWICE\nnop\n.endm\nTWICE", b_S="TWICE"
    )


def test_comments_and_blank_lines() -> None:
    assert code("  # nothing; 'here' \u00fc\n\n\tnop\t# \"open\n  ret#") == b"\x90\xc3"


def test_only_comments_hold_other_characters() -> None:
    assert "only comments may hold characters beyond ASCII" in error('.ascii "\u00fc"')
    assert "test.S:1" in error("nop; nop")


# --- macros ---------------------------------------------------------------------------------------


def test_macro_parameters_are_replaced() -> None:
    macro = ".macro LOAD reg, offset_of\nmov e\\reg, [r\\reg + \\offset_of]\n.endm\n"
    assert code(macro + "LOAD ax, 4") == bytes.fromhex("8b4004")


def test_an_argument_may_hold_commas_in_brackets() -> None:
    macro = ".macro M a, b\nmov \\a, \\b\n.endm\n"
    assert code(macro + "M rax, [rbx + (1 + 1)]") == bytes.fromhex("488b4302")


def test_a_parameter_can_end_inside_a_word() -> None:
    macro = ".macro NOPS name\n\\name\\()_nop: nop\n.endm\n"
    assert set(build(macro + "NOPS my").labels) == {"my_nop"}


def test_at_counts_expansions() -> None:
    macro = ".macro L\nlabel_\\@: nop\n.endm\n"
    assert len(build(macro + "L\nL").labels) == 2


def test_parameters_are_replaced_in_strings_but_escapes_stay() -> None:
    macro = '.macro S name\n.asciz "\\name\\n"\n.endm\n'
    assert data(macro + "S comm") == b"comm\n\0"


def test_macros_may_use_macros_and_labels() -> None:
    inner = ".macro SKIP\njmp 1f\nnop\n1:\n.endm\n"
    outer = ".macro BOTH\nSKIP\nSKIP\n.endm\n"
    assert code(inner + outer + "BOTH") == bytes.fromhex("eb0190") * 2


def test_errors_in_macros_name_the_call_and_the_macro_line() -> None:
    text = ".macro BAD reg\nnop\nfrobnicate \\reg\n.endm\nBAD rax"
    assert error(text).startswith("test.S:5: unknown instruction frobnicate")
    assert error(text).endswith(": frobnicate rax (macro line test.S:3)")


def test_one_bad_macro_call_leaves_the_others_alone() -> None:
    text = ".macro A\nbad 1 2\n.endm\n.macro B\nA\n.endm\nB\nB\nnop"
    assert [line.split(":")[1] for line in error(text).splitlines()] == ["7", "8"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (".macro A b\n.endm\nA", "macro A takes b"),
        (".macro A b\n.endm\nA 1, 2", "macro A takes b"),
        (".macro A b\n.endm\nA 1,", "macro A takes b"),
        (".macro A\n.endm\nA 1", "macro A takes nothing"),
        (".macro A\nA\n.endm\nA", "macro A calls itself"),
        (".macro A\n.endm\n.macro A\nnop\n.endm", "macro A is already defined in test.S"),
        (".macro A b=1\n.endm", "no defaults"),
        (".macro\n.endm", "plain names only"),
        (".macro A b b\n.endm", "a parameter is named twice"),
        (".macro FUNC\n.endm", "FUNC is a directive"),
        (".macro A\n.macro B\n.endm\n", "a macro cannot define a macro"),
        (".macro A\nnop", ".macro A has no .endm"),
        (".endm", ".endm without .macro"),
        (".macro A\nmov eax, \\x\n.endm\nA", "the macro has no parameter x"),
    ],
)
def test_bad_macros_are_refused(text: str, what: str) -> None:
    assert what in error(text)


def test_a_refused_macro_is_one_error() -> None:
    assert len(error(".macro A b=1\nnop\nmov \\b, 1\n.endm").splitlines()) == 1


def test_macros_that_multiply_are_stopped() -> None:
    macros = [".macro M0\nnop\n.endm"]
    macros += [f".macro M{n}\nM{n - 1}\nM{n - 1}\n.endm" for n in range(1, 25)]
    assert "too many macro expansions" in error("\n".join([*macros, "M24"]))


def test_macros_nested_without_end_are_stopped() -> None:
    macros = [".macro M0\nnop\n.endm"]
    macros += [f".macro M{n}\nM{n - 1}\n.endm" for n in range(1, 2000)]
    assert "too many macro expansions" in error("\n".join([*macros, "M1999"]))


# --- robustness -----------------------------------------------------------------------------------


def test_threads_may_assemble_at_the_same_time() -> None:
    results: list[bytes] = []

    def work(number: int) -> None:
        lines = [f"mov rax, [rdi + {number * 1000 + n}]" for n in range(100)]
        if code("\n".join(lines)).startswith(b"\x48\x8b\x87"):
            results.append(b"")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4


VALID = [
    "mov rax, qword ptr [rdi + 8*rcx - 4]",
    "lock cmpxchg qword ptr gs:[0x10], rdx",
    "rep movsq",
    "call qword ptr [rax + SIZE]",
    "movabs r11, offset label + 4",
    "jmp [rdi*8 + label]",
    "1: jne 1b",
    "cmp byte ptr [rip + label], -1",
    ".quad label - ., (SIZE | 1) << 2",
    '.asciz "text\\n"',
    ".balign 16, 0xcc",
    "FUNC_NOTRACE name",
    "ENDFUNC name",
    "MACRO rax, 8",
    "SIZE2 = SIZE * (3 - 1)",
    "push 0xffff",
    "xchg ax, r8w",
    "movzx eax, ah",
    "nop",
    ".section .data",
]
SCRAPS = [
    *" \t,:;()[]{}+-*/%&|^~<>=#$@!?'\"\\.0189xab_",
    "rip",
    "rsp",
    "ah",
    "r8b",
    "lock ",
    "qword",
    " ptr ",
    "offset ",
    "gs:",
    ".L",
    "1f",
    "\\@",
    "0x",
    "ffffffffffffffff",
    "\x00",
    "\n",
    "\u00e9",
    "short ",
]


@st.composite
def mutated_lines(draw: st.DrawFn) -> str:
    line = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(line)))
        end = min(len(line), start + draw(st.integers(0, 3)))
        line = line[:start] + draw(st.sampled_from(["", *SCRAPS])) + line[end:]
    return line


@pytest.mark.timeout(120, method="thread")
@settings(max_examples=1500, deadline=None)
@given(mutated_lines())
def test_mutated_lines_give_a_result_or_an_error(line: str) -> None:
    prelude = ".macro MACRO r, n\nadd \\r, \\n\n.endm\nlabel: nop\nSIZE = 8\n"
    source = f"{prelude}{line}\n.text\n"
    try:
        text = code(source)
    except AssemblerError:
        assert error(source).startswith("test.S:")
    else:
        assert text[:1] == b"\x90"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("()+-*/%&|^~<>0123xXaf._ ,SIZE"), max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        value = build(f"SIZE = 8\nX = {text}").constants["X"]
    except AssemblerError:
        return
    assert isinstance(value, int)
