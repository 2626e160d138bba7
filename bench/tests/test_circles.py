"""Circles of files are found in an index, however they close."""

import unittest

import circles


def varint(value):
    """As protobuf writes a number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def document(path, defined, used):
    """A file of an index."""
    found = [(symbol, circles.DEFINITION) for symbol in defined] + [(symbol, 0) for symbol in used]
    parts = [field(circles.PATH, path.encode())]
    for symbol, roles in found:
        one = field(circles.SYMBOL, symbol.encode()) + field(circles.ROLES, roles)
        parts.append(field(circles.OCCURRENCES, one))
    return field(circles.DOCUMENTS, b"".join(parts))


class Circles(unittest.TestCase):
    """Of made indexes."""

    def found(self, *documents):
        """The circles of crate `a`."""
        return circles.circles(circles.uses(b"".join(documents), "a"))

    def test_a_chain_is_no_circle(self):
        """Uses that go down only."""
        top = document("a/src/top.rs", ["a top()."], ["a middle()."])
        middle = document("a/src/middle.rs", ["a middle()."], ["a low#method()."])
        self.assertEqual(self.found(top, middle, document("a/src/low.rs", ["a low#method()."], [])), [])

    def test_methods_close_a_circle_over_several_files(self):
        """Each uses the next."""
        files = [document(f"a/src/{n}.rs", [f"a {n}#m()."], [f"a {(n + 1) % 3}#m()."]) for n in range(3)]
        self.assertEqual(self.found(*files), [["a/src/0.rs", "a/src/1.rs", "a/src/2.rs"]])

    def test_modules_tests_and_other_crates_do_not_count(self):
        """A module declares its parts, and tests may use all."""
        parent = document("a/src/lib.rs", ["a Thing#"], ["a part/", "a helper()."])
        part = document("a/src/part.rs", ["a part/"], ["a Thing#"])
        tests = document("a/src/tests.rs", ["a helper()."], ["a Thing#"])
        other = document("b/src/lib.rs", ["b x()."], ["a Thing#"])
        self.assertEqual(self.found(parent, part, tests, other), [])
