"""A small two-pass assembler. Keystone encodes single instructions that contain no symbols; everything else is here."""
import ast, hashlib, json, operator, re
from dataclasses import dataclass, field
from pathlib import Path
from keystone import KS_ARCH_X86, KS_MODE_64, Ks, KsError

HOLE = 0x7c0de7c0                       # stands for a not yet known address inside one encoding
FIXED = {'endbr64': 'f30f1efa', 'sysretq': '480f07', 'retq': 'c3', 'int 0x3': 'cc'}   # Keystone refuses these or encodes them differently
WORD = re.compile(r'(?<![\w.$])[A-Za-z_.$][\w.$]*')
NUMBER = re.compile(r'(?<![\w.$])(0[xX][0-9a-fA-F]+|\d+)(?![\w.$])')
SANE = re.compile(r'((lock|rep|repn?[ez]) )?(?!(lock|rep|repn?[ez]|data16)\b)[A-Za-z]\w*( [^%$\\"\';@{}=]*)?')
NUMERIC_REF = re.compile(r'(?<![\w.$])(\d+)([bf])(?![\w.$])')
PLAIN = re.compile(r'[A-Za-z_.$][\w.$]*')
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
NO_LABEL = set('rip riz ptr byte word dword qword xmmword offset gs fs ds es cs ss'.split())
NO_LABEL |= {p % r for r in 'ax bx cx dx si di bp sp'.split() for p in ('r%s', 'e%s', '%s')} | set('al bl cl dl ah bh ch dh sil dil bpl spl'.split())
NO_LABEL |= {f'r{n}{s}' for n in range(8, 16) for s in ('', 'd', 'w', 'b')} | {f'{c}{n}' for c in ('cr', 'dr', 'xmm') for n in range(16)}
SIZES = {'.byte': 1, '.word': 2, '.long': 4, '.quad': 8}
BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.BitOr: operator.or_,
          ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}

class AssemblerError(Exception): pass

def evaluate(text, value_of):
    """An integer expression; value_of(name) supplies names."""
    seen = []
    def go(n):
        if isinstance(n, ast.Constant) and isinstance(n.value, int): return n.value
        if isinstance(n, ast.Name): return value_of(seen[int(n.id[1:])])
        if isinstance(n, ast.UnaryOp): return UNARY[type(n.op)](go(n.operand))
        if isinstance(n, ast.BinOp): return BINARY[type(n.op)](go(n.left), go(n.right))
        raise AssemblerError(f'bad expression {text!r}')
    try: return go(ast.parse(WORD.sub(lambda m: f'_{seen.append(m[0]) or len(seen) - 1}', text.strip()), mode='eval').body)
    except (SyntaxError, KeyError, ZeroDivisionError): raise AssemblerError(f'bad expression {text!r}') from None

class Encoder:
    """Instruction text -> bytes, remembered. The radix of a fresh engine is heap garbage: probe it, and pass hex only."""
    def __init__(self):
        self.cache = {k: bytes.fromhex(v) for k, v in FIXED.items()}; held = []
        while (ks := Ks(KS_ARCH_X86, KS_MODE_64)).asm('mov eax, 10', as_bytes=True)[0][1] != 10: held.append(ks)
        self.ks = ks
    def __call__(self, text):
        if (code := self.cache.get(text)) is None:
            if text.count('[') != text.count(']') or text.startswith('nop ') or not SANE.fullmatch(text) or re.search(r'(?<!\b[c-gs]s):', text) \
               or re.search(r'\b[abcd]h\b', text) and re.search(r'\b(r\d+[bwd]?|r..|[sd]il|[sb]pl)\b', text):
                raise AssemblerError('cannot encode')          # Keystone drops these, hangs on them or exits the process
            try: code, _ = self.ks.asm(text, 0, as_bytes=True)
            except KsError as e: raise AssemblerError(e.message) from None
            if not code: raise AssemblerError('nothing assembled')
            self.cache[text] = code
        return code
encode = Encoder()

@dataclass(slots=True)
class Item:
    kind: str                           # bytes label align branch fixup data
    site: str                           # file:line
    section: str
    code: bytes = b''
    text: str = ''                      # label name, or the expression to resolve
    op: str = ''                        # branch mnemonic, or kind of fixup: pc abs abs64
    size: int = 0
    fill: int = 0
    address: int = 0
    file: str = ''
    kindof: str = ''
    end: object = None

