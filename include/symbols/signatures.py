#!/usr/bin/env python3
"""Writes what the functions of a cuda.h take, as JSON rows [symbol, parameter, parameter, ...].

    cd include/symbols
    python3 signatures.py /usr/local/cuda/include/cuda.h > signatures-13.0.json

A parameter is its type. Only void pointers have their names too, which say what they point to.
"""

import json
import pathlib
import re
import sys

SYMBOLS = pathlib.Path(__file__).with_name("cuda-13.0.json")

# Below this line the header declares what was there before, under names that above it are those of
# newer versions.
OLDER = "#if defined(__CUDA_API_VERSION_INTERNAL)\n    #undef cuMemHostRegister"


def parameter(text):
    """Spells a parameter in one way: a list is a pointer, and only what is pointed to is const."""
    is_list = "[" in text
    words = re.match(r"(.*?)(\w+)$", re.sub(r"\[\d*\]", "", " ".join(text.split())))
    kind, name = words.group(1).strip(), words.group(2)
    kind = re.sub(r"\s*\*", "*", kind).replace("* const", "*") + "*" * is_list
    kind = {"unsigned": "unsigned int"}.get(kind, kind)
    return f"{kind} {name}" if kind.removeprefix("const ").startswith("void*") else kind


def declared(text):
    """The functions that a part of the header declares."""
    found = {}
    pattern = r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;]*?)\)\s*;"
    for name, parameters in re.findall(pattern, text, flags=re.S):
        is_none = parameters.strip() in ("", "void")
        found[name] = [] if is_none else [parameter(part) for part in parameters.split(",")]
    return found


def signatures(header):
    """Signatures by symbol: the header's names stand for the symbols that its macros say."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"//.*", "", text)
    newer, mark, older = text.rpartition(OLDER)
    if not mark:
        sys.exit("signatures: this cuda.h is built in another way than that of 13.0")
    macro = r"#define\s+(cu\w+)\s+(?:__CUDA_API_PT[DS]S?[ZS]?\()?\s*(cu\w+)\)?"
    symbols = dict(re.findall(macro, newer))
    found = {symbols.get(name, name): parameters for name, parameters in declared(newer).items()}
    return found | declared(older)


def main():
    """Command line: the path of a cuda.h."""
    found = signatures(pathlib.Path(sys.argv[1]).read_text())
    rows = []
    for *_, symbol in json.loads(SYMBOLS.read_text()):
        plain = re.sub(r"_pt[ds][sz]$", "", symbol)
        if symbol not in found and plain not in found:
            sys.exit(f"signatures: this cuda.h does not declare {symbol}")
        rows.append([symbol, *found.get(symbol, found.get(plain))])
    print("[\n" + ",\n".join(json.dumps(row) for row in sorted(rows)) + "\n]")


if __name__ == "__main__":
    main()
