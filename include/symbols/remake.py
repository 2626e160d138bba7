#!/usr/bin/env python3
"""Remakes cuda.json and signatures.json from the headers of a CUDA toolkit: cuda.h and cudaTypedefs.h.

    pip download --no-deps nvidia-cuda-runtime && unzip -q nvidia_cuda_runtime-*.whl
    python3 include/symbols/remake.py nvidia/cu13/include

cuda.json has a row [name to ask for, twin, first CUDA version, symbol] for each entry point; signatures.json a row
[symbol, parameter, parameter, ...]. A parameter is its type. Only void pointers have their names too, which say what
they point to.
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent

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
        sys.exit("remake: this cuda.h is built in another way than those of 13.0 to 13.5")
    macro = r"#define\s+(cu\w+)\s+(?:__CUDA_API_PT[DS]S?[ZS]?\()?\s*(cu\w+)\)?"
    symbols = dict(re.findall(macro, newer))
    found = {symbols.get(name, name): parameters for name, parameters in declared(newer).items()}
    return found | declared(older)


def generation(name, base):
    """Which version of a function a symbol is: 1 without a number behind it; none if it is of another function."""
    number = re.fullmatch(re.escape(base) + r"(?:_v(\d+))?", name)
    return number and int(number.group(1) or 1)


def symbols(typedefs, known):
    """Rows of cuda.json: the header has a type for each version of each function, and the symbols count them."""
    versions = {}
    for base, version, twin in sorted(set(re.findall(r"PFN_(cu[A-Za-z0-9_]+?)_v(\d+)(_pt[ds][sz])?\)", typedefs))):
        versions.setdefault((base, twin), []).append(int(version))
    rows = []
    for (base, twin), versions in versions.items():
        numbers = sorted(filter(None, (generation(name, base) for name in known)))
        # Twins are of newer versions only: those before the twins came have none.
        numbers = numbers[len(numbers) - len(versions) :]
        if len(numbers) != len(versions):
            sys.exit(f"remake: cuda.h has fewer versions of {base} than cudaTypedefs.h")
        for version, number in zip(sorted(versions), numbers):
            suffix = f"_v{number}" if number > 1 else ""
            rows.append([base, twin, version, f"{base}{suffix}{twin}"])
    return sorted(rows)


def write(name, rows):
    """A row a line, so that changes can be read."""
    (HERE / name).write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def main():
    """Command line: the folder of the headers."""
    folder = pathlib.Path(sys.argv[1])
    found = signatures((folder / "cuda.h").read_text())
    rows = symbols((folder / "cudaTypedefs.h").read_text(), found)
    write("cuda.json", rows)
    signed = []
    for *_, symbol in rows:
        plain = re.sub(r"_pt[ds][sz]$", "", symbol)
        if symbol not in found and plain not in found:
            sys.exit(f"remake: this cuda.h does not declare {symbol}")
        signed.append([symbol, *found.get(symbol, found.get(plain))])
    write("signatures.json", sorted(signed))


if __name__ == "__main__":
    main()
