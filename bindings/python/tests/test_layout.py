"""The structures and functions of the package are those of the C header."""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from weldfs import _library

NAMES = {
    "weldfs_options": _library.Options,
    "weldfs_info": _library.CInfo,
    "weldfs_space": _library.CSpace,
    "weldfs_time": _library.CTime,
    "weldfs_stat": _library.CStat,
    "weldfs_entry": _library.CEntry,
    "weldfs_written": _library.CWritten,
    "weldfs_name": _library.CName,
    "weldfs_operand": _library.COperand,
    "weldfs_outcome": _library.COutcome,
    "weldfs_write_item": _library.CWriteItem,
    "weldfs_virt_range": _library.CVirtRange,
    "weldfs_virt_spec": _library.CVirtSpec,
}
INCLUDE = os.environ.get("WELDFS_INCLUDE", Path(__file__).resolve().parents[3] / "userlib" / "include")


class Layout(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_structures_are_those_of_the_header(self):
        lines, expected = [], []
        for name, structure in NAMES.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(structure)}")
            for field, *_ in structure._fields_:
                c_field = field.rstrip("_")
                lines.append(f'printf("{name}.{c_field} %zu\\n", offsetof({name}, {c_field}));')
                expected.append(f"{name}.{c_field} {getattr(structure, field).offset}")
        source = "#include <stdio.h>\n#include <weldfs.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "layout"
            Path(f"{program}.c").write_text(source)
            subprocess.run(["cc", f"-I{INCLUDE}", f"{program}.c", "-o", program], check=True)
            said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said.splitlines(), expected)

    def test_every_prototype_has_as_many_arguments_as_in_the_header(self):
        # Its comments show calls, too.
        header = re.sub(r"/\*.*?\*/", "", (Path(INCLUDE) / "weldfs.h").read_text(), flags=re.S)
        for name, (_, arguments) in _library.PROTOTYPES.items():
            found = re.search(rf"\b{name}\(([^;]*)\);", header)
            self.assertIsNotNone(found, name)
            inner = found.group(1).strip()
            count = 0 if inner == "void" else inner.count(",") + 1
            self.assertEqual(count, len(arguments), name)

    def test_the_library_is_of_the_packages_version(self):
        self.assertEqual(_library.load().weldfs_version() // 1000, 1, _library.library_path())