@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    address: int
    size: int
    section: str
    kind: str

@dataclass
class Assembly:
    segments: dict = field(default_factory=dict)      # section -> (address, bytes)
    symbols: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)
    mcount: list = field(default_factory=list)        # __mcount_loc: addresses of the call sites
    constants: dict = field(default_factory=dict)

class Unit:
    """Pass one: text -> items."""
    def __init__(self, constants):
        for n in constants:
            if n.lower() in NO_LABEL: raise AssemblerError(f'constant {n} is a register name')
        self.names, self.items, self.counts, self.defined, self.mcount = dict(constants), [], {}, {}, []
        self.section, self.func, self.file, self.macros, self.macro, self.expansions = '.text', '', '', {}, None, 0
    def add(self, kind, **k): self.items.append(Item(kind, self.site, self.section, file=self.file, **k)); return self.items[-1]
    def label(self, name, static=False, kindof=''):
        key = f'{self.file}:{name}' if static else name
        if key in self.defined: raise AssemblerError(f'{name} already defined at {self.defined[key]}')
        self.defined[key] = self.site; return self.add('label', text=key, op=name, kindof=kindof)
    def local(self, name): return f'{name}@{self.func}'.replace('@', '..') if name.startswith('.L') else name
    def numeric(self, n, back): return f'.N.{n}.{self.counts.get(n, 0) - (back == "b")}'
    def resolve_names(self, text):       # constants become hex, .L names belong to their function, 1b/1f become unique names
        text = NUMERIC_REF.sub(lambda m: self.numeric(*m.groups()), text)
        try: text = NUMBER.sub(lambda m: hex(int(m[1], 0)), text)
        except ValueError: self.fail('octal')
        return WORD.sub(lambda m: hex(self.names[m[0]]) if m[0] in self.names else self.local(m[0]), text)
    def constant(self, text): return evaluate(self.resolve_names(text), lambda n: self.fail(f'{n} is not a constant'))
    def fail(self, message): raise AssemblerError(message)
    def line(self, text):
        text = re.sub(r'("(?:\\.|[^"\\])*")|#.*', lambda m: m[1] or '', text).strip()
        while self.macro is None and (m := re.match(r'([.\w$]+):\s*', text)):
            text = text[m.end():]
            if m[1].isdigit(): self.label(self.numeric(m[1], 'f'), static=True); self.counts[m[1]] = self.counts.get(m[1], 0) + 1
            else: self.label(self.local(m[1]), static=m[1].startswith('.L'))
        op, _, rest = text.partition(' '); rest = rest.strip()
        if op == '.endm': self.macro = None; return
        if self.macro is not None: self.macro.append(text); return
        if not text: return
        if op == '.macro':
            name, *params = rest.replace(',', ' ').split(); self.macro = []; self.macros[name] = params, self.macro; return
        if op in self.macros:
            params, body = self.macros[op]; given = dict(zip(params, (a.strip() for a in rest.split(',')))); self.expansions += 1
            if len(given) != len(params) or (rest and not params): self.fail(f'{op} takes {len(params)} arguments')
            for line in body:
                line = re.sub(r'\\(\w+|@)(\\\(\))?', lambda m, n=self.expansions: str(n) if m[1] == '@' else given[m[1]], line)
                try: self.line(line)
                except AssemblerError as e: raise AssemblerError(f'{e}: "{line}" in macro') from None
            return
        if m := re.fullmatch(r'(\w+)\s*=\s*(.+)', text): self.names[m[1]] = self.constant(m[2])
        elif op in ('FUNC', 'FUNC_NOTRACE', 'FUNC_STATIC', 'FUNC_ENDBR', 'FUNC_ENDBR_STATIC', 'FUNC_NOTRACE_STATIC'):
            if self.func: self.fail(f'{self.func} is still open')
            self.add('align', size=16, fill=0xcc); self.func = rest
            self.open = self.label(rest, static='STATIC' in op, kindof='t' if 'STATIC' in op else 'T')
            if 'ENDBR' in op: self.add('bytes', code=encode('endbr64'))
            if 'NOTRACE' not in op: self.mcount.append(self.add('branch', op='call', text='__fentry__', size=5))
        elif op == 'OBJECT':
            if self.func: self.fail(f'{self.func} is still open')
            self.func = rest; self.open = self.label(rest, kindof='D')
        elif op in ('ENDFUNC', 'ENDOBJECT'):
            if rest != self.func: self.fail(f'{op} {rest} closes {self.func}')
            self.func = ''; self.open.end = self.add('bytes')
        elif op in ('.text', '.data', '.section'): self.section = rest or op
        elif op in SIZES:
            for e in rest.split(','): self.add('data', text=self.resolve_names(e), size=SIZES[op])
        elif op in ('.ascii', '.asciz'): self.add('bytes', code=ast.literal_eval(rest).encode() + b'\0' * (op == '.asciz'))
        elif op == '.balign':
            size, _, fill = rest.partition(','); self.add('align', size=self.constant(size), fill=self.constant(fill) if fill else 0xcc if self.section == '.text' else 0)
        elif op == '.zero': self.add('bytes', code=bytes(self.constant(rest)))
        elif op.startswith('.'): self.fail(f'unknown directive {op}')
        else: self.instruction(self.resolve_names(' '.join(text.split())))
    def instruction(self, text):
        op, _, rest = text.partition(' ')
        unknown = lambda t: [w for w in WORD.findall(t) if w.lower() not in NO_LABEL]
        if (op[0] == 'j' or op in ('call', 'loop')) and '[' not in rest and not set(WORD.findall(rest)) & NO_LABEL: return self.add('branch', text=rest, op=op, size=5 if op == 'call' else 2)
        fix = None
        if mem := re.search(r'\[([^]]*)\]', text):             # fold to one displacement: Keystone's own symbol arithmetic is wrong
            terms = re.findall(r'[+-]?[^+-]+', mem[1].replace(' ', ''))
            if ''.join(terms) != mem[1].replace(' ', '') or re.search(r'\b[re]?sp\*|^-[a-z]', ' '.join(terms)): self.fail('bad address')
            regs = [t for t in terms if set(WORD.findall(t)) & NO_LABEL]
            disp = ''.join(t for t in terms if t not in regs) or '0'
            if unknown(disp): fix, offset = ('pc' if 'rip' in regs else 'abs', disp.lstrip('+')), HOLE
            else: offset = evaluate(disp, None)
            if offset >> 63 == 1: offset -= 1 << 64
            if not -1 << 31 <= offset < 1 << 31: self.fail('displacement does not fit')
            base = '+'.join(t.lstrip('+') for t in regs) or 'riz*1'                     # riz*1: absolute, else it would be made rip-relative
            text = f'{text[:mem.start()]}[{base}{offset:+#x}]{text[mem.end():]}' if offset or not regs else f'{text[:mem.start()]}[{base}]{text[mem.end():]}'
        if m := re.search(r'\boffset (.+)$', text):
            if fix: self.fail('two addresses in one instruction')
            fix = ('abs64' if op == 'movabs' else 'abs', m[1])
            text = text[:m.start()] + hex(HOLE << 32 | HOLE if op == 'movabs' else HOLE)
        elif (m := re.search(r', ?([-~(\d][^\[\],]*)$', text)) and not WORD.search(m[1]): # an immediate: fold, and check what Keystone would cut silently
            value = evaluate(m[1], None); text = f'{text[:m.start()]}, {value:#x}'
            bits = 8 if re.search(r'\bbyte ptr|^\S+ (?:[abcd][lh]|[sd]il|[sb]pl|r\d+b),', text) else 16 if re.search(r' word ptr|^\S+ (?:[abcd]x|[sd]i|[sb]p|r\d+w),', text) \
                else 32 if re.search(r'dword ptr|^\S+ (?:e\w\w|r\d+d),', text) else 64
            if not -1 << bits - 1 <= value < 1 << bits: self.fail('immediate does not fit')
        if re.search(r'\brip\b', text) and '[rip' not in text: self.fail('rip is no operand')
        if (m := re.fullmatch(r'push ([-~(\d].*)', text)) and not WORD.search(m[1]):
            value = evaluate(m[1], None)
            if not -1 << 31 <= value < 1 << 31: self.fail('immediate does not fit')
            if not -128 <= value < 128: return self.add('bytes', code=b'\x68' + (value % (1 << 32)).to_bytes(4, 'little'))
            text = f'push {value:#x}'
        code = encode(text)
        if fix and HOLE.to_bytes(4, 'little') not in code: self.fail('no room for the address')
        if fix: self.add('fixup', code=code, text=fix[1], op=fix[0], fill=code.index(HOLE.to_bytes(4, 'little')))
        else: self.add('bytes', code=code)

