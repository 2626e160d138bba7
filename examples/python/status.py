"""Asks a coordinator how things stand, and prints its tenants.

    python3 status.py /run/user/UID/baton/GPU-….sock

With the standard library alone. The wire format is in include/src/wire.rs: a message is one datagram of a SOCK_SEQPACKET
socket, little-endian: version, kind and GPU, then the fields. The answer is JSON in pieces; docs/status.schema.json
describes it.
"""

import json
import socket
import struct
import sys

VERSION = 22
ANY_GPU = 0xFFFFFFFF
STATUS = 3  # the question's kind
TEXT = 5  # the answer's kind
MAX_MESSAGE = 32 * 1024


def status(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as coordinator:
        coordinator.settimeout(10)
        coordinator.connect(path)
        coordinator.send(struct.pack("<III", VERSION, STATUS, ANY_GPU))
        text, more = b"", True
        while more:
            message = coordinator.recv(MAX_MESSAGE)
            version, kind, _gpu = struct.unpack_from("<III", message)
            if version != VERSION or kind != TEXT:
                raise RuntimeError(f"the coordinator answers with version {version}, kind {kind}")
            (length,) = struct.unpack_from("<I", message, 12)
            text += message[16 : 16 + length]
            (more,) = struct.unpack_from("<I", message, 16 + length)
        return json.loads(text)


if __name__ == "__main__":
    for tenant in status(sys.argv[1])["tenants"]:
        print(tenant["name"], tenant["pid"], tenant["state"], tenant["resident_bytes"], tenant["waits_for"]["reason"])
