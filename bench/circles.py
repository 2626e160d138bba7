#!/usr/bin/env python3
"""Counts the circles in which files of a crate use each other, by every reference: types, functions, methods.

    rust-analyzer scip . --output /tmp/index.scip
    python3 bench/circles.py /tmp/index.scip coordinator shim sim

A file uses another one if it refers to anything that is defined there. That a module declares its
parts is no use of them. Tests are left out: they may use all that they test. The exit status is 1 if
a circle has more files than `--most` (default 1: none).
"""

import argparse
import collections
import pathlib
import sys

DEFINITION = 1
# Field numbers of scip.proto: https://github.com/sourcegraph/scip.
DOCUMENTS, PATH, OCCURRENCES, SYMBOL, ROLES = 2, 1, 2, 2, 3


def fields(message):
    """The fields of a protobuf message: (number, value), where a value is a number or bytes."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            length = varint()
            yield number, message[at : at + length]
            at += length
        else:
            length = {1: 8, 5: 4}[kind]
            yield number, message[at : at + length]
            at += length


def is_test(path):
    """True if a file holds tests."""
    parts = pathlib.PurePath(path).parts
    return "tests" in parts or "benches" in parts or "examples" in parts or parts[-1] == "tests.rs"


def occurrences(index):
    """Of an index: (path, symbol, whether it is defined there)."""
    for number, document in fields(index):
        if number != DOCUMENTS:
            continue
        path, found = "", []
        for field, value in fields(document):
            if field == PATH:
                path = value.decode()
            elif field == OCCURRENCES:
                symbol, roles = "", 0
                for part, content in fields(value):
                    if part == SYMBOL:
                        symbol = content.decode()
                    elif part == ROLES:
                        roles = content
                found.append((symbol, roles))
        if not is_test(path):
            for symbol, roles in found:
                yield path, symbol, bool(roles & DEFINITION)


def uses(index, folder):
    """Which files of a folder use which others: {path: {path: symbols}}."""
    defined, referred = {}, []
    for path, symbol, is_definition in occurrences(index):
        # Symbols that are local to a file say nothing, nor do modules: their descriptors end in a slash.
        if not path.startswith(f"{folder}/src/") or symbol.startswith("local ") or symbol.endswith("/"):
            continue
        if is_definition:
            defined[symbol] = path
        else:
            referred.append((path, symbol))
    graph = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, symbol in referred:
        home = defined.get(symbol)
        if home and home != path:
            graph[path][home].add(symbol)
    return graph


def circles(graph):
    """The strongly connected components of more than one file, the largest first (Tarjan, iteratively)."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in list(graph):
        if root in order:
            continue
        work = [(root, iter(list(graph[root])))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in order:
                    order[following] = low[following] = len(order)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(list(graph.get(following, ())))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], order[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = []
                    while True:
                        last = stack.pop()
                        on_stack.discard(last)
                        component.append(last)
                        if last == node:
                            break
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found, key=len, reverse=True)


def main():
    """Prints each folder's circles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=pathlib.Path, help="what `rust-analyzer scip` has written")
    parser.add_argument("folders", nargs="+", help="crates, by their folders")
    parser.add_argument("--most", type=int, default=1, help="how many files a circle may have")
    parser.add_argument("--edges", action="store_true", help="also which symbols make it one")
    arguments = parser.parse_args()
    index, largest = arguments.index.read_bytes(), 0
    for folder in arguments.folders:
        graph = uses(index, folder)
        found = circles(graph)
        sizes = [len(files) for files in found]
        print(f"{folder}: {len(found)} circles{f', of {sizes} files' if found else ''}")
        largest = max([largest, *sizes])
        for files in found:
            print("  " + " ".join(pathlib.PurePath(file).relative_to(folder).as_posix() for file in files))
            for one in files if arguments.edges else ():
                for other in sorted(set(graph[one]) & set(files)):
                    names = sorted(symbol.rsplit(" ", 1)[-1] for symbol in graph[one][other])
                    print(f"    {one} uses {other}: {', '.join(names[:6])}")
    sys.exit(1 if largest > arguments.most else 0)


if __name__ == "__main__":
    main()