def assemble(sources, bases, constants=(), externs=()):
    unit = Unit(constants)
    for unit.file, text in sorted(sources.items(), key=lambda f: not f[0].endswith('.inc')):
        unit.section, unit.func = '.text', ''
        for number, line in enumerate(text.splitlines(), 1):
            unit.site = f'{unit.file}:{number}'
            try: unit.line(line)
            except AssemblerError as e: raise AssemblerError(f'{unit.site}: {e}: {line.strip()}') from None
    labels, items = dict(externs), unit.items
    def layout():
        here = dict(bases)
        for i in items:
            if i.section not in here: raise AssemblerError(f'{i.site}: section {i.section} has no base')
            a = i.address = here[i.section]
            if i.kind == 'label': labels[i.text] = a
            here[i.section] = a + (len(i.code) or (-a % i.size if i.kind == 'align' else i.size))
    def value(i):
        def name(n):
            if n == '.': return i.address
            if (own := f'{i.file}:{n}') in labels: return labels[own]
            if n not in labels: raise AssemblerError(f'{i.site}: undefined symbol {n}')
            return labels[n]
        return evaluate(i.text, name) if not PLAIN.fullmatch(i.text) else name(i.text)
    layout(); short = [i for i in items if i.kind == 'branch' and i.size == 2]
    while grow := [i for i in short if not -128 <= value(i) - i.address - 2 < 128]:
        for i in grow:
            if i.op[0] != 'j' or i.op.endswith('cxz'): raise AssemblerError(f'{i.site}: {i.op} cannot reach {i.text}')
            i.size = 5 if i.op == 'jmp' else 6
        short = [i for i in short if i.size == 2]; layout()
    image, out = Assembly(), {s: bytearray() for s in bases}
    for i in items:
        o = out[i.section]
        if i.kind == 'bytes': o += i.code
        elif i.kind == 'align': o += bytes([i.fill]) * (-i.address % i.size)
        elif i.kind == 'data': o += (value(i) % (1 << 8 * i.size)).to_bytes(i.size, 'little')
        elif i.kind == 'branch':
            rel = value(i) - i.address - i.size
            if not -1 << 31 <= rel < 1 << 31: raise AssemblerError(f'{i.site}: {i.text} is out of reach')
            o += b'\xe8' if i.op == 'call' else b'\xe9' if i.size == 5 else encode(f'{i.op} 0x0')[:1] if i.size == 2 else bytes([0x0f, encode(f'{i.op} 0x0')[0] + 0x10])
            o += rel.to_bytes(1 if i.size == 2 else 4, 'little', signed=True)
        elif i.kind == 'fixup':
            v, width = value(i), 8 if i.op == 'abs64' else 4
            v -= i.address + len(i.code) if i.op == 'pc' else (v >> 63) << 64
            if width == 4 and not -1 << 31 <= v < 1 << 31: raise AssemblerError(f'{i.site}: {i.text} does not fit in 32 bits')
            o += i.code[:i.fill] + (v % (1 << 8 * width)).to_bytes(width, 'little') + i.code[i.fill + width:]
        elif not i.op.startswith('.'):
            if ':' not in i.text: image.labels[i.op] = i.address
            size = i.end.address - i.address if i.end else 0
            kind = i.kindof or ('t' if i.section.startswith('.text') else 'd')
            image.symbols.append(Symbol(i.op, i.address, size, i.section, kind))
    image.segments = {s: (bases[s], bytes(o)) for s, o in out.items()}
    image.mcount = sorted(i.address for i in unit.mcount)
    image.constants = {n: v for n, v in unit.names.items() if n not in dict(constants)}
    return image

def load(paths, bases, constants=(), externs=(), cache_dir=None):
    """assemble() of files."""
    return assemble({str(p): Path(p).read_text() for p in paths}, bases, constants, externs)
